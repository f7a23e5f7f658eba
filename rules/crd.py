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

from collections.abc import Iterable, Mapping, Sequence
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
    EVICTOR,
    EVICTOR_PRIORITY,
    GROUP,
    MANAGING_PRIORITY,
    MAX_CONDITIONS,
    MAX_MESSAGE,
    MAX_PRIORITY,
    MAX_TARGET_RESPONDERS,
    VERSION,
    Condition,
    ConditionStatus,
    Eviction,
    EvictionRequest,
    EvictionRequestSpec,
    EvictionRequestStatus,
    EvictionSpec,
    EvictionStatus,
    Intent,
    PodReference,
    Requester,
    ResponderState,
    ResponderStatus,
    Target,
    TargetResponder,
)
from rules.constraints import (
    RESERVED_DOMAINS,
    RESERVED_PRIORITY_END,
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
from rules.field import ErrorType
from rules.meta.conditions import _MAX_MESSAGE, _MAX_REASON
from rules.states import FINAL_CONDITIONS, PROCESSED, TRANSITIONS

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
    schema = {
        "type": "object",
        "description": _DESCRIPTIONS[model][""],
        "properties": {
            "apiVersion": {"type": "string", "description": _DESCRIPTIONS[model]["apiVersion"]},
            "kind": {"type": "string", "description": _DESCRIPTIONS[model]["kind"]},
            "metadata": {"type": "object"},
            "spec": _object(_type_of(model, "spec")),
            # As natively, status is never absent, so the rules of its node see every change.
            "status": {**_object(_type_of(model, "status")), "default": {}},
        },
    }
    return _ruled(schema, [_required("spec")])


def _type_of(model: type[BaseModel], attribute: str) -> type[BaseModel]:
    annotation: type[BaseModel]
    annotation, _ = _unwrap(model.model_fields[attribute])
    return annotation


# Schemas from models


def _object(model: type[BaseModel]) -> Schema:
    fields = {info.alias or name: info for name, info in model.model_fields.items()}
    descriptions = _DESCRIPTIONS[model]
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
    return _ruled(
        schema,
        [
            *(_required(name) for name in required if name in separate),
            *(rule for name, info in fields.items() for rule in _rules_of_parent(name, info)),
            *_BEHAVIOURS.get(model, ()),
        ],
    )


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
        return {"type": "string", "format": "date-time", "pattern": _TIME}
    if annotation is int:
        (largest,) = (fact.le for fact in facts if isinstance(fact, Le))
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
    "reason": {"maxLength": _MAX_REASON, "pattern": "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$"},
    "message": {"maxLength": _MAX_MESSAGE},
}
_CONDITION_REQUIRED: Final = ("type", "status", "lastTransitionTime", "reason")
_CONDITION_KEY: Final = "type"
_ATOMIC: Final = (Requester, TargetResponder)
"""Items that server-side apply owns as a whole (``+structType=atomic`` in types.go)."""


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
            return _list_map(to_camel(limit.key))
        case Format():
            return dict(_FORMATS[type(limit)])
        case Required() | ExactlyOneMember() | UnreservedDomain() | Immutable() | SetOnce():
            return {}
        case NeverUnset() | NeverDecreases():
            return {}
    raise TypeError(f"no schema for {limit}")


# Where a field can change beside a missing one, the keyword would refuse what stands natively.
_REQUIRED_APART: Final[Mapping[type[BaseModel], Sequence[str]]] = {
    EvictionRequestSpec: ("target", "requester", "intent"),
    TargetResponder: ("priority",),
}


def _list_map(key: str) -> Schema:
    return {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [key]}


# CEL rules


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rule:
    """One ``x-kubernetes-validations`` entry.

    ``name`` is the id of the rule that it stands for. An API server that refuses a write by its CRD
    asks no webhook, so that the message is the only place to name it.
    """

    name: str
    rule: str
    message: str
    field: str = ""
    """The child of the rule's node that is to blame; "" for the node itself."""
    reason: ErrorType = ErrorType.INVALID
    optional_old: bool = False
    """Whether ``oldSelf`` is an optional, so that new nodes are judged as well."""

    def render(self) -> Schema:
        return {
            "rule": " ".join(self.rule.split()),
            "message": f"{self.message} (rule {self.name})",
            "reason": str(self.reason),
            **({"fieldPath": f".{self.field}"} if self.field else {}),
            **({"optionalOldSelf": True} if self.optional_old else {}),
        }


def _ruled(schema: Schema, rules: Sequence[_Rule]) -> Schema:
    if not rules:
        return schema
    key = "x-kubernetes-validations"
    return {**schema, key: [*(rule.render() for rule in rules), *schema.get(key, ())]}


def _required(name: str) -> _Rule:
    return _Rule(
        name=Required.rule,
        rule=f"has(self.{name}) || (oldSelf.hasValue() && !has(oldSelf.value().{name}))",
        message=f"{name} must be set",
        field=name,
        reason=ErrorType.REQUIRED,
        optional_old=True,
    )


def _rules_of_field(limit: Constraint) -> Sequence[_Rule]:
    """What a limit means as rules at its field's own node."""
    match limit:
        case Immutable():
            message = "field is immutable"
            return (_Rule(name=limit.rule, rule="self == oldSelf", message=message),)
        case ExactlyOneMember():
            members = " + ".join(f"(has(self.{member}) ? 1 : 0)" for member in limit.members)
            message = f"must have exactly one of: {', '.join(limit.members)}"
            return (_Rule(name=limit.rule, rule=f"{members} == 1", message=message),)
        case UnreservedDomain():
            domains = "|".join(domain.replace(".", "[.]") for domain in RESERVED_DOMAINS)
            listed = ", ".join(f"*.{domain}" for domain in RESERVED_DOMAINS)
            message = f"domain names {listed} are reserved; use your own domain"
            rule = f"!self.matches('^([^/]*[.])?({domains})/')"
            return (_Rule(name=limit.rule, rule=rule, message=message),)
    return ()


def _rules_of_parent(name: str, info: FieldInfo) -> Sequence[_Rule]:
    """What the limits of a field mean as rules at the node above, which sees it vanish."""
    annotation, limits = _unwrap(info)
    new, old = _values(name, time=annotation is datetime)
    rules = []
    for limit in limits:
        match limit:
            case SetOnce():
                rule = f"!has(oldSelf.{name}) || (has(self.{name}) && {new} == {old})"
                message = "may not be changed or removed once set"
            case NeverUnset():
                rule = f"!has(oldSelf.{name}) || has(self.{name})"
                message = "may not be removed once set"
            case NeverDecreases():
                rule = f"!has(oldSelf.{name}) || !has(self.{name}) || {new} >= {old}"
                message = "may not be decreased"
            case _:
                continue
        rules.append(_Rule(name=limit.rule, rule=rule, message=message, field=name))
    return rules


def _values(name: str, *, time: bool, new: str = "self", old: str = "oldSelf") -> tuple[str, str]:
    """A field of two objects, ready to compare."""
    cut = "int({})" if time else "{}"
    return cut.format(f"{new}.{name}"), cut.format(f"{old}.{name}")


def _listed(values: Iterable[str]) -> str:
    return "[" + ", ".join(f"'{value}'" for value in sorted(values)) + "]"


def _is(item: str, *states: str) -> str:
    """Whether a target responder has one of ``states``."""
    return f"(has({item}.state) && {item}.state in {_listed(states)})"


def _has_status(condition: str, status: ConditionStatus) -> str:
    return f"(has({condition}.status) && {condition}.status == '{status}')"


def _same(new: str, old: str, name: str, *, time: bool = False) -> str:
    """Whether a field is equal in two objects; unset equals unset."""
    left, right = _values(name, time=time, new=new, old=old)
    return f"(has({new}.{name}) ? has({old}.{name}) && {left} == {right} : !has({old}.{name}))"


def _same_report(new: str, old: str) -> str:
    """Whether a responder's entry is unchanged."""
    fields = {info.alias or name: info for name, info in ResponderStatus.model_fields.items()}
    return " && ".join(
        _same(new, old, name, time=_unwrap(info)[0] is datetime) for name, info in fields.items()
    )


def _same_names(new: str, old: str) -> str:
    """Whether a list has as many entries as another one, and all its names."""
    names = ", ".join(f"{items}.map(x, x.name)" for items in (new, old))
    return f"(size({new}) == size({old}) && sets.contains({names}))"


def _twin(of: str, condition: str) -> str:
    """Whether the entry ``of`` the stored list fulfils ``condition`` as ``n`` in the new one."""
    return f"self.targetResponders.exists(n, n.name == {of}.name && {condition})"


def _may_start(item: str) -> str:
    """Whether a target responder has a state that an Inactive one can reach."""
    return _is(item, *TRANSITIONS[ResponderState.INACTIVE])


_ACTIVE: Final = ResponderState.ACTIVE
_INACTIVE: Final = ResponderState.INACTIVE
_FINAL_TYPES: Final = _listed(FINAL_CONDITIONS)

_IS_FINAL: Final = f"""
    (has(self.conditions) && self.conditions.exists(c,
      c.type in {_FINAL_TYPES} && {_has_status("c", ConditionStatus.TRUE)}))
"""
_IS_ACTIVE: Final = f"self.targetResponders.exists(a, {_is('a', _ACTIVE)})"
# Natively states and reports are not judged where a stored list is too long or repeats a name.
_IS_READABLE: Final = " && ".join(
    f"has({items}) && size({items}) <= {MAX_TARGET_RESPONDERS} "
    f"&& {items}.all(a, {items}.exists_one(b, b.name == a.name))"
    for items in ("self.targetResponders", "self.responders")
)
_WAS_INITIALISED: Final = "(has(oldSelf.targetResponders) && size(oldSelf.targetResponders) > 0)"
# Comes first in the rules below: few writes move anybody, and the rest costs milliseconds.
_IS_UNMOVED: Final = f"""
    ({_WAS_INITIALISED} && has(self.targetResponders)
      && self.targetResponders == oldSelf.targetResponders)
"""
# Without all priorities nobody knows the order of the stored list.
_WAS_ORDERED: Final = f"({_WAS_INITIALISED} && oldSelf.targetResponders.all(o, has(o.priority)))"
_WAS_ACTIVE: Final = (
    f"({_WAS_ORDERED} && oldSelf.targetResponders.exists_one(a, {_is('a', _ACTIVE)}))"
)
_WAS_IDLE: Final = f"({_WAS_ORDERED} && !oldSelf.targetResponders.exists(a, {_is('a', _ACTIVE)}))"

_FIXED_LISTS: Final = (
    _Rule(
        name="fixed-target-responders",
        rule=f"""
            {_IS_UNMOVED} || !{_WAS_INITIALISED} || (has(self.targetResponders)
              && {_same_names("self.targetResponders", "oldSelf.targetResponders")})
        """,
        message="must keep the number and the names of its entries",
        field="targetResponders",
    ),
    _Rule(
        name="matching-responders",
        rule=f"""
            has(self.targetResponders) && size(self.targetResponders) > 0
              ? has(self.responders) && {_same_names("self.responders", "self.targetResponders")}
              : !has(self.responders) || size(self.responders) == 0
        """,
        message="must have exactly the names of status.targetResponders",
        field="responders",
    ),
)

_FINAL_CONDITIONS: Final = _Rule(
    name="final-conditions",
    rule=f"""
        !has(oldSelf.conditions) || oldSelf.conditions.all(o,
          !(o.type in {_FINAL_TYPES} && {_has_status("o", ConditionStatus.TRUE)})
          || (has(self.conditions) && self.conditions.exists(n, n.type == o.type
            && !{_has_status("n", ConditionStatus.FALSE)} && {_same("n", "o", "reason")})))
    """,
    message=f"a true {' or '.join(FINAL_CONDITIONS)} must stay True and keep its reason",
    field="conditions",
)

# The state machine of `rules.states.expected_states`, as far as priorities tell the order. Only
# what no later write could repair: an eviction that gets past these would be stuck for ever.
_STATE_MACHINE: Final = (
    _Rule(
        name="responder-states",
        rule=f"""
            {_WAS_INITIALISED} || !has(self.targetResponders) || size(self.targetResponders) == 0
              || (self.targetResponders.all(n, {_is("n", _ACTIVE, _INACTIVE)}) && ({_IS_FINAL}
                || self.targetResponders.exists(a, {_is("a", _ACTIVE)}
                  && self.targetResponders.all(n,
                    !has(n.priority) || !has(a.priority) || n.priority <= a.priority))))
        """,
        message="must start with the highest priority 'Active' and everybody else 'Inactive'",
        field="targetResponders",
    ),
    _Rule(
        name="responder-states",
        rule=f"""
            {_IS_UNMOVED} || !{_WAS_ACTIVE} || !({_IS_READABLE}) || oldSelf.targetResponders.all(o,
              {_is("o", _ACTIVE)} ? {_twin("o", _is("n", *TRANSITIONS[_ACTIVE]))}
              : oldSelf.targetResponders.exists(a, {_is("a", _ACTIVE)} && a.priority < o.priority)
              ? {_twin("o", _same("n", "o", "state"))}
              : {_twin("o", f"({_may_start('n')} || {_same('n', 'o', 'state')})")})
        """,
        message="must keep the states of processed entries, and may move the others only from "
        "'Inactive' to 'Active' to a processed state",
        field="targetResponders",
    ),
    _Rule(
        name="responder-states",
        rule=f"""
            {_IS_UNMOVED} || !{_WAS_ACTIVE} || !({_IS_READABLE}) || {_IS_FINAL} || {_IS_ACTIVE}
              || !oldSelf.targetResponders.exists(a, {_is("a", _ACTIVE)}
                && oldSelf.targetResponders.exists(o, o.priority < a.priority))
        """,
        message="must make the next entry 'Active' when one leaves 'Active'",
        field="targetResponders",
    ),
    _Rule(
        name="responder-states",
        rule=f"""
            {_IS_UNMOVED} || !{_WAS_IDLE} || !({_IS_READABLE}) || (!{_IS_ACTIVE}
              && (!({_IS_FINAL} || oldSelf.targetResponders.all(o, {_is("o", *PROCESSED)}))
                || oldSelf.targetResponders.all(o, {_twin("o", _same("n", "o", "state"))})))
        """,
        message="may not move when nobody is 'Active' any more",
        field="targetResponders",
    ),
    _Rule(
        name="reported-completion",
        rule=f"""
            {_IS_UNMOVED} || !({_IS_READABLE}) || self.targetResponders.all(t,
              !{_is("t", ResponderState.COMPLETED)} || self.responders.exists(r,
                r.name == t.name && has(r.completionTime)))
        """,
        message="a 'Completed' entry must have a completionTime in status.responders",
        field="targetResponders",
    ),
)

_ACTIVE_REPORTS: Final = _Rule(
    name="active-reports",
    rule=f"""
        !has(oldSelf.responders) || !has(self.responders) || oldSelf.responders.all(o,
          o in self.responders || !has(self.targetResponders)
          || self.targetResponders.exists(t, t.name == o.name && {_is("t", _ACTIVE)})
          || self.responders.all(n, n.name != o.name || ({_same_report("n", "o")})))
    """,
    message="an entry may change only while its responder is 'Active'",
    field="responders",
)


def _after_start(rule_name: str, name: str) -> _Rule:
    """A time that changes must not be before the start."""
    return _Rule(
        name=rule_name,
        # Behind an optional API servers forget the formats: a time is a text there.
        rule=f"""
            !has(self.{name}) || (has(self.startTime) && int(self.{name}) >= int(self.startTime))
              || (oldSelf.hasValue() && has(oldSelf.value().{name})
                && int(self.{name}) == int(timestamp(dyn(oldSelf.value().{name}))))
        """,
        message="may not be set without startTime or before it",
        field=name,
        optional_old=True,
    )


_HEARTBEAT: Final = _Rule(
    name="heartbeat-times",
    rule="""
        !has(oldSelf.heartbeatTime) || (has(self.heartbeatTime)
          && int(self.heartbeatTime) >= int(oldSelf.heartbeatTime))
    """,
    message="may not be decreased or removed",
    field="heartbeatTime",
)

_PRIORITY_BAND: Final = _Rule(
    name="responder-priorities",
    rule=f"""
        !has(self.priority) || self.priority < 0 || (self.name == '{EVICTOR}'
          ? self.priority == {EVICTOR_PRIORITY} : self.priority >= {RESERVED_PRIORITY_END})
    """,
    message=f"must be at least {RESERVED_PRIORITY_END}, or {EVICTOR_PRIORITY} for '{EVICTOR}'",
    field="priority",
)

_SINGLE_ACTIVE: Final = _Rule(
    name="responder-states",
    rule=f"size(self.filter(a, {_is('a', _ACTIVE)})) <= 1",
    message="may not have more than one 'Active' entry",
)

_BEHAVIOURS: Final[Mapping[type[BaseModel], Sequence[_Rule]]] = {
    EvictionStatus: (_FINAL_CONDITIONS, *_FIXED_LISTS, *_STATE_MACHINE, _ACTIVE_REPORTS),
    TargetResponder: (_PRIORITY_BAND,),
    ResponderStatus: (
        _HEARTBEAT,
        _after_start("heartbeat-times", "heartbeatTime"),
        _after_start("expected-completion-times", "expectedCompletionTime"),
        _after_start("completion-times", "completionTime"),
    ),
}
_LIST_BEHAVIOURS: Final[Mapping[tuple[type[BaseModel], str], Sequence[_Rule]]] = {
    (EvictionStatus, "targetResponders"): (_SINGLE_ACTIVE,),
}


# Prose

_API_VERSION: Final = f"The version of the API: {GROUP}/{VERSION}."
_TARGET: Final = "What is to be evicted. Required; can't be changed."
_CONDITIONS: Final = (
    "How the eviction stands. TargetEvicted says whether the target is gone, Failed whether nobody "
    "tries any more. At most {limit} entries."
)
_OBSERVED_GENERATION: Final = (
    "The metadata.generation that this status speaks about. At least 1; never decreases and is "
    "never removed."
)
_INTENT: Final = (
    "Eviction asks for the target to go; Withdrawn no longer does. When every requester of a "
    "target has withdrawn, the eviction is canceled."
)
_KEY_FORM: Final = "of the form <domain>/<name>, such as db.acme.io/failover"

_DESCRIPTIONS: Final[Mapping[type[BaseModel], Mapping[str, str]]] = {
    EvictionRequest: {
        "": "Somebody asks for a pod to be evicted gracefully. All requests for the same target "
        "share one Eviction; deleting a request withdraws it.",
        "apiVersion": _API_VERSION,
        "kind": "The kind of this object: EvictionRequest.",
    },
    EvictionRequestSpec: {
        "": "Who wants which target gone.",
        "target": _TARGET,
        "requester": f"Who asks, {_KEY_FORM}. Domains below k8s.io and kubernetes.io are "
        "reserved. Required; can't be changed.",
        "intent": f"What the requester wants. {_INTENT} Required.",
    },
    EvictionRequestStatus: {
        "": "What has become of the request. Written by the controller.",
        "conditions": f"{_CONDITIONS.format(limit=MAX_CONDITIONS)} They may go back when the "
        "target is requested again.",
        "observedGeneration": _OBSERVED_GENERATION,
    },
    Eviction: {
        "": "The one process that evicts a target. The controller creates it for the "
        "EvictionRequests of a target. Responders act one after another, highest priority first; "
        "each reports in its own entry of status.responders while its state is Active, and one "
        "that stays silent for 20 minutes is passed over.",
        "apiVersion": _API_VERSION,
        "kind": "The kind of this object: Eviction.",
    },
    EvictionSpec: {"": "What the eviction is about.", "target": _TARGET},
    EvictionStatus: {
        "": "How far the eviction has come. Written by the controller, except for the entries of "
        "responders.",
        "conditions": f"{_CONDITIONS.format(limit=MAX_CONDITIONS)} Either of them is final once "
        "it is True.",
        "observedGeneration": _OBSERVED_GENERATION,
        "requesters": "Everybody who asked, also those who have withdrawn. Where there is no room "
        "for all, those who have withdrawn go first.",
        "targetResponders": "Who responds, with priority and state. At most one is Active. The "
        "names are fixed once they are set.",
        "responders": "What each target responder reports: as many entries as targetResponders, "
        "with the same names. An entry changes only while its responder is Active.",
    },
    Target: {
        "": "Exactly one object to evict.",
        "pod": "A pod in the same namespace. Pods of a PodGroup can't be evicted this way.",
    },
    PodReference: {
        "": "One pod, and no other one of the same name.",
        "name": "Name of the pod.",
        "uid": "metadata.uid of the pod, in lower case.",
    },
    Requester: {
        "": "Somebody who asked for the eviction.",
        "name": f"Who asked, {_KEY_FORM}. Unique in the list.",
        "intent": f"What they want now. {_INTENT}",
    },
    TargetResponder: {
        "": "A responder's place in the order, and its state.",
        "name": f"Who responds, {_KEY_FORM}. Unique in the list.",
        "priority": f"Higher ones act first; equal ones in the order of their domains, read from "
        f"the top. From {RESERVED_PRIORITY_END} to {MAX_PRIORITY}; the pod's own controller takes "
        f"{MANAGING_PRIORITY}, {EVICTOR} has {EVICTOR_PRIORITY}. Required; can't be changed.",
        "state": "Inactive waits for its turn. Active acts. Interrupted stayed silent. Canceled "
        "was stopped because nobody wants the eviction any more. Completed has reported a "
        "completionTime.",
    },
    ResponderStatus: {
        "": "What one responder reports.",
        "name": f"Who reports, {_KEY_FORM}. Unique in the list.",
        "startTime": "When the responder became Active. Set by the controller, once.",
        "heartbeatTime": "When the responder last showed life. The present when set; leave at "
        "least 20 seconds between two.",
        "expectedCompletionTime": "When the responder expects to complete; not in the past when "
        "set.",
        "completionTime": "When the responder stopped working on the eviction, whether or not the "
        "target is gone. The present when set; set once.",
        "message": f"What people should know. At most {MAX_MESSAGE} characters.",
    },
    Condition: {
        "": "One aspect of the state.",
        "type": "Which aspect, such as TargetEvicted. Unique in the list.",
        "status": "True, False or Unknown.",
        "observedGeneration": "The metadata.generation that the condition speaks about.",
        "lastTransitionTime": "When status changed last.",
        "reason": "Why, in one word for programs.",
        "message": "Why, in words for people. May be empty.",
    },
}


def _column(
    name: str, path: str, description: str, *, type_: str = "string", wide: bool = False
) -> Schema:
    return {
        "name": name,
        "type": type_,
        "description": description,
        **({"priority": 1} if wide else {}),
        "jsonPath": path,
    }


_TRUE_CONDITION: Final = f'.status.conditions[?(@.status=="{ConditionStatus.TRUE}")]'
_ACTIVE_RESPONDER: Final = f'.status.targetResponders[?(@.state=="{_ACTIVE}")]'
_TARGET_COLUMN: Final = _column("Target", ".spec.target.pod.name", "The pod to evict.")
_STATUS_COLUMN: Final = _column(
    "Status", f"{_TRUE_CONDITION}.type", "The first condition that is True."
)
_REASON_COLUMN: Final = _column(
    "Reason", f"{_TRUE_CONDITION}.reason", "Why that condition is True.", wide=True
)
_AGE_COLUMN: Final = _column(
    "Age", ".metadata.creationTimestamp", "Time since the object was created.", type_="date"
)
# As close to the native columns as JSONPath gets: it takes the first match, and can neither count
# nor follow a name from one list into the other.
_REQUEST_COLUMNS: Final = (
    _TARGET_COLUMN,
    _STATUS_COLUMN,
    _column("Requester", ".spec.requester", "Who asks."),
    _column("Intent", ".spec.intent", "What the requester wants."),
    _AGE_COLUMN,
    _REASON_COLUMN,
)
_EVICTION_COLUMNS: Final = (
    _TARGET_COLUMN,
    _STATUS_COLUMN,
    _column("Active Responder", f"{_ACTIVE_RESPONDER}.name", "Whose turn it is."),
    _column(
        "Responder Priority",
        f"{_ACTIVE_RESPONDER}.priority",
        "The place of the active responder in the order; higher ones come first.",
        type_="integer",
    ),
    _column(
        "Requesters",
        f'.status.requesters[?(@.intent=="{Intent.EVICTION}")].name',
        "The first of those who want the eviction.",
    ),
    _AGE_COLUMN,
    _column(
        "Expected Finish",
        ".status.responders[?(@.expectedCompletionTime)].expectedCompletionTime",
        "The estimate of the first responder that gave one.",
        wide=True,
    ),
    _REASON_COLUMN,
)
