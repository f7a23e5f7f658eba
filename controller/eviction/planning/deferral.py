"""Writes that can wait, because a better one may be about to come.

The first status of an EvictionRequest says no more than that its Eviction is under way. Many
evictions are over before anybody has read it. That a pod has gone and its responder's last report
is awaited holds for 5 s at most. See ADR 40.
"""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from cluster.key import Key
from controller.eviction.plan import Sync
from controller.eviction.planning.conditions import AWAITING_REPORT
from controller.eviction.planning.relevance import relevant_eviction
from controller.eviction.planning.snapshot import Snapshot
from controller.eviction.planning.writes import EVICTION_REQUESTS, Plan, Write
from rules.states import CLOCK_SKEW

INTERIM_DELAY: Final = timedelta(seconds=5)
"""How long an EvictionRequest may be without a status while its Eviction is young. Our own choice:
longer than a pod without a grace period takes, shorter than anybody's patience."""


def with_deferral(sync: Sync, plan: Plan, key: Key, snapshot: Snapshot, now: datetime) -> Plan:
    """``plan`` of ``sync`` for ``key`` without what can wait."""
    if sync == Sync.REQUEST:
        return _without_first_status(plan, key, snapshot, now)
    if sync == Sync.EVICTION:
        return _without_wait_for_report(plan, key, snapshot)
    return plan


def _without_wait_for_report(plan: Plan, key: Key, snapshot: Snapshot) -> Plan:
    """Leave out that the target is gone and the last report is awaited.

    The report comes at any moment, and after 5 s nobody waits for it any more: either brings the
    last status, which tells all that this one would have told.
    """
    eviction = snapshot.eviction(key)
    if eviction is None or not eviction.status.target_responders:
        return plan
    writes = tuple(write for write in plan.writes if not _awaits_report(write))
    return replace(plan, writes=writes)


def _awaits_report(write: Write) -> bool:
    return any(
        condition["message"] == AWAITING_REPORT.target_evicted.message
        for condition in write.apply["status"]["conditions"]
    )


def _without_first_status(plan: Plan, key: Key, snapshot: Snapshot, now: datetime) -> Plan:
    """Leave out the first status of an EvictionRequest, for a while.

    It is planned again when the Eviction has something to say, or the delay is over.
    """
    request = snapshot.eviction_request(key)
    reports = [write for write in plan.writes if write.resource == EVICTION_REQUESTS]
    if request is None or not reports or request.status.observed_generation is not None:
        return plan
    others = tuple(write for write in plan.writes if write.resource != EVICTION_REQUESTS)
    left = INTERIM_DELAY if others else _left(key, snapshot, now)
    if left <= timedelta() or any(report.ends for report in reports):
        return plan
    return Plan(others, min(left, plan.requeue_after or left))


def _left(key: Key, snapshot: Snapshot, now: datetime) -> timedelta:
    """How long the status may still wait; not at all where clocks disagree."""
    request = snapshot.eviction_request(key)
    pod = request.spec.target.pod if request else None
    if request is None or pod is None:
        return timedelta()
    relevant = relevant_eviction(snapshot.evictions_of(key.namespace, pod))
    began = [request.metadata.creation_timestamp]
    began += [relevant.metadata.creation_timestamp] if relevant else []
    left = INTERIM_DELAY - (now - max(filter(None, began), default=now - INTERIM_DELAY))
    return left if left < INTERIM_DELAY + CLOCK_SKEW else timedelta()
