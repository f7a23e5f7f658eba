"""The workers: take an item, plan, write, see when to look again."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime, timedelta
from time import monotonic
from types import MappingProxyType
from typing import Final, NamedTuple, TypeAlias

import structlog

from cluster import clock
from cluster.failures import (
    Busy,
    ClusterFailure,
    Conflict,
    Denied,
    Missing,
    Refused,
    ServerFailure,
)
from cluster.key import Key
from controller.events import Tell
from controller.evictor import Evictor
from controller.metrics import Metrics
from controller.ownership import MANAGER
from controller.plan import Sync, plan
from controller.planning.admission import as_request
from controller.planning.deferral import with_deferral
from controller.planning.extras import Extras, expiry, extended
from controller.planning.metadata import complete_creation
from controller.planning.occurrences import occurrences
from controller.planning.relevance import has_ended
from controller.planning.snapshot import Snapshot
from controller.planning.writes import EVICTION_REQUESTS, EVICTIONS, Plan, Write
from controller.queue import WorkQueue
from controller.routing import EVICTOR, Item
from controller.view import View
from controller.writer import NotLeadingError, RefusedPlanError, Writer
from rules.api import Eviction, EvictionRequest
from rules.states import FINAL_CONDITIONS, HEARTBEAT_DEADLINE

_log = structlog.get_logger()
PERMISSION_SECONDS: Final = 30.0
"""Seconds until something is tried again for which a permission is missing."""
HOPELESS_SECONDS: Final = 300.0
"""Seconds until something is tried again that the API server will hardly ever accept."""
_MISSING_SECONDS: Final = 2.0
LONGEST_WAIT: Final = HEARTBEAT_DEADLINE
"""After which everything that waits is looked at again, as spans counted by a clock that has been
set meanwhile may be far too long. Our own choice: the longest span of an ordinary plan."""


Special: TypeAlias = Callable[[Item], Awaitable[timedelta | None]]
"""Does what an item asks for; returns when to do so again. Raises ClusterFailure and
NotLeadingError."""


class Reaction(NamedTuple):
    """What to do after a failure."""

    retry: bool = True
    at_least: float = 0.0
    """Seconds to wait, if that is longer than the item's backoff."""
    level: str = "warning"
    """How to log it."""
    event: str = "a write failed and is tried again"


def reaction_to(failure: ClusterFailure) -> Reaction:
    """How each kind of failure is handled; where there was no answer the backoff is enough."""
    if isinstance(failure, Denied):
        return _reaction_to_denial(failure)
    if isinstance(failure, (Busy, ServerFailure)):
        return Reaction(at_least=failure.retry_after or 0.0)
    return _REACTIONS.get(type(failure), Reaction())


def _reaction_to_denial(failure: Denied) -> Reaction:
    if failure.is_terminating:
        event = "the namespace is being deleted, nothing to do"
        return Reaction(retry=False, level="info", event=event)
    return Reaction(at_least=PERMISSION_SECONDS, event=failure.explanation)


_REACTIONS: Final = {
    Conflict: Reaction(level="debug"),
    # An object that is gone will not be found in the store either; else a whole API is gone.
    Missing: Reaction(at_least=_MISSING_SECONDS, level="info"),
    Refused: Reaction(
        at_least=HOPELESS_SECONDS,
        level="error",
        event="the API server refuses a write",
    ),
}


class Loop:
    """Works off the queue."""

    def __init__(
        self,
        view: View,
        queue: WorkQueue[Item],
        writer: Writer,
        evictor: Evictor | None,
        metrics: Metrics,
        extras: Callable[[], Extras],
        tell: Tell,
        special: Mapping[str, Special] = MappingProxyType({}),
    ) -> None:
        """``evictor`` None: somebody else is the default evictor; ``tell`` people what happens.

        ``special``: work of other kinds → who does it.
        """
        self._tell = tell
        self._special = special
        self._extras = extras
        self._view = view
        self._queue = queue
        self._writer = writer
        self._evictor = evictor
        self._metrics = metrics
        self._terminal_times: dict[str, datetime] = {}
        """What is to be remembered between two plans, by the Eviction's UID."""
        self._began: dict[Item, float] = {}

    def longest_work(self) -> float:
        """For how many seconds the slowest item has been worked on."""
        return monotonic() - min(self._began.values(), default=monotonic())

    async def run(self, workers: int) -> None:
        """Work with so many workers until cancelled; nothing is written afterwards."""
        async with asyncio.TaskGroup() as group:
            for _ in range(workers):
                group.create_task(self._work())

    async def _work(self) -> None:
        while True:
            item, waited = await self._queue.get()
            self._metrics.waits.labels(item.work).observe(waited)
            self._began[item] = began = monotonic()
            try:
                await self._handle(item)
            finally:
                del self._began[item]
                self._queue.done(item)
            self._metrics.works.labels(item.work).observe(monotonic() - began)

    async def _handle(self, item: Item) -> None:
        try:
            again = await self._sync(item)
        except ClusterFailure as failure:
            self._react(item, failure)
        except RefusedPlanError:
            self._queue.add(item, HOPELESS_SECONDS)
        except NotLeadingError:
            pass  # whoever leads next looks at everything
        except Exception:  # noqa: BLE001 - one bad object must not stop all others
            self._metrics.failures.labels(item.work, "bug").inc()
            delay = self._queue.retry(item, at_least=_MISSING_SECONDS)
            _log.exception("internal error", **_about(item), retry_seconds=delay)
        else:
            self._queue.schedule.succeeded(item)
            if again is not None:
                again = min(again, LONGEST_WAIT)
                self._queue.add(item, max(again.total_seconds(), 0.0))

    def _react(self, item: Item, failure: ClusterFailure) -> None:
        reaction = reaction_to(failure)
        self._metrics.failures.labels(item.work, type(failure).__name__).inc()
        delay = self._queue.retry(item, reaction.at_least) if reaction.retry else None
        log = getattr(_log, reaction.level)
        log(reaction.event, **_about(item), error=str(failure), retry_seconds=delay)

    async def _sync(self, item: Item) -> timedelta | None:
        """Bring one object into order; returns when to look at it again."""
        if (special := self._special.get(item.work)) is not None:
            return await special(item)
        store = self._view.requests if item.work == Sync.REQUEST else self._view.evictions
        entry = store.get(item.key)
        if entry is None:
            return None
        snapshot = self._view.snapshot(item.key.namespace, entry.value, self._terminal_times)
        value: Eviction | EvictionRequest = entry.value
        if item.work == EVICTOR:
            if self._evictor is None or not isinstance(value, Eviction):
                return None
            return await self._evictor.run(item.key, value, snapshot)
        return await self._carry_out(item, value, snapshot)

    async def _carry_out(
        self, item: Item, value: Eviction | EvictionRequest, snapshot: Snapshot
    ) -> timedelta | None:
        now = clock.now()
        sync = Sync(item.work)
        planned = plan(sync, item.key, snapshot, now)
        planned = extended(sync, planned, item.key, snapshot, now, self._extras())
        planned = with_deferral(sync, planned, item.key, snapshot, now)
        for write in planned.writes:
            await self._write(write, snapshot, now)
        if sync == Sync.EVICTION:
            self._remember(value.metadata.uid, planned)
        if planned.writes or planned.requeue_after is not None:
            return planned.requeue_after
        return await self._remove(sync, item.key, value, snapshot)

    async def _remove(
        self, sync: Sync, key: Key, value: Eviction | EvictionRequest, snapshot: Snapshot
    ) -> timedelta | None:
        """Delete what has outlived its use; returns when it will have."""
        found = expiry(sync, key, snapshot, clock.now(), self._extras())
        if found.is_due:
            resource = EVICTION_REQUESTS if sync == Sync.REQUEST else EVICTIONS
            await self._writer.delete(resource, key, value.metadata)
        return found.after

    async def _write(self, write: Write, snapshot: Snapshot, now: datetime) -> None:
        creates = write.resource == EVICTIONS and snapshot.eviction(write.key) is None
        if creates:
            write = complete_creation(write, snapshot, now)
        judged = as_request(write, snapshot, now)
        await self._writer.apply(write, judged, MANAGER)
        before, after = judged.old_object, judged.object
        if isinstance(before, Eviction) and isinstance(after, Eviction):
            for occurrence in occurrences(before.status, after.status):
                self._tell(before, occurrence)
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

    def forget(self, eviction: Eviction) -> None:
        """``eviction`` is gone, or has ended: nothing about it needs to be remembered."""
        uid = eviction.metadata.uid
        self._terminal_times.pop(uid, None)
        if self._evictor is not None:
            self._evictor.forget(uid)


def is_over(old: Eviction | None, new: Eviction | None) -> bool:
    """Whether an Eviction that was ``old`` and is ``new`` has just come to its end."""
    return old is not None and (new is None or (has_ended(new) and not has_ended(old)))


def _about(item: Item) -> dict[str, str]:
    return {"work": item.work, "namespace": item.key.namespace, "name": item.key.name}


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
