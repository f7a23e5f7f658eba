"""What has happened to an eviction, in the words of a Kubernetes Event.

Read off from a write and what was stored before it, so that everything is told once: by whoever has
made it so. Pure.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from controller.planning.conditions import CANCELED
from controller.zones import Node, Zone, ZoneState, ZoneStatus
from rules.api import (
    EVICTOR,
    ConditionStatus,
    ConditionType,
    EvictionStatus,
    ResponderState,
    TargetResponder,
)
from rules.states import HEARTBEAT_DEADLINE, is_final


class Level(IntEnum):
    """How much is told; each level includes the ones before."""

    NONE = 0
    NOTABLE = 1
    """What goes wrong, and evictions of pods that have responders of their own."""
    ALL = 2
    """The course of every eviction: two Events and more for each pod that is drained."""


@dataclass(frozen=True, slots=True)
class Occurrence:
    """Something to tell people."""

    reason: str
    """In CamelCase, for machines."""
    message: str
    level: Level = Level.NOTABLE
    """From which level on it is told."""
    is_warning: bool = False


def refused(refusal: str) -> Occurrence:
    """The API server does not evict the pod at present."""
    return Occurrence("EvictionRefused", refusal, is_warning=True)


def asked_to_leave(node: Node, pods: int) -> Occurrence:
    """It is the turn of a failed node."""
    words = f"The node is {node.health}: {_pods(pods)} asked to leave."
    return Occurrence("EvictingPods", words, is_warning=True)


def tainted(node: Node, pods: int) -> Occurrence:
    """A node has taints that its pods do not tolerate, or no longer."""
    keys = ", ".join(sorted({taint.key for taint in node.taints}))
    words = f"The node has NoExecute taints ({keys}): {_pods(pods)} asked to leave."
    return Occurrence("EvictingPods", words)


def deleted_overdue(node: Node) -> Occurrence:
    """A pod was deleted that was asked to leave and had not gone in time."""
    words = f"The node {node.name} is {node.health}, and the pod did not leave in time: deleted."
    return Occurrence("DeletedOverdue", words, is_warning=True)


def may_stay(pods: int, *, is_down: bool) -> Occurrence:
    """Nobody asks any more for what was asked of the pods of a node."""
    why = "No node of the cluster is healthy" if is_down else "The node may keep them"
    return Occurrence("EvictionsWithdrawn", f"{why}: {_pods(pods)} no longer asked to leave.")


def zone_changed(zone: Zone, status: ZoneStatus) -> Occurrence:
    """A zone is in another state, or evictions there have another rate."""
    words = f"Zone {zone}: {status.state}, {status.unhealthy} of {status.nodes} nodes unhealthy"
    rate = f"at most {status.rate:g} nodes per second are evicted"
    words = f"{words}; {rate if status.rate else 'no nodes are evicted'}."
    is_normal = status.state is ZoneState.NORMAL
    return Occurrence("ZoneChanged", words, is_warning=not is_normal)


def _pods(number: int) -> str:
    return f"{number} pod is" if number == 1 else f"{number} pods are"


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
