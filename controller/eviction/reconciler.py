"""Brings one Eviction or EvictionRequest into order: plan, make sure, write."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final

import structlog

from cluster.key import Key
from cluster.recorder import Tell
from controller.eviction.ownership import MANAGER
from controller.eviction.plan import Sync, plan
from controller.eviction.planning.admission import as_request
from controller.eviction.planning.claims import claims_of
from controller.eviction.planning.deferral import with_deferral
from controller.eviction.planning.extras import Extras, expiry, extended
from controller.eviction.planning.metadata import complete_creation
from controller.eviction.planning.occurrences import occurrences
from controller.eviction.planning.owners import bounded_owners, with_bounded_owners
from controller.eviction.planning.snapshot import Snapshot
from controller.eviction.planning.writes import EVICTION_REQUESTS, EVICTIONS, Plan, Write
from controller.eviction.routing import Item
from controller.eviction.verification import Verifier
from controller.eviction.view import View
from controller.eviction.writer import Writer
from controller.metrics import Metrics
from rules.api import Eviction, EvictionRequest
from rules.states import FINAL_CONDITIONS

_log = structlog.get_logger()


class Reconciler:
    """Does the three syncs."""

    def __init__(
        self,
        view: View,
        writer: Writer,
        verifier: Verifier,
        *,
        extras: Callable[[], Extras],
        tell: Tell,
        metrics: Metrics,
        now: Callable[[], datetime],
    ) -> None:
        """``tell`` people what happens.

        ``now`` is the API server's time: all that plans compare it with was stamped by it, or is
        judged by it.
        """
        self._view = view
        self._writer = writer
        self._verifier = verifier
        self._extras = extras
        self._tell = tell
        self._metrics = metrics
        self._now = now
        self._terminal_times: dict[str, datetime] = {}
        """What is to be remembered between two plans, by the Eviction's UID."""

    def forget(self, eviction: Eviction) -> None:
        """``eviction`` is gone, or has ended: nothing about it needs to be remembered."""
        self._terminal_times.pop(eviction.metadata.uid, None)

    async def run(self, item: Item) -> timedelta | None:
        """Bring the object of ``item`` into order; returns when to look at it again.

        Raises LateViewError, and what :meth:`controller.eviction.writer.Writer.apply` raises.
        """
        store = self._view.requests if item.work == Sync.REQUEST else self._view.evictions
        entry = store.get(item.key)
        if entry is None:
            return None
        value: Eviction | EvictionRequest = entry.value
        snapshot = self._view.snapshot(item.key.namespace, value, self._terminal_times)
        return await self._carry_out(item, value, snapshot)

    async def _carry_out(
        self, item: Item, value: Eviction | EvictionRequest, snapshot: Snapshot
    ) -> timedelta | None:
        now, sync = self._now(), Sync(item.work)
        planned = self._plan(sync, item.key, snapshot, now)
        for write in planned.writes:
            if write.ends:
                claims = claims_of(write, value, snapshot)
                await self._verifier.prove(write.key.namespace, claims)
            await self._write(write, snapshot, now)
        if sync == Sync.EVICTION:
            self._remember(value.metadata.uid, planned)
        if planned.writes or planned.requeue_after is not None:
            return planned.requeue_after
        return await self._remove(sync, item.key, value, snapshot)

    def _plan(self, sync: Sync, key: Key, snapshot: Snapshot, now: datetime) -> Plan:
        """What the reference does, and what Usher makes of it."""
        extras = self._extras()
        planned = plan(sync, key, snapshot, now, counts_silence=extras.trusts_clock)
        planned = extended(sync, planned, key, snapshot, now, extras)
        if sync == Sync.METADATA:
            planned = with_bounded_owners(planned, key, snapshot)
        return with_deferral(sync, planned, key, snapshot, now)

    async def _remove(
        self, sync: Sync, key: Key, value: Eviction | EvictionRequest, snapshot: Snapshot
    ) -> timedelta | None:
        """Delete what has outlived its use; returns when it will have."""
        found = expiry(sync, key, snapshot, self._now(), self._extras())
        if found.is_due:
            resource = EVICTION_REQUESTS if sync == Sync.REQUEST else EVICTIONS
            await self._writer.delete(resource, key, value.metadata)
        return found.after

    async def _write(self, write: Write, snapshot: Snapshot, now: datetime) -> None:
        creates = write.resource == EVICTIONS and snapshot.eviction(write.key) is None
        if creates:
            write = bounded_owners(complete_creation(write, snapshot, now), snapshot)
        judged = as_request(write, snapshot, now)
        await self._writer.apply(write, judged, MANAGER)
        before, after = judged.old_object, judged.object
        if isinstance(before, Eviction) and isinstance(after, Eviction):
            for occurrence in occurrences(before.status, after.status):
                self._tell(before, occurrence)
            self._metrics.measure(before, after, now)
        told = _told(write)
        # One line for the beginning and one for the end of each; the steps between are for those
        # who look for something.
        log = _log.info if creates or _ENDS & told.keys() else _log.debug
        log("created" if creates else "written", **told)

    def _remember(self, uid: str, planned: Plan) -> None:
        if planned.terminal_time is None:
            self._terminal_times.pop(uid, None)
        else:
            self._terminal_times[uid] = planned.terminal_time


_ENDS: Final = {str(type_) for type_ in FINAL_CONDITIONS}


def _told(write: Write) -> dict[str, object]:
    """What a log line says of a write."""
    status = write.apply.get("status", {})
    told: dict[str, object] = {
        "resource": write.resource,
        "namespace": write.key.namespace,
        "name": write.key.name,
        "part": write.subresource or "metadata",
    }
    for condition in status.get("conditions", ()):
        if condition["status"] == "True":
            told[condition["type"]] = condition["reason"]
    for responder in status.get("targetResponders", ()):
        if responder["state"] == "Active":
            told["active"] = responder["name"]
    return told
