"""What is measured of evictions: how they ended, how long that took, and for whom they wait.

Read off from a write and what was stored before it, as Events are, so that everything is counted
once: by whoever has made it so. All times are the API server's. Pure.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final, NamedTuple

from controller.eviction.planning import conditions
from controller.evictor.planning import Answer, remembered
from rules.api import (
    EVICTOR,
    ConditionStatus,
    ConditionType,
    Eviction,
    EvictionStatus,
    ResponderState,
)
from rules.states import PROCESSED, is_final


class Outcome(StrEnum):
    """What an eviction has come to."""

    EVICTED = "evicted"
    CANCELED = "canceled"
    """Nobody wanted it any more."""
    FAILED = "failed"


class Kind(StrEnum):
    """Whose turn it was. Names of other responders are made up by whoever runs them."""

    EVICTOR = "evictor"
    OTHER = "other"


class Waiting(StrEnum):
    """What an eviction under way waits for."""

    START = "NotStarted"
    """Nobody has had a turn, for instance because the pod is not known yet."""
    RESPONDER = "ResponderActive"
    EVICTOR = "EvictorActive"
    """The pod has been told to end, or is about to be."""
    REFUSED = "EvictionRefused"
    """The API server does not let the pod go, mostly because of a disruption budget."""


class End(NamedTuple):
    """An eviction has come to its end."""

    outcome: Outcome
    reason: str
    """That of the condition that is True."""
    took: timedelta | None
    """Since the Eviction was created."""


class Turn(NamedTuple):
    """A responder's turn is over."""

    kind: Kind
    state: str
    """The one that the responder has been left in, see :data:`rules.states.PROCESSED`."""
    took: timedelta | None
    """Since its start."""


_SUCCESSES: Final = (conditions.POD_DELETED, conditions.POD_TERMINAL)
REASONS: Final = (
    *(success.target_evicted.reason for success in _SUCCESSES),
    conditions.CANCELED.failed.reason,
    conditions.NO_FURTHER_RESPONDER.failed.reason,
    conditions.EVICTION_INVALID,
    conditions.DEADLINE_EXCEEDED,
)
"""All with which the controller ends evictions."""


def end(before: Eviction, after: Eviction) -> End | None:
    """How a write has ended an Eviction that was ``before``; None if it has not."""
    if is_final(before.status.conditions, ()):
        return None
    for condition in after.status.conditions:
        if condition.status != ConditionStatus.TRUE or condition.type not in _OUTCOMES:
            continue
        took = _span(before.metadata.creation_timestamp, condition.last_transition_time)
        is_canceled = condition.reason == conditions.CANCELED.failed.reason
        outcome = Outcome.CANCELED if is_canceled else _OUTCOMES[condition.type]
        return End(outcome, condition.reason, took)
    return None


_OUTCOMES: Final[dict[str, Outcome]] = {
    ConditionType.TARGET_EVICTED: Outcome.EVICTED,
    ConditionType.FAILED: Outcome.FAILED,
}


def turns(before: EvictionStatus, after: EvictionStatus, now: datetime) -> Iterator[Turn]:
    """The turns that a write at ``now`` has ended."""
    states = {responder.name: responder.state for responder in before.target_responders}
    starts = {report.name: report.start_time for report in before.responders}
    for responder in after.target_responders:
        was = states.get(responder.name)
        if was == ResponderState.ACTIVE and responder.state in PROCESSED:
            kind = Kind.EVICTOR if responder.name == EVICTOR else Kind.OTHER
            yield Turn(kind, responder.state, _span(starts.get(responder.name), now))


def _span(start: datetime | None, end: datetime | None) -> timedelta | None:
    """How long it took; nothing takes less than no time, whoever has set the start."""
    return max(end - start, timedelta()) if start and end else None


def waiting(eviction: Eviction) -> Waiting:
    """What ``eviction``, which has not ended, waits for."""
    states = {responder.name: responder.state for responder in eviction.status.target_responders}
    if states.get(EVICTOR) == ResponderState.ACTIVE:
        is_refused = remembered(eviction).answer is Answer.REFUSED
        return Waiting.REFUSED if is_refused else Waiting.EVICTOR
    return Waiting.RESPONDER if ResponderState.ACTIVE in states.values() else Waiting.START
