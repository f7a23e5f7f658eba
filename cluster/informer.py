"""Keeps a :class:`cluster.store.Store` up to date: list, watch, resume, list again."""

import asyncio
from asyncio import sleep
from collections.abc import Callable
from contextlib import aclosing, suppress
from time import monotonic
from typing import Any, Final, Generic, TypeVar

import structlog
from prometheus_client import Counter

from cluster.client import Cluster, WatchEvent
from cluster.failures import (
    Busy,
    ClusterFailure,
    Denied,
    Gone,
    Missing,
    ServerFailure,
    Silent,
)
from cluster.pauses import jittered
from cluster.resources import Resource
from cluster.store import Change, Entry, Metadata, Packed, Store, entry_of, metadata_of, version_of
from rules.decode import DecodeError, Encoded

ValueT = TypeVar("ValueT")

Read = Callable[[Encoded], ValueT | Packed[Any]]
"""What to keep of an object. Raises DecodeError."""

_log = structlog.get_logger()
_FIRST_PAUSE: Final = 0.5
_LONGEST_PAUSE: Final = 30.0
"""Seconds between attempts, doubling from the first to the longest."""
_SMALL: Final = 5000
"""Objects: ten pages of a list. So few are listed anew rather than waited for. Our own choice."""
_CATCH_UP_SECONDS: Final = 10.0
"""For how long a watch of more objects is waited for: where there are so many, something happens
all the time. Our own choice."""
_SHORT_WATCH: Final = 1.0
"""Seconds; API servers let a watch go on for minutes."""


class Informer(Generic[ValueT]):
    """One resource, watched in all namespaces."""

    def __init__(
        self,
        cluster: Cluster,
        resource: Resource,
        read: Read[ValueT],
        store: Store[ValueT],
        changed: Callable[[Change[ValueT]], None],
        failures: Counter,
        saw: Callable[[Encoded], None] = lambda _: None,
    ) -> None:
        """``changed`` is called for every change, in order.

        ``saw`` is called for every object that others have written, as the API server tells it.
        ``failures`` counts what went wrong, by resource and kind.
        """
        self._cluster = cluster
        self.resource = resource
        self._read = read
        self.store = store
        self._changed = changed
        self._saw = saw
        self._version = ""
        self._failures = failures
        self._pause = _FIRST_PAUSE
        self._is_watchable = True
        """Whether the last watch was of any use; else lists must not follow each other at once."""
        self._said = ""
        self._progress = asyncio.Event()
        """Set whenever the API server has told something."""
        self._watching: asyncio.Timeout | None = None
        self.synced = asyncio.Event()
        """Set after the first complete list."""
        self.heard = monotonic()
        """When the API server last said anything (monotonic clock, in seconds)."""
        self.trouble: str | None = "not listed yet"
        """Why the resource can't be read at present, for /readyz; None if it can."""
        self.lateness: str | None = self.trouble
        """Why what is known may be old; None also where the resource can only be listed."""

    async def run(self) -> None:
        """Never returns. Every failure is waited out: there is nobody else who could help."""
        while True:
            try:
                if not self._version:
                    await self._list()
                await self._watch_until_renewed()
            except Gone as failure:
                self._version = ""
                if not self._is_watchable:  # a server that has always forgotten
                    await self._wait_out(failure)
                    continue
                self._count(failure)
                self._is_watchable = False
                _log.info("the watch is too old, listing again", resource=str(self.resource))
            except ClusterFailure as failure:
                await self._wait_out(failure)

    async def catch_up(self) -> None:
        """Return when everything is known that had happened when this was called.

        A watch tells nothing while nothing happens, so that one that is silent for good looks the
        same. Where it has not told of the present in time, everything is listed anew, on a new
        watch. Waits as long as the resource can't be read.
        """
        present = await self._present()
        if len(self.store) > _SMALL:
            with suppress(TimeoutError):
                async with asyncio.timeout(_CATCH_UP_SECONDS):
                    await self._reached(present)
        if self.store.seen < present:
            self._version = ""
            if self._watching is not None:
                self._watching.reschedule(0)
            await self._reached(present)

    async def _present(self) -> int:
        while True:
            try:
                return version_of(await self._cluster.version(self.resource))
            except ClusterFailure as failure:
                _log.info("not read yet", resource=str(self.resource), error=str(failure))
                await sleep(jittered(_FIRST_PAUSE))

    async def _reached(self, version: int) -> None:
        while self.store.seen < version:
            self._progress.clear()
            await self._progress.wait()

    def learn(self, document: Encoded) -> None:
        """Take over the answer to an own request, which the watch will only tell later."""
        if (entry := self._entry(document)) is not None:
            self._tell(self.store.learn(entry))

    async def _list(self) -> None:
        entries: list[Entry[ValueT]] = []
        version = ""
        async with aclosing(self._cluster.encoded_pages(self.resource)) as pages:
            async for page in pages:
                version = page.version
                # Cut down page by page, so that never more than one is held in full.
                entries += filter(None, map(self._listed, page.items))
        self._tell(self.store.replace(entries, version_of(version)))
        self._version = version
        self._is_well()
        self.synced.set()

    async def _watch_until_renewed(self) -> None:
        """Watch; where somebody wants to know the present, see :meth:`catch_up`, no longer."""
        try:
            async with asyncio.timeout(None) as self._watching:
                await self._watch()
        except TimeoutError:
            self._version = ""
        finally:
            self._watching = None

    async def _watch(self) -> None:
        began = monotonic()
        has_told = False
        watch = self._cluster.watch(self.resource, self._version, self._is_well)
        async with aclosing(watch) as events:
            async for event in events:
                has_told = self._is_watchable = True
                self._take(event)
                self._is_well()
        if not has_told and monotonic() - began < _SHORT_WATCH:
            # Something between us and the API server cuts it off.
            raise Silent(f"watch {self.resource}: it ended at once")
        self._is_watchable = True  # it ended in good order
        self.heard = monotonic()

    def _take(self, event: WatchEvent) -> None:
        metadata = _metadata_of(event.object)
        if event.type == "DELETED":
            self._tell(self.store.delete(*metadata.identity))
        elif event.type == "BOOKMARK" or self.store.knows(*metadata.identity):
            # An own write is known since its answer.
            self.store.saw(version_of(metadata.resource_version))
        else:
            self._saw(event.object)
            if (entry := self._entry(event.object)) is not None:
                self._tell(self.store.put(entry))
        self._version = metadata.resource_version

    def _listed(self, document: Encoded) -> Entry[ValueT] | None:
        """What is known of an object already, if it has not changed; mostly nothing has."""
        key, uid, version = _metadata_of(document).identity
        known = self.store.get(key)
        if known is not None and (known.uid, known.version) == (uid, version) and version > -1:
            return known
        self._saw(document)
        return self._entry(document)

    def _entry(self, document: Encoded) -> Entry[ValueT] | None:
        try:
            return entry_of(document, self._read(document))
        except DecodeError as error:
            metadata = _metadata_of(document)
            _log.error(
                "an object can't be read and is left alone",
                resource=str(self.resource),
                namespace=metadata.namespace,
                name=metadata.name,
                error=str(error),
            )
            return None

    def _tell(self, changes: list[Change[ValueT]]) -> None:
        for change in changes:
            self._changed(change)

    def _is_well(self) -> None:
        self.heard = monotonic()
        self._progress.set()
        if self._is_watchable:
            self._pause = _FIRST_PAUSE
        if self._said:
            _log.info("the resource can be read again", resource=str(self.resource))
        self.trouble, self.lateness, self._said = None, None, ""

    async def _wait_out(self, failure: ClusterFailure) -> None:
        self._count(failure)
        self._is_watchable = self._is_watchable and not isinstance(failure, Silent)
        if isinstance(failure, (Missing, ServerFailure, Silent)):
            # Each may mean that the API is not what it was. What is known is kept: an API server
            # that has just started serves no custom resources for a moment.
            self._version = ""
        self.trouble = _explained(failure, self.resource)
        self.lateness = None if isinstance(failure, Silent) else self.trouble
        if self.trouble != self._said:  # once, not every time
            _log.warning(self.trouble, resource=str(self.resource), error=str(failure))
            self._said = self.trouble
        wanted = failure.retry_after if isinstance(failure, (Busy, ServerFailure)) else None
        await sleep(jittered(max(self._pause, wanted or 0)))
        self._pause = min(self._pause * 2, _LONGEST_PAUSE)

    def _count(self, failure: ClusterFailure) -> None:
        self._failures.labels(str(self.resource), type(failure).__name__).inc()


def _metadata_of(document: Encoded) -> Metadata:
    try:
        return metadata_of(document)
    except DecodeError as error:
        raise ServerFailure(f"an object that can't be told from others: {error}") from None


def _explained(failure: ClusterFailure, resource: Resource) -> str:
    if isinstance(failure, Missing):
        return (
            f"waiting for {resource} to be served; install the CustomResourceDefinitions "
            "(usher crds | kubectl apply -f -) or turn the API on"
        )
    if isinstance(failure, Denied):
        return failure.explanation
    if isinstance(failure, Busy):
        return f"the API server is too busy to read {resource}"
    if isinstance(failure, Silent):
        return f"{resource} can't be watched, only listed"
    return f"{resource} can't be read"
