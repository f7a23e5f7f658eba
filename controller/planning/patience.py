"""Nobody is passed over while the time can't be relied on. See ADR 46."""

from dataclasses import replace
from datetime import timedelta
from typing import Final

from cluster.key import Key
from controller.planning.snapshot import Snapshot
from controller.planning.target import Target
from controller.planning.writes import EVICTIONS, Plan, Write
from rules.api import ResponderState

_AGAIN: Final = timedelta(minutes=1)
"""When to look again whether the time can be relied on. Our own choice."""


def without_interruption(plan: Plan, key: Key, snapshot: Snapshot) -> Plan:
    """``plan`` of the Eviction ``key`` without the end of a turn for silence.

    Silence is counted by time. Where the pod has gone nothing of its responder can be spoilt.
    """
    eviction = snapshot.eviction(key)
    pod = eviction.spec.target.pod if eviction else None
    if eviction is None or pod is None or Target.find(snapshot, key.namespace, pod).is_evicted:
        return plan
    states = {r.name: r.state for r in eviction.status.target_responders}
    kept = tuple(write for write in plan.writes if not _interrupts(write, states))
    if len(kept) == len(plan.writes):
        return plan
    return replace(plan, writes=kept, requeue_after=_AGAIN)


def _interrupts(write: Write, states: dict[str, str]) -> bool:
    if write.resource != EVICTIONS:
        return False
    return any(
        responder["state"] == ResponderState.INTERRUPTED
        and states.get(responder["name"]) != ResponderState.INTERRUPTED
        for responder in write.apply.get("status", {}).get("targetResponders", ())
    )
