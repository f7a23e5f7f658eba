"""The sync ``eviction``: the status of one Eviction.

Source: pkg/controller/evictionrequest of Kubernetes 1.38.0-beta.0, ``syncEviction``.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Final, NamedTuple

from cluster.key import Key
from controller.eviction.planning import conditions
from controller.eviction.planning.conditions import Outcome
from controller.eviction.planning.progression import Progression, Situation, called_off, progressed
from controller.eviction.planning.relevance import has_ended, relevant_eviction
from controller.eviction.planning.requesters import planned_requesters, wants_eviction
from controller.eviction.planning.snapshot import Snapshot
from controller.eviction.planning.target import POD_GROUP, UNSUPPORTED, Target
from controller.eviction.planning.writes import Plan, eviction_status_write
from rules.api import (
    Eviction,
    EvictionRequest,
    EvictionStatus,
    Requester,
    ResponderState,
    ResponderStatus,
    TargetResponder,
)
from rules.states import processing_order


def plan_eviction(
    key: Key, snapshot: Snapshot, now: datetime, *, counts_silence: bool = True
) -> Plan:
    """The next status of the Eviction ``key`` at ``now``; nothing where it has ended.

    ``counts_silence``: see :func:`controller.eviction.planning.progression.progressed`.
    """
    eviction = snapshot.eviction(key)
    if eviction is None or has_ended(eviction):
        return Plan()
    reference = eviction.spec.target.pod
    if reference is None:
        return _refuse(key, eviction, UNSUPPORTED, now)
    target = Target.find(snapshot, key.namespace, reference)
    requests = snapshot.requests_of(key.namespace, reference)
    looked = _Pass(key, eviction, target, requests, now, counts_silence)
    relevant = relevant_eviction(snapshot.evictions_of(key.namespace, reference))
    refusal = _refusal(looked, relevant)
    if refusal is None:
        return _proceed(looked, snapshot.terminal_time(eviction))
    plan = _refuse(key, eviction, refusal, now)
    if refusal != _DUPLICATE or target.is_in_pod_group:
        return plan
    # The vectors look at a duplicate again when its responder's time would have run out. By then
    # it has ended, so that this costs one look and no write.
    again = _proceed(looked, snapshot.terminal_time(eviction)).requeue_after
    return Plan(plan.writes, again)


class _Pass(NamedTuple):
    """One look at one Eviction."""

    key: Key
    eviction: Eviction
    target: Target
    requests: Sequence[EvictionRequest]
    now: datetime
    counts_silence: bool


_DUPLICATE: Final = "Active Eviction already exists for the same target."


def _refusal(looked: _Pass, relevant: Eviction | None) -> str | None:
    """Why there can't be such an eviction, as a message; None if there can."""
    eviction, target = looked.eviction, looked.target
    if relevant is not None and not has_ended(relevant) and relevant is not eviction:
        return _DUPLICATE
    if target.mismatch is not None:
        return target.mismatch
    if target.is_in_pod_group:
        return POD_GROUP
    # The list is copied once; what becomes of the pod's own does not matter any more.
    if not eviction.status.target_responders:
        return target.broken_declaration(looked.now)
    return None


def _refuse(key: Key, eviction: Eviction, message: str, now: datetime) -> Plan:
    """End an eviction that should not be, and keep all that its status has."""
    stored = eviction.status
    responders = called_off(
        processing_order(stored.target_responders), stored.responders, ResponderState.CANCELED
    )
    outcome = conditions.invalid(message)
    status = next_status(eviction, outcome, stored.requesters, responders, now)
    return Plan((eviction_status_write(key, status),))


def _proceed(looked: _Pass, remembered: datetime | None) -> Plan:
    key, eviction, target, requests, now, counts_silence = looked
    stored = eviction.status
    situation = _situation(target, requests)
    terminal_time = _terminal_time(target, situation, remembered, now)
    progression = progressed(
        ordered_responders(eviction, target),
        {report.name: report for report in stored.responders},
        situation,
        terminal_time=terminal_time,
        now=now,
        counts_silence=counts_silence,
    )
    outcome = _outcome(situation, progression)
    requesters = planned_requesters(stored.requesters, requests)
    status = next_status(eviction, outcome, requesters, progression.responders, now)
    writes = (eviction_status_write(key, status),) if _is_changed(status, stored) else ()
    ends = outcome in _FINAL
    return Plan(writes, progression.requeue_after, None if ends else terminal_time)


def _situation(target: Target, requests: Sequence[EvictionRequest]) -> Situation:
    if target.pod is None:
        return Situation.GONE
    if target.is_terminal:
        return Situation.TERMINAL
    if not any(wants_eviction(request) for request in requests):
        return Situation.CANCELED
    return Situation.OPEN


def _terminal_time(
    target: Target, situation: Situation, remembered: datetime | None, now: datetime
) -> datetime | None:
    """When the target ended; while it lives, when it is to end.

    What is not known, or lies ahead although the target has ended, is the moment first seen.
    """
    if not situation.is_evicted:
        return target.terminal_time or remembered
    for time in (target.terminal_time, remembered):
        if time is not None and time <= now:
            return time
    return now


def ordered_responders(eviction: Eviction, target: Target) -> Sequence[TargetResponder]:
    """The stored list, or the target's own where it is to be initialised."""
    stored = eviction.status.target_responders
    return processing_order(
        stored
        or [
            TargetResponder(
                name=responder.name, priority=responder.priority, state=ResponderState.INACTIVE
            )
            for responder in target.responders
        ]
    )


def next_status(
    eviction: Eviction,
    outcome: Outcome,
    requesters: tuple[Requester, ...],
    responders: tuple[TargetResponder, ...],
    now: datetime,
) -> EvictionStatus:
    """The status that says all this of ``eviction``, and keeps the times that are known."""
    stored = eviction.status
    return EvictionStatus(
        conditions=conditions.settled(outcome, stored.conditions, now),
        observed_generation=eviction.metadata.generation,
        requesters=requesters,
        target_responders=responders,
        responders=_starts(responders, stored.responders, now),
    )


def _starts(
    responders: Sequence[TargetResponder], reports: Sequence[ResponderStatus], now: datetime
) -> tuple[ResponderStatus, ...]:
    """The controller's part of the reports: who there is, and when each started."""
    started = {report.name: report.start_time for report in reports}
    return tuple(
        ResponderStatus(
            name=responder.name,
            start_time=started.get(responder.name)
            or (now if responder.state == ResponderState.ACTIVE else None),
        )
        for responder in responders
    )


def _outcome(situation: Situation, progression: Progression) -> Outcome:
    if situation.is_evicted and progression.requeue_after is not None:
        return conditions.AWAITING_REPORT
    if situation == Situation.GONE:
        return conditions.POD_DELETED
    if situation == Situation.TERMINAL:
        return conditions.POD_TERMINAL
    if situation == Situation.CANCELED:
        return conditions.CANCELED
    return conditions.NO_FURTHER_RESPONDER if progression.is_exhausted else conditions.AWAITING


_FINAL: Final = (
    conditions.POD_DELETED,
    conditions.POD_TERMINAL,
    conditions.CANCELED,
    conditions.NO_FURTHER_RESPONDER,
)


def _is_changed(planned: EvictionStatus, stored: EvictionStatus) -> bool:
    """Whether ``planned`` says anything new; the order of the lists says nothing."""
    known = {(requester.name, requester.intent) for requester in stored.requesters}
    states = {responder.name: responder.state for responder in stored.target_responders}
    starts = {report.name: report.start_time for report in stored.responders}
    return (
        planned.observed_generation != stored.observed_generation
        or conditions.are_changed(planned.conditions, stored.conditions)
        or any((r.name, r.intent) not in known for r in planned.requesters)
        or any(states.get(r.name) != r.state for r in planned.target_responders)
        or any(starts.get(r.name, _MISSING) != r.start_time for r in planned.responders)
    )


_MISSING: Final = object()
