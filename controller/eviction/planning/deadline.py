"""An end for every Eviction, and no new one before somebody asks anew. See ADR 45.

The reference waits for a responder as long as it shows life, and for the evictor as long as a
budget refuses.
"""

from dataclasses import replace
from datetime import datetime, timedelta

from cluster.key import Key
from controller.eviction.planning import conditions
from controller.eviction.planning.eviction import next_status, ordered_responders
from controller.eviction.planning.progression import called_off
from controller.eviction.planning.relevance import has_ended, relevant_eviction
from controller.eviction.planning.requesters import planned_requesters, wants_eviction
from controller.eviction.planning.snapshot import Snapshot
from controller.eviction.planning.target import Target
from controller.eviction.planning.writes import EVICTIONS, Plan, Write, eviction_status_write
from rules.api import ConditionType, Eviction, EvictionRequest, PodReference, ResponderState
from rules.states import condition_of
from rules.times import ZERO


def ended_in_time(
    plan: Plan, key: Key, snapshot: Snapshot, now: datetime, deadline: timedelta
) -> Plan:
    """``plan`` of the Eviction ``key``, or its end if it is older than ``deadline``.

    An eviction that has reached its aim is left to ``plan``: it ends within the grace of the last
    report.
    """
    eviction = snapshot.eviction(key)
    pod = eviction.spec.target.pod if eviction else None
    if eviction is None or pod is None or has_ended(eviction):
        return plan
    target = Target.find(snapshot, key.namespace, pod)
    if target.is_evicted or any(write.ends for write in plan.writes):
        return plan
    left = deadline - (now - (eviction.metadata.creation_timestamp or now))
    if left > timedelta():
        return replace(plan, requeue_after=min(left, plan.requeue_after or left))
    return Plan((_end(key, eviction, target, snapshot, now, deadline),))


def _end(
    key: Key,
    eviction: Eviction,
    target: Target,
    snapshot: Snapshot,
    now: datetime,
    deadline: timedelta,
) -> Write:
    stored = eviction.status
    requests = snapshot.requests_of(key.namespace, target.reference)
    responders = called_off(
        ordered_responders(eviction, target), stored.responders, ResponderState.INTERRUPTED
    )
    requesters = planned_requesters(stored.requesters, requests)
    outcome = conditions.overdue(deadline)
    return eviction_status_write(key, next_status(eviction, outcome, requesters, responders, now))


def without_repetition(plan: Plan, key: Key, snapshot: Snapshot) -> Plan:
    """``plan`` of the EvictionRequest ``key`` without an Eviction in place of an overdue one.

    There is a new one if a request asks anew, or if the pod has gone or ended meanwhile: then it is
    a success at once, and that is what requesters are to be told.
    """
    request = snapshot.eviction_request(key)
    pod = request.spec.target.pod if request else None
    if pod is None or not any(write.resource == EVICTIONS for write in plan.writes):
        return plan
    overdue = _overdue(key.namespace, pod, snapshot)
    if overdue is None or Target.find(snapshot, key.namespace, pod).is_evicted:
        return plan
    if any(_asks_anew(other, overdue) for other in snapshot.requests_of(key.namespace, pod)):
        return plan
    others = tuple(write for write in plan.writes if write.resource != EVICTIONS)
    return replace(plan, writes=others)


def _overdue(namespace: str, pod: PodReference, snapshot: Snapshot) -> Eviction | None:
    """The Eviction that counts, if its deadline has ended it."""
    relevant = relevant_eviction(snapshot.evictions_of(namespace, pod))
    failed = condition_of(relevant.status.conditions, ConditionType.FAILED) if relevant else None
    return relevant if failed and failed.reason == conditions.DEADLINE_EXCEEDED else None


def _asks_anew(request: EvictionRequest, overdue: Eviction) -> bool:
    """Whether ``request`` wants more than what ``overdue`` was made for.

    A request that was told something asks anew by another generation: its intent has changed since.
    One that was told nothing yet is a new one, unless it is older than the Eviction. Both times are
    the API server's. The creation of the next Eviction is written before the request is told, so
    that no crash between the two loses it.
    """
    if not wants_eviction(request):
        return False
    told = request.status.observed_generation
    if told is not None:
        return told != request.metadata.generation
    return _created(request) > _created(overdue)


def _created(known: Eviction | EvictionRequest) -> datetime:
    return known.metadata.creation_timestamp or ZERO
