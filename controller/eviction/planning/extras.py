"""What Usher can do beyond the reference: damping, deadlines, and the removal of what is over.

Off by default. Source of the wish: the reference starts again at once after NoFurtherResponder, and
keeps ended EvictionRequests for ever. See ADR 43, for deadlines ADR 45.
"""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from cluster.key import Key
from controller.eviction.plan import Sync
from controller.eviction.planning.conditions import NO_FURTHER_RESPONDER
from controller.eviction.planning.deadline import ended_in_time, without_repetition
from controller.eviction.planning.relevance import has_ended, relevant_eviction
from controller.eviction.planning.request import is_done
from controller.eviction.planning.snapshot import Snapshot
from controller.eviction.planning.writes import EVICTIONS, Plan
from rules.api import Condition, ConditionStatus, ConditionType, Eviction
from rules.states import FINAL_CONDITIONS, condition_of

_OFF: Final = timedelta()
_LATER: Final = timedelta(minutes=5)
"""When to ask again whether something is old, after a clock that could not tell. Our own choice."""


@dataclass(frozen=True, slots=True)
class Extras:
    """Each span zero: off."""

    damping: timedelta = _OFF
    """How long no new Eviction is made after all responders of the last one were of no avail."""
    request_ttl: timedelta = _OFF
    """How long an EvictionRequest is kept after its end."""
    orphan_ttl: timedelta = _OFF
    """How long an Eviction is kept after its end that no EvictionRequest owns or is made for."""
    deadline: timedelta = _OFF
    """How long an Eviction may take from its creation to its end."""
    trusts_clock: bool = True
    """Whether the instant can be relied on; else nothing is ended or removed because of its age."""


@dataclass(frozen=True, slots=True)
class Expiry:
    """Whether an object has outlived its use, or when it will have."""

    is_due: bool = False
    after: timedelta | None = None


def extended(
    sync: Sync, plan: Plan, key: Key, snapshot: Snapshot, now: datetime, extras: Extras
) -> Plan:
    """``plan`` of ``sync`` for ``key``, as ``extras`` want it."""
    if sync == Sync.EVICTION and extras.deadline > _OFF and extras.trusts_clock:
        return ended_in_time(plan, key, snapshot, now, extras.deadline)
    if sync == Sync.REQUEST and extras.deadline > _OFF:
        plan = without_repetition(plan, key, snapshot)
    if sync == Sync.REQUEST and extras.damping > _OFF:
        plan = damped(plan, key, snapshot, now, extras.damping)
    return plan


def damped(plan: Plan, key: Key, snapshot: Snapshot, now: datetime, damping: timedelta) -> Plan:
    """``plan`` of the EvictionRequest ``key`` without a new Eviction that comes too soon."""
    creations = [write for write in plan.writes if write.resource == EVICTIONS]
    request = snapshot.eviction_request(key)
    pod = request.spec.target.pod if request else None
    if not creations or pod is None:
        return plan
    relevant = relevant_eviction(snapshot.evictions_of(key.namespace, pod))
    failed = condition_of(relevant.status.conditions, ConditionType.FAILED) if relevant else None
    if failed is None or failed.reason != NO_FURTHER_RESPONDER.failed.reason:
        return plan
    left = _left(failed, damping, now)
    if left <= _OFF:
        return plan
    others = tuple(write for write in plan.writes if write not in creations)
    return replace(plan, writes=others, requeue_after=min(left, plan.requeue_after or left))


def expiry(sync: Sync, key: Key, snapshot: Snapshot, now: datetime, extras: Extras) -> Expiry:
    """Whether the object ``key`` of ``sync`` is to be deleted at ``now``."""
    found = _found(sync, key, snapshot, now, extras)
    if extras.trusts_clock or found == Expiry():
        return found
    return Expiry(after=_LATER)


def _found(sync: Sync, key: Key, snapshot: Snapshot, now: datetime, extras: Extras) -> Expiry:
    if sync == Sync.REQUEST and extras.request_ttl > _OFF:
        request = snapshot.eviction_request(key)
        if request and is_done(request) and request.metadata.deletion_timestamp is None:
            return _expiry(_end(request.status.conditions), extras.request_ttl, now)
    if sync == Sync.METADATA and extras.orphan_ttl > _OFF:
        eviction = snapshot.eviction(key)
        if eviction and _is_orphan(eviction, snapshot, key.namespace):
            return _expiry(_end(eviction.status.conditions), extras.orphan_ttl, now)
    return Expiry()


def _is_orphan(eviction: Eviction, snapshot: Snapshot, namespace: str) -> bool:
    """Whether ``eviction`` has ended, and nobody is left to whom it means anything."""
    pod, metadata = eviction.spec.target.pod, eviction.metadata
    if not has_ended(eviction) or metadata.owner_references or metadata.deletion_timestamp:
        return False
    return pod is None or not snapshot.requests_of(namespace, pod)


def _end(conditions: tuple[Condition, ...]) -> Condition | None:
    """The condition that tells of the end."""
    found = (condition_of(conditions, type_) for type_ in FINAL_CONDITIONS)
    return next((c for c in found if c and c.status == ConditionStatus.TRUE), None)


def _expiry(end: Condition | None, span: timedelta, now: datetime) -> Expiry:
    if end is None or end.last_transition_time is None:
        return Expiry()
    left = _left(end, span, now)
    return Expiry(is_due=True) if left <= _OFF else Expiry(after=left)


def _left(condition: Condition, span: timedelta, now: datetime) -> timedelta:
    return span - (now - (condition.last_transition_time or now))
