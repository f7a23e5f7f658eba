"""The workers: take an item, have it worked on, see when to look again."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta
from time import monotonic
from typing import Final, NamedTuple, TypeAlias

import structlog

from cluster.failures import (
    Busy,
    ClusterFailure,
    Conflict,
    Denied,
    Missing,
    Refused,
    ServerFailure,
)
from cluster.work_queue import WorkQueue
from controller.eviction.planning.relevance import has_ended
from controller.eviction.routing import POOLS, Item
from controller.eviction.verification import UNPROVED_SECONDS, LateViewError
from controller.eviction.writer import NotLeadingError, RefusedPlanError
from controller.metrics import Metrics
from rules.api import Eviction
from rules.states import HEARTBEAT_DEADLINE

_log = structlog.get_logger()
PERMISSION_SECONDS: Final = 30.0
"""Seconds until something is tried again for which a permission is missing."""
HOPELESS_SECONDS: Final = 300.0
"""Seconds until something is tried again that the API server will hardly ever accept."""
_MISSING_SECONDS: Final = 2.0
LONGEST_WAIT: Final = HEARTBEAT_DEADLINE
"""After which everything that waits is looked at again, as spans counted by a clock that has been
set meanwhile may be far too long. Our own choice: the longest span of an ordinary plan."""


Handler: TypeAlias = Callable[[Item], Awaitable[timedelta | None]]
"""Does what an item asks for; returns when to do so again. Raises ClusterFailure, NotLeadingError,
RefusedPlanError and LateViewError."""


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
        self, queue: WorkQueue[Item], handlers: Mapping[str, Handler], metrics: Metrics
    ) -> None:
        """``handlers``: the ``work`` of an :class:`Item` → who does it; else nobody does."""
        self._queue = queue
        self._handlers = handlers
        self._metrics = metrics
        self._began: dict[Item, float] = {}

    def longest_work(self) -> float:
        """For how many seconds the slowest item has been worked on."""
        return monotonic() - min(self._began.values(), default=monotonic())

    async def run(self, workers: int) -> None:
        """Work with so many workers for each pool until cancelled; nothing is written then."""
        async with asyncio.TaskGroup() as group:
            for pool in POOLS:
                for _ in range(workers):
                    group.create_task(self._work(pool))

    async def _work(self, pool: str) -> None:
        while True:
            # Work that needs no answer from outside would keep the event loop from all others.
            await asyncio.sleep(0)
            item, waited = await self._queue.get(pool)
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
            handler = self._handlers.get(item.work)
            again = await handler(item) if handler is not None else None
        except ClusterFailure as failure:
            self._react(item, failure)
        except LateViewError as error:
            self._metrics.failures.labels(item.work, type(error).__name__).inc()
            delay = self._queue.retry(item, at_least=UNPROVED_SECONDS)
            _log.warning(
                "the view is late, nothing final is said",
                **_about(item),
                reason=str(error),
                retry_seconds=delay,
            )
        except RefusedPlanError:
            self._queue.add(item, HOPELESS_SECONDS)
        except NotLeadingError:
            # Whoever leads next looks at everything; that may be this process, in a moment.
            self._queue.retry(item)
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
        delay = None
        if reaction.retry:
            self._metrics.failures.labels(item.work, type(failure).__name__).inc()
            delay = self._queue.retry(item, reaction.at_least)
        log = getattr(_log, reaction.level)
        log(reaction.event, **_about(item), error=str(failure), retry_seconds=delay)


def is_over(old: Eviction | None, new: Eviction | None) -> bool:
    """Whether an Eviction that was ``old`` and is ``new`` has just come to its end."""
    return old is not None and (new is None or (has_ended(new) and not has_ended(old)))


def _about(item: Item) -> dict[str, str]:
    return {"work": item.work, "namespace": item.key.namespace, "name": item.key.name}
