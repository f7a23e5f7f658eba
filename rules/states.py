"""The responders' state machine: order, states, deadlines. Shared with the controller.

Responders are worked off one after another in :func:`processing_order`. Exactly one is Active at
a time; when it leaves Active for a processed state the next one becomes Active in the same write.
A *final* write (a true TargetEvicted or Failed condition) ends the process: nobody is Active any
more. Source: ``EvictionStatus`` in v1alpha1/types.go and pkg/apis/lifecycle/validation, 1.37.2.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from msgspec import Struct

from rules.api import (
    MAX_TARGET_RESPONDERS,
    Condition,
    ConditionStatus,
    ConditionType,
    EvictionStatus,
    ResponderState,
    ResponderStatus,
    TargetResponder,
)
from rules.recall import recalled
from rules.times import format_time

HEARTBEAT_DEADLINE: Final = timedelta(minutes=20)
"""Silence after which a responder may be passed over (types.go, ``state``)."""
CLOCK_SKEW: Final = timedelta(seconds=30)
"""How far clocks of different parties may differ; an instant is "present" within less than it."""
MAX_EXPECTED_COMPLETION: Final = timedelta(days=10 * 365)
"""How far ahead a responder may expect to complete."""
HEARTBEAT_SPACING: Final = timedelta(seconds=20)
"""Responders should not report more often (types.go, ``heartbeatTime``)."""

FINAL_CONDITIONS: Final = (ConditionType.TARGET_EVICTED, ConditionType.FAILED)
"""Either of them, when True, ends an eviction."""

INACTIVE: Final[frozenset[str]] = frozenset({ResponderState.INACTIVE})
ACTIVE: Final[frozenset[str]] = frozenset({ResponderState.ACTIVE})
PROCESSED: Final[frozenset[str]] = frozenset(
    {ResponderState.INTERRUPTED, ResponderState.CANCELED, ResponderState.COMPLETED}
)
"""States that a responder reaches from Active and never leaves."""

TRANSITIONS: Final[Mapping[str, frozenset[str]]] = {
    ResponderState.INACTIVE: INACTIVE | ACTIVE,
    ResponderState.ACTIVE: ACTIVE | PROCESSED,
    **{state: frozenset({state}) for state in PROCESSED},
}
"""Where each state can lead, staying included; who may move when is :func:`expected_states`."""


def processing_order(responders: Iterable[TargetResponder]) -> list[TargetResponder]:
    """``responders`` in the order in which they become Active.

    Priority descending (unset last); ties by domain labels from the top one down, a parent domain
    before its children; the key last.
    """
    return sorted(responders, key=_rank)


def _rank(responder: TargetResponder) -> tuple[bool, int, tuple[list[str], str]]:
    priority = responder.priority
    return priority is None, -(priority or 0), _labels(responder.name)


@recalled
def _labels(name: str) -> tuple[list[str], str]:
    domain, _, key = name.partition("/")
    return domain.split(".")[::-1], key


def condition_of(conditions: Iterable[Condition], type_: str) -> Condition | None:
    """The first condition of that type, which is the one everybody reads."""
    for condition in conditions:
        if condition.type == type_:
            return condition
    return None


def is_true(conditions: Iterable[Condition], type_: str) -> bool:
    """Whether the condition of that type is True."""
    condition = condition_of(conditions, type_)
    return condition is not None and condition.status == ConditionStatus.TRUE


def reverted_conditions(new: Sequence[Condition], old: Sequence[Condition]) -> list[Condition]:
    """Stored final conditions that ``new`` drops, sets to False, or gives another reason."""
    reverted = []
    for stored in old:
        if stored.status == ConditionStatus.TRUE and stored.type in FINAL_CONDITIONS:
            now = condition_of(new, stored.type)
            if now is None or now.status == ConditionStatus.FALSE or now.reason != stored.reason:
                reverted.append(stored)
    return reverted


def is_final(new: Sequence[Condition], old: Sequence[Condition]) -> bool:
    """Whether the eviction has ended; a forbidden revert does not open it again."""
    return (
        is_true(new, ConditionType.TARGET_EVICTED)
        or is_true(new, ConditionType.FAILED)
        or bool(reverted_conditions(new, old))
    )


class Expectation(NamedTuple):
    """The states that one responder may have after a write, and why."""

    states: frozenset[str]
    reason: str


_TURN: Final = Expectation(ACTIVE, "this responder is next in line")
_STAYING: Final = Expectation(ACTIVE, "this responder is being waited for")
_LEAVING: Final = Expectation(PROCESSED, "this responder must reach a final state")
_ENDED: Final = Expectation(PROCESSED, "the eviction has ended")
_ENDED_BEFORE_TURN: Final = Expectation(INACTIVE, "the eviction has ended")
_WAITING: Final = Expectation(INACTIVE, "the responders before it have not been processed")


def _kept(responder: TargetResponder) -> Expectation:
    return Expectation(frozenset({responder.state}), "a processed responder keeps its state")


def expected_states(
    count: int,
    old: Sequence[TargetResponder],
    *,
    active: int | None,
    handing_over: bool,
    final: bool,
) -> list[Expectation]:
    """What ``count`` responders, in processing order, may be after a write.

    ``old`` is the stored list in processing order (empty, or of the same length), ``active`` the
    position of its Active entry, ``handing_over`` whether that entry leaves Active in this write,
    ``final`` whether the eviction has ended. Total over every combination.
    """
    waiting = [_WAITING] * count
    next_in_line = _ENDED_BEFORE_TURN if final else _TURN
    if not old:
        return [next_in_line, *waiting[1:]]
    if active is None:
        ended = final or old[-1].state in PROCESSED
        return [_kept(responder) for responder in old] if ended else waiting
    processed = [_kept(responder) for responder in old[:active]]
    if not handing_over:
        return [*processed, _ENDED if final else _STAYING, *waiting[active + 1 :]]
    return [*processed, _LEAVING, next_in_line, *waiting[active + 2 :]]


class Step(Struct, frozen=True, gc=False):
    """One target responder on its way, with all that judges it."""

    place: int
    """Its place in ``status.targetResponders``."""
    responder: TargetResponder
    report: ResponderStatus | None
    """Its entry in ``status.responders``, None where that list lacks it."""
    expectation: Expectation
    on_course: bool
    """Whether its state is one of the expected ones."""


class Progress(NamedTuple):
    """A status write read as a step of the state machine."""

    steps: Sequence[Step]
    """In processing order."""
    final: bool


def progress(new: EvictionStatus, old: EvictionStatus) -> Progress | None:
    """Read the write from ``old`` to ``new``; None where the lists allow no reading.

    That is: names added, removed or repeated, or more entries than the limit. Other rules
    refuse those, and judging states on top would only confuse.
    """
    targets, stored = new.target_responders, old.target_responders
    if targets == stored:
        targets = stored  # as in most writes: what is the same need not be read twice
    places = {responder.name: place for place, responder in enumerate(targets)}
    if len(places) != len(targets) or not 0 < len(targets) <= MAX_TARGET_RESPONDERS:
        return None
    if stored and not same_names(targets, stored):
        return None
    final = is_final(new.conditions, old.conditions)
    before = processing_order(stored)
    after = before if targets is stored else processing_order(targets)
    active = _active(before)
    handing_over = active is not None and after[active].state != ResponderState.ACTIVE
    expected = expected_states(
        len(after), before, active=active, handing_over=handing_over, final=final
    )
    reports = {report.name: report for report in new.responders}
    steps = [
        Step(
            places[responder.name],
            responder,
            reports.get(responder.name),
            expectation,
            responder.state in expectation.states,
        )
        # The last one has nobody to hand over to, which leaves one expectation over.
        for responder, expectation in zip(after, expected, strict=False)
    ]
    return Progress(steps, final)


def _active(ordered: Sequence[TargetResponder]) -> int | None:
    for position, responder in enumerate(ordered):
        if responder.state == ResponderState.ACTIVE:
            return position
    return None


def same_names(new: Sequence[TargetResponder], old: Sequence[TargetResponder]) -> bool:
    """Whether both lists have the same length and ``new`` has every name of ``old``."""
    if new is old:
        return True
    names = {responder.name for responder in new}
    return len(new) == len(old) and names.issuperset([responder.name for responder in old])


def heard_from(report: ResponderStatus) -> datetime | None:
    """When the responder last showed life: its heartbeat, else its start, else None."""
    return report.heartbeat_time or report.start_time


def is_present(instant: datetime, now: datetime) -> bool:
    """Whether ``instant`` is now, as far as clocks of different parties can agree."""
    return abs(instant - now) < CLOCK_SKEW


def silent_until(heard: datetime) -> datetime:
    """When a responder last heard from at ``heard`` may be passed over, skew granted."""
    return heard + HEARTBEAT_DEADLINE - CLOCK_SKEW


def present_detail(now: datetime) -> str:
    """What to say of an instant that is not the present."""
    seconds = int(CLOCK_SKEW.total_seconds())
    return f"must be the present time, less than {seconds} s from {format_time(now)}"
