"""The sync ``request``: an Eviction for those who want one, and word of what has become of it.

Source: pkg/controller/evictionrequest of Kubernetes 1.38.0-beta.0, ``syncEvictionRequest``.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

from cluster.key import Key
from controller.eviction.planning import conditions
from controller.eviction.planning.conditions import Outcome
from controller.eviction.planning.metadata import Role
from controller.eviction.planning.relevance import (
    has_ended,
    has_succeeded,
    new_eviction_name,
    relevant_eviction,
)
from controller.eviction.planning.requesters import wants_eviction
from controller.eviction.planning.snapshot import Snapshot
from controller.eviction.planning.target import POD_GROUP, UNSUPPORTED, Target
from controller.eviction.planning.writes import (
    Plan,
    Write,
    eviction_write,
    owner_reference,
    request_status_write,
)
from rules.api import ConditionStatus, ConditionType, Eviction, EvictionRequest, PodReference
from rules.states import condition_of, is_true
from rules.times import ZERO

POD_WAIT: Final = timedelta(seconds=3)
"""How long after a request's creation its pod may appear, because both may have been created at
the same time (``EvictionRequestWaitForPodPresenceDuration``)."""


def plan_request(key: Key, snapshot: Snapshot, now: datetime) -> Plan:
    """An Eviction if the EvictionRequest ``key`` needs a new one at ``now``, and its status."""
    request = snapshot.eviction_request(key)
    if request is None or is_done(request):
        return Plan()
    pod = request.spec.target.pod
    if pod is None:
        return _report(key, request, conditions.invalid(UNSUPPORTED), now)
    target = Target.find(snapshot, key.namespace, pod)
    evictions = snapshot.evictions_of(key.namespace, pod)
    wait = _wait(request, target, evictions, now)
    if wait is not None:
        return _report(key, request, conditions.AWAITING_TARGET, now, wait=wait)
    refusal = _refusal(target, evictions, now)
    if refusal is not None:
        return _report(key, request, conditions.invalid(refusal), now)
    relevant = relevant_eviction(evictions)
    outcome = conditions.copied(relevant.status.conditions if relevant else ())
    plan = _report(key, request, outcome, now)
    requests = snapshot.requests_of(key.namespace, pod)
    if _needs_new(relevant) and any(wants_eviction(other) for other in requests):
        # First, because the status promises it.
        return Plan((_creation(key, request, pod, snapshot), *plan.writes))
    return plan


def is_done(request: EvictionRequest) -> bool:
    """Whether the request has come to its end, and its spec is still the one that was judged."""
    status = request.status
    failed = condition_of(status.conditions, ConditionType.FAILED)
    is_invalid = (
        failed is not None
        and failed.status == ConditionStatus.TRUE
        and failed.reason == conditions.EVICTION_INVALID
    )
    has_ended = is_invalid or is_true(status.conditions, ConditionType.TARGET_EVICTED)
    return has_ended and status.observed_generation == request.metadata.generation


def _wait(
    request: EvictionRequest, target: Target, evictions: Sequence[Eviction], now: datetime
) -> timedelta | None:
    """How long the pod may still take to appear; None where it need not be waited for."""
    if evictions or target.found is not None or target.mismatch is not None:
        return None
    left = POD_WAIT - (now - (request.metadata.creation_timestamp or ZERO))
    return left if left > timedelta() else None


def _refusal(target: Target, evictions: Sequence[Eviction], now: datetime) -> str | None:
    """Why the target can't be evicted, as a message; None if it can."""
    if target.mismatch is not None:
        return target.mismatch
    if not evictions and target.found is None:
        return "Target pod not found."
    if not evictions and target.pod is None:
        expected, found = target.reference.uid, target.found.metadata.uid if target.found else ""
        return f"Target pod UID mismatch: expected {expected}, got {found}."
    if target.is_in_pod_group:
        return POD_GROUP
    return None if evictions else target.broken_declaration(now)


def _needs_new(relevant: Eviction | None) -> bool:
    return relevant is None or (has_ended(relevant) and not has_succeeded(relevant))


def _report(
    key: Key,
    request: EvictionRequest,
    outcome: Outcome,
    now: datetime,
    *,
    wait: timedelta | None = None,
) -> Plan:
    """Tell the request ``outcome``, unless it has been told already."""
    stored, generation = request.status, request.metadata.generation
    settled = conditions.settled(outcome, stored.conditions, now)
    if stored.observed_generation == generation and not conditions.are_changed(
        settled, stored.conditions
    ):
        return Plan((), wait)
    return Plan((request_status_write(key, settled, generation),), wait)


def _creation(key: Key, request: EvictionRequest, pod: PodReference, snapshot: Snapshot) -> Write:
    name = new_eviction_name(pod.name, snapshot.eviction_names(key.namespace))
    # The metadata sync adds the other requesters, and the responders.
    labels = {request.spec.requester: Role.REQUESTER}
    return eviction_write(Key(key.namespace, name), pod, labels, [owner_reference(request)])
