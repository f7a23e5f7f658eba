"""Whose turn it is: the responders of an eviction, one step on.

:mod:`rules.states` says which steps are lawful; this module takes them. Every path leads from
Active to a processed state, and never back.
Source: pkg/controller/evictionrequest of Kubernetes 1.38.0-beta.0.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from enum import Enum, auto
from typing import Final, NamedTuple

from msgspec.structs import replace

from rules.api import ResponderState, ResponderStatus, TargetResponder
from rules.states import HEARTBEAT_DEADLINE, PROCESSED, heard_from

UNCOUNTED_PAUSE: Final = timedelta(minutes=1)
"""When to look again at somebody whose silence does not count yet. Our own choice."""
COMPLETION_GRACE: Final = timedelta(seconds=5)
"""What the Active responder has left to report its completion once the target is gone or terminal
(``GracefulCompletionDelay``)."""


class Situation(Enum):
    """What decides about the responders, the first that holds."""

    GONE = auto()
    """There is no such pod any more."""
    TERMINAL = auto()
    """The pod is there, but has ended."""
    CANCELED = auto()
    """The pod lives, and nobody wants it evicted any more."""
    OPEN = auto()
    """The pod lives, and somebody wants it evicted."""

    @property
    def is_evicted(self) -> bool:
        """Whether the eviction has reached its aim."""
        return self in (Situation.GONE, Situation.TERMINAL)


class Progression(NamedTuple):
    """The responders after a step, in processing order."""

    responders: tuple[TargetResponder, ...]
    requeue_after: timedelta | None = None
    """When the Active responder's time runs out; None where nobody is waited for."""
    is_exhausted: bool = False
    """Whether there was nobody left before this step."""


def progressed(
    ordered: Sequence[TargetResponder],
    reports: Mapping[str, ResponderStatus],
    situation: Situation,
    *,
    terminal_time: datetime | None,
    now: datetime,
    counts_silence: bool = True,
) -> Progression:
    """The responders ``ordered`` (in processing order) at ``now``.

    ``reports`` are their reports by name, ``terminal_time`` is when the target ended; it only
    matters where it has. Unless it ``counts_silence`` nobody is passed over while the pod lives:
    silence is counted by time, which may not be relied on (ADR 46).
    """
    responders = tuple(ordered)
    if not responders or responders[-1].state in PROCESSED:
        return Progression(responders, is_exhausted=True)
    active = _first(responders, ResponderState.ACTIVE)
    if situation == Situation.OPEN:
        turn = active if active is not None else _first(responders, ResponderState.INACTIVE)
        return _take_turn(responders, turn, reports, now, counts_silence=counts_silence)
    if active is None:
        return Progression(responders)  # whoever has not started yet need not start any more
    if situation == Situation.CANCELED:
        return Progression(_moved(responders, active, ResponderState.CANCELED))
    report = reports.get(responders[active].name)
    ended = terminal_time if terminal_time is not None else now
    return _conclude(responders, active, report, left=COMPLETION_GRACE - (now - ended))


def _take_turn(
    responders: tuple[TargetResponder, ...],
    turn: int | None,
    reports: Mapping[str, ResponderStatus],
    now: datetime,
    *,
    counts_silence: bool,
) -> Progression:
    """Keep the one at ``turn`` Active, or hand over to the next."""
    if turn is None:
        return Progression(responders)  # no lawful list; whatever is done would be refused
    report = reports.get(responders[turn].name)
    left = HEARTBEAT_DEADLINE - (now - (heard_from(report) or now) if report else timedelta())
    if not counts_silence:
        left = max(left, UNCOUNTED_PAUSE)
    if report and report.completion_time is not None:
        state = ResponderState.COMPLETED
    elif left <= timedelta():
        state = ResponderState.INTERRUPTED
    else:
        return Progression(_moved(responders, turn, ResponderState.ACTIVE), left)
    responders = _moved(responders, turn, state)
    if turn + 1 == len(responders):
        return Progression(responders)
    return Progression(_moved(responders, turn + 1, ResponderState.ACTIVE), HEARTBEAT_DEADLINE)


def _conclude(
    responders: tuple[TargetResponder, ...],
    active: int,
    report: ResponderStatus | None,
    *,
    left: timedelta,
) -> Progression:
    """End the Active one's turn, unless there is time ``left`` and it may still report."""
    if report and report.completion_time is not None:
        return Progression(_moved(responders, active, ResponderState.COMPLETED))
    if report and left > timedelta():
        return Progression(responders, left)
    return Progression(_moved(responders, active, ResponderState.INTERRUPTED))


def called_off(
    ordered: Sequence[TargetResponder], reports: Iterable[ResponderStatus], state: ResponderState
) -> tuple[TargetResponder, ...]:
    """The responders of an eviction that is broken off: nobody is Active any more.

    Who is Active gets ``state``, unless it has reported its completion.
    """
    responders = tuple(ordered)
    active = _first(responders, ResponderState.ACTIVE)
    if active is None:
        return responders
    name = responders[active].name
    if any(report.name == name and report.completion_time is not None for report in reports):
        state = ResponderState.COMPLETED
    return _moved(responders, active, state)


def _first(responders: Sequence[TargetResponder], state: ResponderState) -> int | None:
    for position, responder in enumerate(responders):
        if responder.state == state:
            return position
    return None


def _moved(
    responders: tuple[TargetResponder, ...], position: int, state: ResponderState
) -> tuple[TargetResponder, ...]:
    responder = responders[position]
    if responder.state == state:
        return responders
    moved = replace(responder, state=state)
    return (*responders[:position], moved, *responders[position + 1 :])
