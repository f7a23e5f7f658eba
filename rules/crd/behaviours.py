"""CEL rules that stand for behaviours of an Eviction's status.

They may read no optional field without ``has`` and must hold for every stored object; see
:mod:`rules.crd`.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from msgspec import structs

from rules.api import (
    EVICTOR,
    EVICTOR_PRIORITY,
    MAX_TARGET_RESPONDERS,
    ApiType,
    ConditionStatus,
    EvictionStatus,
    ResponderState,
    ResponderStatus,
    TargetResponder,
    Time,
)
from rules.constraints import (
    RESERVED_PRIORITY_END,
)
from rules.crd.annotations import unwrap
from rules.crd.cel import CelRule, values_of
from rules.states import FINAL_CONDITIONS, PROCESSED, TRANSITIONS


def _listed(values: Iterable[str]) -> str:
    return "[" + ", ".join(f"'{value}'" for value in sorted(values)) + "]"


def _is(item: str, *states: str) -> str:
    """Whether a target responder has one of ``states``."""
    return f"(has({item}.state) && {item}.state in {_listed(states)})"


def _has_status(condition: str, status: ConditionStatus) -> str:
    return f"(has({condition}.status) && {condition}.status == '{status}')"


def _same(new: str, old: str, name: str, *, time: bool = False) -> str:
    """Whether a field is equal in two objects; unset equals unset."""
    left, right = values_of(name, time=time, new=new, old=old)
    return f"(has({new}.{name}) ? has({old}.{name}) && {left} == {right} : !has({old}.{name}))"


def _same_report(new: str, old: str) -> str:
    """Whether a responder's entry is unchanged."""
    fields = {info.encode_name: info for info in structs.fields(ResponderStatus)}
    return " && ".join(
        _same(new, old, name, time=unwrap(info)[0] is Time) for name, info in fields.items()
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
    CelRule(
        name="fixed-target-responders",
        rule=f"""
            {_IS_UNMOVED} || !{_WAS_INITIALISED} || (has(self.targetResponders)
              && {_same_names("self.targetResponders", "oldSelf.targetResponders")})
        """,
        message="must keep the number and the names of its entries",
        field="targetResponders",
    ),
    CelRule(
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

_FINAL_CONDITIONS: Final = CelRule(
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
    CelRule(
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
    CelRule(
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
    CelRule(
        name="responder-states",
        rule=f"""
            {_IS_UNMOVED} || !{_WAS_ACTIVE} || !({_IS_READABLE}) || {_IS_FINAL} || {_IS_ACTIVE}
              || !oldSelf.targetResponders.exists(a, {_is("a", _ACTIVE)}
                && oldSelf.targetResponders.exists(o, o.priority < a.priority))
        """,
        message="must make the next entry 'Active' when one leaves 'Active'",
        field="targetResponders",
    ),
    CelRule(
        name="responder-states",
        rule=f"""
            {_IS_UNMOVED} || !{_WAS_IDLE} || !({_IS_READABLE}) || (!{_IS_ACTIVE}
              && (!({_IS_FINAL} || oldSelf.targetResponders.all(o, {_is("o", *PROCESSED)}))
                || oldSelf.targetResponders.all(o, {_twin("o", _same("n", "o", "state"))})))
        """,
        message="may not move when nobody is 'Active' any more",
        field="targetResponders",
    ),
    CelRule(
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

_ACTIVE_REPORTS: Final = CelRule(
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


def _after_start(rule_name: str, name: str) -> CelRule:
    """A time that changes must not be before the start."""
    return CelRule(
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


_HEARTBEAT: Final = CelRule(
    name="heartbeat-times",
    rule="""
        !has(oldSelf.heartbeatTime) || (has(self.heartbeatTime)
          && int(self.heartbeatTime) >= int(oldSelf.heartbeatTime))
    """,
    message="may not be decreased or removed",
    field="heartbeatTime",
)

_PRIORITY_BAND: Final = CelRule(
    name="responder-priorities",
    rule=f"""
        !has(self.priority) || self.priority < 0 || (self.name == '{EVICTOR}'
          ? self.priority == {EVICTOR_PRIORITY} : self.priority >= {RESERVED_PRIORITY_END})
    """,
    message=f"must be at least {RESERVED_PRIORITY_END}, or {EVICTOR_PRIORITY} for '{EVICTOR}'",
    field="priority",
)

_SINGLE_ACTIVE: Final = CelRule(
    name="responder-states",
    rule=f"size(self.filter(a, {_is('a', _ACTIVE)})) <= 1",
    message="may not have more than one 'Active' entry",
)

BEHAVIOURS: Final[Mapping[type[ApiType], Sequence[CelRule]]] = {
    EvictionStatus: (_FINAL_CONDITIONS, *_FIXED_LISTS, *_STATE_MACHINE, _ACTIVE_REPORTS),
    TargetResponder: (_PRIORITY_BAND,),
    ResponderStatus: (
        _HEARTBEAT,
        _after_start("heartbeat-times", "heartbeatTime"),
        _after_start("expected-completion-times", "expectedCompletionTime"),
        _after_start("completion-times", "completionTime"),
    ),
}
LIST_BEHAVIOURS: Final[Mapping[tuple[type[ApiType], str], Sequence[CelRule]]] = {
    (EvictionStatus, "targetResponders"): (_SINGLE_ACTIVE,),
}
