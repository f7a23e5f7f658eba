"""What a planned write says for good, and what must be known for that.

Nobody takes back that a pod is gone, or that nobody wanted it gone. A view may be late: a watch can
be silent for a while, and whoever has just begun to lead may have seen less than the one before.
So that what such a write rests on is read from the API server once more, unless the end of the very
object was seen. See ADR 36.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, TypeAlias

from controller.eviction.planning import conditions
from controller.eviction.planning.snapshot import Snapshot
from controller.eviction.planning.target import Target
from controller.eviction.planning.writes import EVICTION_REQUEST_KIND, Write
from rules.api import ConditionStatus, Eviction, EvictionRequest, Intent, PodReference


@dataclass(frozen=True, slots=True)
class PodIsGone:
    """There is no pod of that name and UID (any more)."""

    pod: PodReference


@dataclass(frozen=True, slots=True)
class RequestIsVoid:
    """The EvictionRequest of that name and UID is gone, withdrawn, or being deleted.

    And nobody else had come by then who wants the pod gone.
    """

    name: str
    uid: str
    pod: PodReference


@dataclass(frozen=True, slots=True)
class NobodyAsks:
    """No EvictionRequest of the namespace wants that pod gone."""

    pod: PodReference


Claim: TypeAlias = PodIsGone | RequestIsVoid | NobodyAsks

_GONE: Final = (conditions.POD_DELETED.target_evicted.reason, conditions.EVICTION_INVALID)
_CANCELED: Final = conditions.CANCELED.failed.reason


def claims_of(
    write: Write, about: Eviction | EvictionRequest, snapshot: Snapshot
) -> tuple[Claim, ...]:
    """What must be true if ``write``, planned from ``snapshot`` for ``about``, is to be sent.

    What was seen needs no proof: a pod that has ended never runs again.
    """
    pod = about.spec.target.pod
    reason = _end(write)
    if pod is None or reason is None:
        return ()
    target = Target.find(snapshot, write.key.namespace, pod)
    if reason in _GONE and target.pod is None and target.mismatch is None:
        return (PodIsGone(pod),)
    if reason == _CANCELED and isinstance(about, Eviction):
        return _void(about, pod, snapshot.requests_of(write.key.namespace, pod))
    return ()


def _end(write: Write) -> str | None:
    """The reason of the condition that turns True; None where none does."""
    for condition in write.apply.get("status", {}).get("conditions", ()):
        if condition["status"] == ConditionStatus.TRUE:
            return str(condition["reason"])
    return None


def _void(
    eviction: Eviction, pod: PodReference, requests: Iterable[EvictionRequest]
) -> tuple[Claim, ...]:
    """Every request that is known of is void; where one is known by its name only, all are read."""
    requests = tuple(requests)
    known = {request.metadata.uid: request.metadata.name for request in requests}
    known |= {
        owner.uid: owner.name
        for owner in eviction.metadata.owner_references
        if owner.kind == EVICTION_REQUEST_KIND
    }
    heard = {request.spec.requester for request in requests}
    silent = any(
        requester.intent == Intent.EVICTION and requester.name not in heard
        for requester in eviction.status.requesters
    )
    if silent or not known:
        return (NobodyAsks(pod),)
    return tuple(RequestIsVoid(name, uid, pod) for uid, name in sorted(known.items()))
