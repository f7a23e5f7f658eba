"""The CustomResourceDefinitions that serve the API where Kubernetes does not.

Generated from :mod:`rules.api` and its constraints, so that a limit exists once. On top come CEL
rules for the basic behaviours, so that those hold while the webhook is down.

The law of this module: the CRD never refuses what the native API admits. It may admit more, because
the webhook judges as well. What follows from it:

- Natively an unchanged value is not judged again. API servers ratchet schema keywords and CEL rules
  without ``oldSelf`` alike, so these stand at the smallest node that holds all they read.
- CEL rules with ``oldSelf`` are not ratcheted. They must hold for every stored object, also for one
  that breaks other rules, and may read no optional field without ``has``.
- Times are compared in whole seconds. Natively fractions are cut when an object is stored; here
  they stay, and clients that cut them send such an object back changed.

Source of the format: ``k8s.io/apiextensions-apiserver``, 0.30 (the oldest supported) to 0.37.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from types import NoneType, UnionType
from typing import Annotated, Any, Final, TypeAlias, Union, get_args, get_origin

from annotated_types import Le
from pydantic import BaseModel
from pydantic.alias_generators import to_camel
from pydantic.fields import FieldInfo

from rules import formats
from rules.api import (
    GROUP,
    MAX_TARGET_RESPONDERS,
    VERSION,
    Condition,
    ConditionStatus,
    Eviction,
    EvictionRequest,
    EvictionStatus,
    Requester,
    ResponderState,
    TargetResponder,
)
from rules.constraints import (
    RESERVED_DOMAINS,
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
    Uuid,
)
from rules.meta.conditions import _MAX_MESSAGE, _MAX_REASON
from rules.states import FINAL_CONDITIONS

Schema: TypeAlias = dict[str, Any]

APPROVAL: Final = "unapproved, installed by Usher where Kubernetes does not serve this group itself"
"""API servers refuse CRDs of ``*.k8s.io`` groups without a text that starts with "unapproved"."""


def definitions() -> list[Schema]:
    """Both CustomResourceDefinitions (``apiextensions.k8s.io/v1``); equal in every call."""
    return [
        _definition(EvictionRequest, "evictionrequests", _REQUEST_COLUMNS),
        _definition(Eviction, "evictions", _EVICTION_COLUMNS),
    ]


def _definition(model: type[BaseModel], plural: str, columns: Sequence[Schema]) -> Schema:
    kind = model.__name__
    version = {
        "name": VERSION,
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "additionalPrinterColumns": [dict(column) for column in columns],
        "schema": {"openAPIV3Schema": _root(model)},
    }
    names = {
        "kind": kind,
        "listKind": f"{kind}List",
        "plural": plural,
        "singular": kind.lower(),
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{plural}.{GROUP}",
            "annotations": {"api-approved.kubernetes.io": APPROVAL},
        },
        "spec": {"group": GROUP, "scope": "Namespaced", "names": names, "versions": [version]},
    }


def _root(model: type[BaseModel]) -> Schema:
    return {
        "type": "object",
        "description": _DESCRIPTIONS[model][""],
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string", "description": _DESCRIPTIONS[model]["apiVersion"]},
            "kind": {"type": "string", "description": _DESCRIPTIONS[model]["kind"]},
            "metadata": {"type": "object"},
            "spec": _object(_type_of(model, "spec")),
            # As natively, status is never absent, so the rules of its node see every change.
            "status": {**_object(_type_of(model, "status")), "default": {}},
        },
    }


def _type_of(model: type[BaseModel], attribute: str) -> type[BaseModel]:
    annotation: type[BaseModel]
    annotation, _ = _unwrap(model.model_fields[attribute])
    return annotation


# Schemas from models


def _object(model: type[BaseModel]) -> Schema:
    fields = {info.alias or name: info for name, info in model.model_fields.items()}
    descriptions = _DESCRIPTIONS[model]
    required = [name for name, info in fields.items() if _is_required(model, name, info)]
    schema: Schema = {
        "type": "object",
        "description": descriptions[""],
        **({"required": required} if required else {}),
        "properties": {
            name: {"description": descriptions[name], **_field(model, name, info)}
            for name, info in fields.items()
        },
        **({"x-kubernetes-map-type": "atomic"} if model in _ATOMIC else {}),
    }
    rules = [rule for name, info in fields.items() for rule in _rules_of_parent(name, info)]
    return _ruled(schema, [*rules, *_BEHAVIOURS.get(model, ())])


def _is_required(model: type[BaseModel], name: str, info: FieldInfo) -> bool:
    if model is Condition:
        return name in _CONDITION_REQUIRED
    return any(isinstance(fact, Required | ExactlyOneMember) for fact in info.metadata)


def _field(model: type[BaseModel], name: str, info: FieldInfo) -> Schema:
    annotation, facts = _unwrap(info)
    limits = [fact for fact in facts if isinstance(fact, Constraint)]
    schema = _typed(annotation, facts)
    for limit in limits:
        schema |= _keywords(limit)
    if model is Condition:
        schema |= _CONDITION.get(name, {})
    if Condition in get_args(annotation):
        schema |= _list_map(_CONDITION_KEY)
    return _ruled(
        schema,
        [
            *(rule for limit in limits for rule in _rules_of_field(limit)),
            *_LIST_BEHAVIOURS.get((model, name), ()),
        ],
    )


def _typed(annotation: Any, facts: Sequence[Any]) -> Schema:
    if get_origin(annotation) is tuple:
        return {"type": "array", "items": _object(get_args(annotation)[0])}
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return _object(annotation)
    if annotation is str:
        return {"type": "string"}
    if annotation is datetime:
        return {"type": "string", "format": "date-time"}
    if annotation is int:
        (largest,) = (fact.le for fact in facts if isinstance(fact, Le))
        return {"type": "integer", "format": _INTEGERS[largest]}
    raise TypeError(f"no schema for {annotation}")


_INTEGERS: Final[Mapping[Any, str]] = {2**31 - 1: "int32", 2**63 - 1: "int64"}
"""Largest value → format."""


def _unwrap(info: FieldInfo) -> tuple[Any, tuple[Any, ...]]:
    """The bare type of a field, and everything that its annotation says about it."""
    annotation: Any = info.annotation
    facts: list[Any] = list(info.metadata)
    while True:
        origin = get_origin(annotation)
        if origin is Annotated:
            annotation, *more = get_args(annotation)
            for fact in more:
                facts += fact.metadata if isinstance(fact, FieldInfo) else [fact]
        elif origin in (Union, UnionType):
            (annotation,) = (inner for inner in get_args(annotation) if inner is not NoneType)
        else:
            return annotation, tuple(facts)


# Limits as keywords

_LONG_NAME: Final = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
_NAME_PART: Final = (
    rf"[A-Za-z0-9]([-A-Za-z0-9_.]{{0,{formats.MAX_LABEL_BYTES - 2}}}[A-Za-z0-9])?"
)
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
    "reason": {"maxLength": _MAX_REASON, "pattern": "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$"},
    "message": {"maxLength": _MAX_MESSAGE},
}
_CONDITION_REQUIRED: Final = ("type", "status", "lastTransitionTime", "reason")
_CONDITION_KEY: Final = "type"
_ATOMIC: Final = (Requester, TargetResponder)
"""Items that server-side apply owns as a whole (``+structType=atomic`` in types.go)."""


def _keywords(limit: Constraint) -> Schema:
    """What a limit means as keywords; nothing where it is a CEL rule.

    Raises TypeError for a limit that nobody has thought of here.
    """
    match limit:
        case Minimum():
            return {"minimum": limit.limit}
        case Maximum():
            return {"maximum": limit.limit}
        case MaxItems():
            return {"maxItems": limit.limit}
        case MaxLength():
            return {"maxLength": limit.limit}
        case OneOf():
            return {"enum": [str(choice) for choice in limit.choices]}
        case Unique():
            return _list_map(to_camel(limit.key))
        case Format():
            return dict(_FORMATS[type(limit)])
        case Required() | ExactlyOneMember() | UnreservedDomain():
            return {}
        case Immutable() | SetOnce() | NeverUnset() | NeverDecreases():
            return {}
    raise TypeError(f"no schema for {limit}")


def _list_map(key: str) -> Schema:
    return {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [key]}


# CEL rules


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rule:
    """One ``x-kubernetes-validations`` entry."""

    rule: str
    message: str
    field: str = ""
    """The child of the rule's node that is to blame; "" for the node itself."""
    optional_old: bool = False
    """Whether ``oldSelf`` is an optional, so that new nodes are judged as well."""

    def render(self) -> Schema:
        return {
            "rule": " ".join(self.rule.split()),
            "message": self.message,
            **({"fieldPath": f".{self.field}"} if self.field else {}),
            **({"optionalOldSelf": True} if self.optional_old else {}),
        }


def _ruled(schema: Schema, rules: Sequence[_Rule]) -> Schema:
    if not rules:
        return schema
    key = "x-kubernetes-validations"
    return {**schema, key: [*(rule.render() for rule in rules), *schema.get(key, ())]}


def _rules_of_field(limit: Constraint) -> Sequence[_Rule]:
    """What a limit means as rules at its field's own node."""
    match limit:
        case Immutable():
            return (_Rule(rule="self == oldSelf", message="field is immutable"),)
        case ExactlyOneMember():
            set_members = " + ".join(f"(has(self.{member}) ? 1 : 0)" for member in limit.members)
            listed = ", ".join(limit.members)
            return (
                _Rule(rule=f"{set_members} == 1", message=f"must have exactly one of: {listed}"),
            )
        case UnreservedDomain():
            domains = "|".join(domain.replace(".", "[.]") for domain in RESERVED_DOMAINS)
            listed = ", ".join(f"*.{domain}" for domain in RESERVED_DOMAINS)
            return (
                _Rule(
                    rule=f"!self.matches('^([^/]*[.])?({domains})/')",
                    message=f"domain names {listed} are reserved; use your own domain",
                ),
            )
    return ()


def _rules_of_parent(name: str, info: FieldInfo) -> Sequence[_Rule]:
    """What the limits of a field mean as rules at the node above, which sees the field vanish."""
    annotation, limits = _unwrap(info)
    cut = "int" if annotation is datetime else ""
    new, old = f"{cut}(self.{name})", f"{cut}(oldSelf.{name})"
    kept = f"!has(oldSelf.{name}) || (has(self.{name}) && {new}"
    rules = []
    for limit in limits:
        match limit:
            case SetOnce():
                message = "may not be changed or removed once set"
                rules.append(_Rule(rule=f"{kept} == {old})", message=message, field=name))
            case NeverUnset():
                message = "may not be removed once set"
                rule = f"!has(oldSelf.{name}) || has(self.{name})"
                rules.append(_Rule(rule=rule, message=message, field=name))
            case NeverDecreases():
                rule = f"!has(oldSelf.{name}) || !has(self.{name}) || {new} >= {old}"
                rules.append(_Rule(rule=rule, message="may not be decreased", field=name))
    return rules


def _texts(values: Sequence[str]) -> str:
    return "[" + ", ".join(f"'{value}'" for value in sorted(values)) + "]"


def _is(item: str, *states: str) -> str:
    """Whether the state of a target responder is one of ``states``."""
    return f"(has({item}.state) && {item}.state in {_texts(states)})"


def _is_true(condition: str) -> str:
    return f"(has({condition}.status) && {condition}.status == '{ConditionStatus.TRUE}')"


def _is_same(one: str, other: str, field: str, *, time: bool = False) -> str:
    """Whether a field is equal in two objects, or unset in both."""
    left, right = (f"int({x}.{field})" if time else f"{x}.{field}" for x in (one, other))
    return (
        f"(has({one}.{field}) == has({other}.{field}) && (!has({one}.{field}) || {left} == {right}))"
    )


def _same_names(old: str, new: str) -> str:
    return f"(size({new}) == size({old}) && {old}.all(o, {new}.exists(n, n.name == o.name)))"


_FINAL: Final = _texts(FINAL_CONDITIONS)
_IS_FINAL: Final = f"""
    (has(self.conditions) && self.conditions.exists(c, c.type in {_FINAL} && {_is_true("c")}))
"""
# Natively states are not judged where a list is too long or repeats a name, as a stored one may.
_IS_READABLE: Final = " && ".join(
    f"has({items}) && size({items}) <= {MAX_TARGET_RESPONDERS}"
    f" && {items}.all(a, {items}.exists_one(b, b.name == a.name))"
    for items in ("self.targetResponders", "self.responders")
)
_HAD_RESPONDERS: Final = "(has(oldSelf.targetResponders) && size(oldSelf.targetResponders) > 0)"
# Without all priorities the order of a stored list is unknown.
_WAS_ORDERED: Final = (
    f"({_HAD_RESPONDERS} && oldSelf.targetResponders.all(o, has(o.priority)))"
)
_HAD_ACTIVE: Final = (
    f"({_WAS_ORDERED} && oldSelf.targetResponders.exists_one(a, {_is('a', ResponderState.ACTIVE)}))"
)
_HAS_ACTIVE: Final = f"self.targetResponders.exists(a, {_is('a', ResponderState.ACTIVE)})"
_KEEPS_STATE: Final = "(n.state == o.state)"

_EVICTION_STATUS: Final = (
    _Rule(
        rule=f"""
            !has(oldSelf.conditions) || oldSelf.conditions.all(o,
              !(o.type in {_FINAL} && {_is_true("o")})
              || (has(self.conditions) && self.conditions.exists(n, n.type == o.type
                && !(has(n.status) && n.status == '{ConditionStatus.FALSE}')
                && {_is_same("n", "o", "reason")})))
        """,
        message=f"a true {' or '.join(FINAL_CONDITIONS)} must stay True and keep its reason",
        field="conditions",
    ),
    _Rule(
        rule=f"""
            !{_HAD_RESPONDERS} || (has(self.targetResponders)
              && {_same_names("oldSelf.targetResponders", "self.targetResponders")})
        """,
        message="must keep the number and the names of its entries",
        field="targetResponders",
    ),
    _Rule(
        rule=f"""
            has(self.targetResponders) && size(self.targetResponders) > 0
            ? has(self.responders) && {_same_names("self.targetResponders", "self.responders")}
            : !has(self.responders) || size(self.responders) == 0
        """,
        message="must have exactly the names of status.targetResponders",
        field="responders",
    ),
)


_BEHAVIOURS: Final[Mapping[type[BaseModel], Sequence[_Rule]]] = {
    EvictionStatus: _EVICTION_STATUS,
}
_LIST_BEHAVIOURS: Final[Mapping[tuple[type[BaseModel], str], Sequence[_Rule]]] = {}
from collections import defaultdict

_DESCRIPTIONS: Any = defaultdict(lambda: defaultdict(lambda: "x"))
_REQUEST_COLUMNS: Any = ()
_EVICTION_COLUMNS: Any = ()
