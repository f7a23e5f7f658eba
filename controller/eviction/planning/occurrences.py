"""What has happened to an eviction, in the words of a Kubernetes Event.

Read off from a write and what was stored before it, so that everything is told once: by whoever has
made it so. Pure.
"""

from collections.abc import Iterator
from typing import Final

from cluster.event import Level, Occurrence
from controller.eviction.planning.conditions import CANCELED
from rules.api import (
    EVICTOR,
    ConditionStatus,
    ConditionType,
    EvictionStatus,
    ResponderState,
    TargetResponder,
)
from rules.states import HEARTBEAT_DEADLINE, is_final


def refused(refusal: str) -> Occurrence:
    """The API server does not evict the pod at present."""
    return Occurrence("EvictionRefused", refusal, is_warning=True)


def occurrences(before: EvictionStatus, after: EvictionStatus) -> Iterator[Occurrence]:
    """What a write has made of an Eviction: who begins, who has stopped, and how it has ended."""
    states = {responder.name: responder.state for responder in before.target_responders}
    has_ended = is_final(after.conditions, ())
    for responder in after.target_responders:
        if states.get(responder.name) != responder.state:
            yield from _step(responder, has_ended=has_ended)
    if has_ended and not is_final(before.conditions, ()):
        yield from _ending(after)


def _step(responder: TargetResponder, *, has_ended: bool) -> Iterator[Occurrence]:
    name = responder.name
    level = Level.ALL if name == EVICTOR else Level.NOTABLE
    if responder.state == ResponderState.ACTIVE:
        yield Occurrence("ResponderActive", f"It is the turn of responder {name}.", level)
    elif responder.state == ResponderState.COMPLETED:
        yield Occurrence("ResponderCompleted", f"Responder {name} has completed.", level)
    elif responder.state == ResponderState.INTERRUPTED and has_ended:
        message = f"The eviction has ended before responder {name} reported its completion."
        yield Occurrence("ResponderInterrupted", message, level)
    elif responder.state == ResponderState.INTERRUPTED:
        message = f"Responder {name} is passed over after {_MINUTES} minutes of silence."
        yield Occurrence("ResponderInterrupted", message, is_warning=True)


_MINUTES: Final = HEARTBEAT_DEADLINE.seconds // 60


def _ending(after: EvictionStatus) -> Iterator[Occurrence]:
    """How the eviction has ended; that nobody wants it any more is no failure."""
    own = any(responder.name != EVICTOR for responder in after.target_responders)
    level = Level.NOTABLE if own else Level.ALL
    for condition in after.conditions:
        words = f"{condition.reason}: {condition.message}"
        if condition.status != ConditionStatus.TRUE:
            continue
        if condition.type == ConditionType.TARGET_EVICTED:
            yield Occurrence("EvictionSucceeded", words, level)
        elif condition.reason == CANCELED.failed.reason:
            yield Occurrence("EvictionCanceled", words, level)
        elif condition.type == ConditionType.FAILED:
            yield Occurrence("EvictionFailed", words, is_warning=True)
