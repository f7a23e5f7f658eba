"""OpenAPI schemas from the models and their constraints."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, get_args, get_origin

from msgspec import Meta, structs
from msgspec.structs import FieldInfo

from rules import formats
from rules.api import (
    ApiType,
    Condition,
    ConditionStatus,
    EvictionRequestSpec,
    Requester,
    TargetResponder,
    Time,
)
from rules.constraints import (
    Constraint,
    ExactlyOneMember,
    Format,
    Immutable,
    LongName,
    Maximum,
    MaxItems,
    MaxLength,
    Minimum,
    NeverDecreases,
    NeverUnset,
    OneOf,
    PrefixedKey,
    Required,
    SetOnce,
    Unique,
    UnreservedDomain,
    UnreservedPriority,
    Uuid,
)
from rules.crd.annotations import Schema, unwrap
from rules.crd.behaviours import BEHAVIOURS, LIST_BEHAVIOURS
from rules.crd.cel import must_be_set, ruled, rules_of_field, rules_of_parent
from rules.crd.prose import DESCRIPTIONS
from rules.meta.conditions import MAX_MESSAGE_BYTES, MAX_REASON
from rules.policies import LabelSelector


def object_schema(model: type[ApiType]) -> Schema:
    """The schema of ``model`` and all that it contains, with the CEL rules of its nodes."""
    fields = {info.encode_name: info for info in structs.fields(model)}
    descriptions = DESCRIPTIONS[model]
    required = [name for name, info in fields.items() if _is_required(model, name, info)]
    separate = _REQUIRED_APART.get(model, ())
    schema: Schema = {"type": "object", "description": descriptions[""]}
    if keyword := [name for name in required if name not in separate]:
        schema["required"] = keyword
    schema["properties"] = {
        name: _field(model, name, info) | {"description": descriptions[name]}
        for name, info in fields.items()
    }
    if model in _ATOMIC:
        schema["x-kubernetes-map-type"] = "atomic"
    return ruled(
        schema,
        [
            *(must_be_set(name) for name in required if name in separate),
            *(rule for name, info in fields.items() for rule in rules_of_parent(name, info)),
            *BEHAVIOURS.get(model, ()),
        ],
    )


def _is_required(model: type[ApiType], name: str, info: FieldInfo) -> bool:
    if model is Condition:
        return name in _CONDITION_REQUIRED
    return any(isinstance(fact, Required | ExactlyOneMember) for fact in unwrap(info)[1])


def _field(model: type[ApiType], name: str, info: FieldInfo) -> Schema:
    annotation, facts = unwrap(info)
    limits = [fact for fact in facts if isinstance(fact, Constraint)]
    schema = _typed(annotation, facts)
    for limit in limits:
        schema |= _keywords(limit)
    if model is Condition:
        schema |= _CONDITION.get(name, {})
    if Condition in get_args(annotation):
        schema |= _list_map(_CONDITION_KEY)
    if schema["type"] == "array":
        schema.setdefault("x-kubernetes-list-type", "atomic")
    return ruled(
        schema,
        [
            *(rule for limit in limits for rule in rules_of_field(limit)),
            *LIST_BEHAVIOURS.get((model, name), ()),
        ],
    )


def _typed(annotation: Any, facts: Sequence[Any]) -> Schema:
    if get_origin(annotation) is tuple:
        return {"type": "array", "items": _typed(get_args(annotation)[0], ())}
    if get_origin(annotation) is dict:
        return {"type": "object", "additionalProperties": _typed(get_args(annotation)[1], ())}
    if isinstance(annotation, type) and issubclass(annotation, ApiType):
        return object_schema(annotation)
    if annotation is str:
        return {"type": "string"}
    if annotation is Time:
        return {"type": "string", "format": "date-time", "pattern": _TIME}
    if annotation is int:
        (largest,) = (fact.le for fact in facts if isinstance(fact, Meta))
        return {"type": "integer", "format": _INTEGERS[largest]}
    raise TypeError(f"no schema for {annotation}")


# As `rules.times` reads it: the format alone also admits lower case and zones that do not exist,
# which no decoder of ours or of Go can read. (The format refuses the single-digit hour that Go
# reads and nobody writes.)
_TIME: Final = (
    "^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}([.,][0-9]+)?"
    "(Z|[+-]([01][0-9]|2[0-4]):([0-5][0-9]|60))$"
)
_INTEGERS: Final[Mapping[Any, str]] = {2**31 - 1: "int32", 2**63 - 1: "int64"}
"""Largest value → format."""


_LONG_NAME: Final = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
_NAME_PART: Final = rf"[A-Za-z0-9]([-A-Za-z0-9_.]{{0,{formats.MAX_LABEL_BYTES - 2}}}[A-Za-z0-9])?"
_MAX_KEY: Final = formats.MAX_LONG_NAME_BYTES + len("/") + formats.MAX_LABEL_BYTES
# The predicates of `rules.formats` as RE2, whose `$` is the very end of a text. RE2 does not count
# as far as the domain of a key may reach, so only the whole key has a length.
_FORMATS: Final[Mapping[type[Constraint], Schema]] = {
    LongName: {"maxLength": formats.MAX_LONG_NAME_BYTES, "pattern": f"^{_LONG_NAME}$"},
    PrefixedKey: {"maxLength": _MAX_KEY, "pattern": f"^{_LONG_NAME}/{_NAME_PART}$"},
    Uuid: {"pattern": "^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$"},
}
# What the rule `well-formed-conditions` says, as far as keywords can: a schema counts the message
# in characters, the rule in bytes.
_CONDITION: Final[Mapping[str, Schema]] = {
    "type": {"maxLength": _MAX_KEY, "pattern": f"^({_LONG_NAME}/)?{_NAME_PART}$"},
    "status": {"enum": [str(status) for status in ConditionStatus]},
    "observedGeneration": {"minimum": 0},
    "reason": {"maxLength": MAX_REASON, "pattern": "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$"},
    "message": {"maxLength": MAX_MESSAGE_BYTES},
}
_CONDITION_REQUIRED: Final = ("type", "status", "lastTransitionTime", "reason")
_CONDITION_KEY: Final = "type"
_ATOMIC: Final = (Requester, TargetResponder, LabelSelector)
"""What server-side apply owns as a whole (``+structType=atomic`` in types.go)."""


_BOUNDS: Final[Mapping[type[Constraint], str]] = {
    Minimum: "minimum",
    Maximum: "maximum",
    MaxItems: "maxItems",
    MaxLength: "maxLength",
}


def _keywords(limit: Constraint) -> Schema:
    """What a limit means as keywords; nothing where it is a CEL rule.

    Raises TypeError for a limit that nobody has thought of here.
    """
    match limit:
        case Minimum() | Maximum() | MaxItems() | MaxLength():
            return {_BOUNDS[type(limit)]: limit.limit}
        case OneOf():
            return {"enum": [str(choice) for choice in limit.choices]}
        case Unique():
            return _list_map(limit.key)
        case Format():
            return dict(_FORMATS[type(limit)])
        case Required() | ExactlyOneMember() | UnreservedDomain() | Immutable() | SetOnce():
            return {}
        case NeverUnset() | NeverDecreases() | UnreservedPriority():
            return {}
    raise TypeError(f"no schema for {limit}")


# Where a field can change beside a missing one, the keyword would refuse what stands natively.
_REQUIRED_APART: Final[Mapping[type[ApiType], Sequence[str]]] = {
    EvictionRequestSpec: ("target", "requester", "intent"),
    TargetResponder: ("priority",),
}


def _list_map(key: str) -> Schema:
    return {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [key]}
