"""A cluster in virtual time: its API server, and how processes reach it.

The store judges every write as the webhook would. What is added here is what an API server has
beside it: versions, watches, Leases, a clock that may be set; and all that can come between it and
a process: latency, answers that are lost, watches that have gone silent.
"""

import asyncio
import random
from bisect import bisect_right
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import aclosing, contextmanager
from dataclasses import replace
from datetime import timedelta
from email.utils import format_datetime
from typing import Any, Final, NamedTuple, TypeVar

import msgspec
from msgspec import Raw

from cluster.client import Page, WatchEvent
from cluster.failures import (
    Busy,
    BusySource,
    Conflict,
    Missing,
    Refused,
    Silent,
    Unreachable,
)
from cluster.key import Key
from cluster.resources import LEASES, Resource
from cluster.server_time import ServerTime
from controller.eviction.ownership import EVICTOR_MANAGER
from controller.eviction.planning.writes import EVICTION_REQUESTS, EVICTIONS, Write
from rules.api import EVICTOR
from tests.controller.objects import NAMESPACE, Document
from tests.controller.store import START, Store

PODS: Final = "pods"
_BOOKMARK_SECONDS: Final = 60.0
"""Between two bookmarks of a watch; API servers tell one a minute."""
_SILENT_SECONDS: Final = 150.0
"""After which the client gives up a watch that tells nothing."""
_WATCH_SECONDS: Final = 300.0
_CALL_SECONDS: Final = 10.0
"""For how long a call that hangs is waited for."""
ResultT = TypeVar("ResultT")


class _Event(NamedTuple):
    version: int
    type: str
    object: Document


class World:
    """The API server."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.store = Store()
        self.jumped = timedelta()
        """By how much its clock has been set ahead so far."""
        self.version = 1
        self.leases: dict[Key, Document] = {}
        self.is_budget_open = True
        self.grace: Callable[[], timedelta] = lambda: timedelta(seconds=chance.choice([0, 1, 30]))
        self.changed: Callable[[str, Document | None, Document | None], None] = lambda *_: None
        """Is told of every change: resource, the object before and after."""
        self.refused: Callable[[Write, list[str]], None] = lambda *_: None
        """Is told of every write of a controller that admission refuses."""
        self._known: dict[str, dict[str, tuple[bytes, Document]]] = {
            PODS: {},
            EVICTIONS: {},
            EVICTION_REQUESTS: {},
        }
        self._events: dict[str, list[_Event]] = {name: [] for name in self._known}
        self._news = asyncio.Event()

    @property
    def seconds(self) -> float:
        """True time: what no clock that is set can change."""
        return asyncio.get_running_loop().time()

    @contextmanager
    def change(self) -> Iterator[Store]:
        """The store at this moment; what is changed in it gets its versions, and is told."""
        self.store.now = START + timedelta(seconds=self.seconds) + self.jumped
        try:
            yield self.store
        finally:
            self._record()

    def _record(self) -> None:
        stored = {PODS: self.store.pods, **self.store.stored}
        for resource, known in self._known.items():
            for name, (_, before) in list(known.items()):
                now = stored[resource].get(name)
                if now is None or now["metadata"]["uid"] != before["metadata"]["uid"]:
                    del known[name]
                    self._append(resource, "DELETED", before)
                    self.changed(resource, before, None)
            for name, now in stored[resource].items():
                content = msgspec.json.encode(now)
                kept, before = known.get(name, (b"", None))
                if content != kept:
                    after = self._append(
                        resource, "MODIFIED" if before else "ADDED", msgspec.json.decode(content)
                    )
                    known[name] = (content, after)
                    self.changed(resource, before, after)

    def _append(self, resource: str, type_: str, document: Document) -> Document:
        self.version += 1
        metadata = document["metadata"] | {"resourceVersion": str(self.version)}
        document = {**document, "metadata": metadata}
        self._events[resource].append(_Event(self.version, type_, document))
        self._news.set()
        self._news = asyncio.Event()
        return document

    # --- what is asked --------------------------------------------------------------------------

    def listed(self, resource: str) -> list[Document]:
        if resource not in self._known:
            raise Missing(f"{resource} is not served")
        return [document for _, document in self._known[resource].values()]

    def events_after(self, resource: str, version: int) -> list[_Event]:
        events = self._events[resource]
        return events[bisect_right(events, version, key=lambda event: event.version) :]

    async def news(self, seconds: float) -> None:
        """Return when something changes, or after so long."""
        try:
            async with asyncio.timeout(seconds):
                await self._news.wait()
        except TimeoutError:
            return

    def find(self, resource: str, name: str) -> Document:
        if resource == LEASES.name:
            found = next((each for key, each in self.leases.items() if key.name == name), None)
        else:
            found = self._known.get(resource, {}).get(name, (b"", None))[1]
        if found is None:
            raise Missing(f"{resource} {name} not found")
        return found

    def apply(self, write: Write, manager: str) -> Document:
        metadata = dict(write.apply["metadata"])
        wanted = metadata.pop("resourceVersion", None)
        before = self._known[write.resource].get(write.key.name, (b"", None))[1]
        if wanted is not None and (not before or before["metadata"]["resourceVersion"] != wanted):
            raise Conflict("the object has been modified")
        if "uid" in metadata and (not before or before["metadata"]["uid"] != metadata["uid"]):
            raise Conflict("uid mismatch")
        if before is None and write.subresource:
            raise Missing("there is no such object")
        bare = replace(write, apply={**write.apply, "metadata": metadata})
        with self.change() as store:
            if manager == EVICTOR_MANAGER:
                (entry,) = bare.apply["status"]["responders"]
                verdict = store.report(bare.key.name, EVICTOR, entry)
            else:
                verdict = store.apply(bare)
        if not verdict.allowed:
            self.refused(write, [f"{each.rule}: {each.error}" for each in verdict.denied])
            raise Refused("admission refuses it")
        return self.find(write.resource, write.key.name)

    def evict(self, pod: Key, uid: str) -> None:
        found = self.store.pods.get(pod.name)
        if found is None:
            raise Missing("there is no such pod")
        if found["metadata"]["uid"] != uid:
            raise Conflict("the pod has another UID")
        if not self.is_budget_open:
            raise Busy("a budget needs it", retry_after=10.0, source=BusySource.BUDGET)
        self.end_pod(pod.name, self.grace())

    def end_pod(self, name: str, grace: timedelta) -> None:
        """Somebody deletes a pod: after its grace it is gone."""
        with self.change() as store:
            store.delete_pod(name, grace)
        uid = self.store.pods[name]["metadata"]["uid"]
        asyncio.get_running_loop().call_later(grace.total_seconds(), self._remove_pod, name, uid)

    def _remove_pod(self, name: str, uid: str) -> None:
        found = self.store.pods.get(name)
        if found is not None and found["metadata"]["uid"] == uid:
            with self.change() as store:
                store.remove_pod(name)

    def delete(self, resource: str, name: str, uid: str, version: str) -> None:
        metadata = self.find(resource, name)["metadata"]
        if metadata["uid"] != uid or version not in ("", metadata["resourceVersion"]):
            raise Conflict("the object has been modified")
        with self.change() as store:
            if resource == EVICTION_REQUESTS:
                store.delete_request(name, held=False)
            else:
                store.delete_eviction(name)

    def put_lease(self, key: Key, document: Document, *, is_new: bool) -> Document:
        stored = self.leases.get(key)
        if (stored is None) != is_new:
            raise Conflict("the Lease exists") if is_new else Missing("there is no such Lease")
        if stored and stored["metadata"]["resourceVersion"] != document["metadata"].get(
            "resourceVersion"
        ):
            raise Conflict("the Lease has been modified")
        self.version += 1
        metadata = document["metadata"] | {"resourceVersion": str(self.version), "uid": "lease"}
        self.leases[key] = {**document, "metadata": metadata}
        return self.leases[key]


class Link:
    """How one process reaches the API server, with what of ``cluster.client.Cluster`` is used."""

    def __init__(self, world: World, loss: float) -> None:
        """Of the calls the share ``loss`` gets no answer, whether they have worked or not."""
        self._world = world
        self._loss = loss
        self.time = ServerTime(lambda: world.seconds)
        self.deaf_until = dict.fromkeys((PODS, EVICTIONS, EVICTION_REQUESTS), 0.0)
        """Resource → until when its watches tell nothing, and don't end."""
        self.cut_until = 0.0
        """Until when nothing gets through; for ever after the process has crashed."""

    @property
    def clock_ahead(self) -> timedelta:
        return timedelta()

    async def _call(self, work: Callable[[], ResultT]) -> ResultT:
        chance, world = self._world.chance, self._world
        asked = world.seconds
        await asyncio.sleep(chance.uniform(0.001, 0.05))
        await self._hang_while_cut(asked)
        is_lost = chance.random() < self._loss
        if is_lost and chance.random() < 0.5:
            raise Unreachable("the request was lost")
        date = format_datetime(START + timedelta(seconds=world.seconds) + world.jumped, usegmt=True)
        try:
            return work()
        finally:
            await asyncio.sleep(chance.choice([0.001, 0.02, 0.3]))
            if is_lost or world.seconds < self.cut_until:
                raise Unreachable("the answer was lost")
            self.time.heard(date, asked, world.seconds)

    async def _hang_while_cut(self, asked: float) -> None:
        left = self.cut_until - self._world.seconds
        if left > 0:
            await asyncio.sleep(min(left, _CALL_SECONDS))
        if self._world.seconds - asked >= _CALL_SECONDS:
            raise Unreachable("there was no answer in time")

    # --- reading --------------------------------------------------------------------------------

    async def get(self, resource: Resource, key: Key) -> Document:
        return await self._call(lambda: self._world.find(resource.name, key.name))

    async def version(self, resource: Resource) -> str:
        del resource
        return await self._call(lambda: str(self._world.version))

    async def encoded_pages(self, resource: Resource) -> AsyncGenerator[Page[Raw], None]:
        async with aclosing(self.pages(resource)) as pages:
            async for page in pages:
                yield Page([Raw(msgspec.json.encode(each)) for each in page.items], page.version)

    async def pages(
        self, resource: Resource, namespace: str = ""
    ) -> AsyncGenerator[Page[Document], None]:
        assert namespace in ("", NAMESPACE)
        documents, version = await self._call(
            lambda: (self._world.listed(resource.name), self._world.version)
        )
        yield Page(documents, str(version))

    async def watch(
        self, resource: Resource, version: str, opened: Callable[[], None]
    ) -> AsyncGenerator[WatchEvent, None]:
        world, name = self._world, resource.name
        await self._call(lambda: None)
        opened()
        begun = heard = world.seconds
        seen, has_told = int(version), False
        while world.seconds < begun + _WATCH_SECONDS:
            if world.seconds - heard > _SILENT_SECONDS:
                if not has_told:
                    raise Silent("the watch told nothing at all")
                return
            deaf = max(self.deaf_until[name], self.cut_until) - world.seconds
            if deaf > 0:
                await asyncio.sleep(min(deaf, _SILENT_SECONDS / 3))
                continue
            for event in world.events_after(name, seen):
                seen, heard, has_told = event.version, world.seconds, True
                yield WatchEvent(event.type, Raw(msgspec.json.encode(event.object)))
            if world.seconds - heard >= _BOOKMARK_SECONDS:
                heard, has_told = world.seconds, True
                bookmark = {"metadata": {"resourceVersion": str(world.version)}}
                seen = world.version
                yield WatchEvent("BOOKMARK", bookmark)
            if not world.events_after(name, seen):
                await world.news(_BOOKMARK_SECONDS)
            await asyncio.sleep(world.chance.choice([0.001, 0.02, 0.5]))

    # --- writing --------------------------------------------------------------------------------

    async def apply(
        self,
        resource: Resource,
        key: Key,
        document: Mapping[str, Any],
        *,
        subresource: str = "",
        manager: str,
    ) -> Document:
        write = Write(resource.name, key, document, subresource)
        return await self._call(lambda: self._world.apply(write, manager))

    async def create(self, resource: Resource, namespace: str, document: Document) -> Document:
        key = Key(namespace, document["metadata"]["name"])
        assert resource == LEASES
        return await self._call(lambda: self._world.put_lease(key, document, is_new=True))

    async def replace(self, resource: Resource, key: Key, document: Document) -> Document:
        assert resource == LEASES
        return await self._call(lambda: self._world.put_lease(key, document, is_new=False))

    async def delete(self, resource: Resource, key: Key, uid: str, version: str = "") -> None:
        await self._call(lambda: self._world.delete(resource.name, key.name, uid, version))

    async def evict(self, pod: Key, uid: str) -> None:
        await self._call(lambda: self._world.evict(pod, uid))
