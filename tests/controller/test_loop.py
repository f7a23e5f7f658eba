"""The loop on the model of a store, where every request may fail in every way."""

import asyncio
import json
import random
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any, Final

import pytest

from cluster import clock
from cluster.client import Page
from cluster.event import Occurrence
from cluster.failures import (
    Busy,
    ClusterFailure,
    Conflict,
    Denied,
    Gone,
    Missing,
    Refused,
    ServerFailure,
    Unreachable,
)
from cluster.key import Key
from cluster.resources import PODS as PODS_RESOURCE
from cluster.resources import Resource
from cluster.server_time import ServerTime
from cluster.store import entry_of
from cluster.work_queue import WorkQueue
from controller.eviction.loop import Handler, Loop
from controller.eviction.plan import Sync
from controller.eviction.planning.extras import Extras
from controller.eviction.planning.writes import EVICTION_REQUESTS, EVICTIONS, Write
from controller.eviction.reconciler import Reconciler
from controller.eviction.routing import EVICTOR as EVICTOR_WORK
from controller.eviction.routing import Item, Router
from controller.eviction.verification import Verifier
from controller.eviction.view import View, read_eviction, read_pod, read_request
from controller.eviction.writer import Writer
from controller.evictor.evictor import Evictor
from controller.metrics import Metrics
from rules.api import EVICTOR, Eviction
from tests.controller.objects import Document, target_of
from tests.controller.program import reasons, states
from tests.controller.store import Store
from tests.patience import PATIENCE

FAILURES: Final[tuple[ClusterFailure, ...]] = (
    Conflict("changed"),
    Missing("gone"),
    Gone("too old"),
    Denied("no", "patch evictions"),
    Busy("later", 0.001),
    Refused("no"),
    ServerFailure("broken", 0.001),
    Unreachable("no answer"),
)
PODS: Final = 8
TICK: Final = 0.002
"""Seconds in which the model's time goes on by :data:`SPAN`."""
SPAN: Final = timedelta(milliseconds=500)


class Model:
    """An API server on the model store; with ``fail`` a request fails before or after it works."""

    def __init__(self, store: Store, fail: Callable[[], ClusterFailure | None]) -> None:
        self.store = store
        self._fail = fail
        self.time = ServerTime()
        self.evicted: list[str] = []
        self.writes = 0
        self._versions: dict[tuple[str, str], tuple[str, int]] = {}

    async def apply(
        self,
        resource: Resource,
        key: Key,
        document: Mapping[str, Any],
        *,
        subresource: str,
        manager: str,
    ) -> Document:
        await self._work()
        self.writes += 1
        metadata = dict(document["metadata"])
        wanted = metadata.pop("resourceVersion", None)
        if wanted not in (None, self._version(resource.name, key.name)):
            raise Conflict("it has changed")
        write = Write(resource.name, key, {**document, "metadata": metadata}, subresource)
        if manager == "usher-evictor":
            self._report(write)
        else:
            assert self.store.apply(write).violations == ()
        await self._work()
        return self.document(resource.name, key.name)

    def _report(self, write: Write) -> None:
        (entry,) = write.apply["status"]["responders"]
        assert self.store.report(write.key.name, EVICTOR, entry).allowed

    async def evict(self, pod: Key, uid: str) -> None:
        await self._work()
        found = self.store.pods.get(pod.name)
        if found is None or found["metadata"]["uid"] != uid:
            raise Missing("no such pod")
        self.store.remove_pod(pod.name)
        self.evicted.append(pod.name)
        await self._work()

    async def _work(self) -> None:
        await asyncio.sleep(0)
        if failure := self._fail():
            raise failure

    async def get(self, resource: Resource, key: Key) -> Document:
        await self._work()
        if resource == PODS_RESOURCE:
            if key.name not in self.store.pods:
                raise Missing("no such pod")
            return self.store.pods[key.name]
        if key.name not in self.store.stored[resource.name]:
            raise Missing("no such object")
        return self.document(resource.name, key.name)

    async def pages(self, resource: Resource, _: str = "") -> AsyncGenerator[Page, None]:
        await self._work()
        documents = [
            self.document(resource.name, name) for name in self.store.stored[resource.name]
        ]
        yield Page(documents, str(self.store.version))

    def document(self, resource: str, name: str) -> Document:
        stored = self.store.stored[resource][name]
        metadata = stored["metadata"] | {"resourceVersion": self._version(resource, name)}
        return stored | {"metadata": metadata}

    def _version(self, resource: str, name: str) -> str:
        """The store's own version when this object was first seen as it is now."""
        content = json.dumps(self.store.stored[resource].get(name))
        known = self._versions.get((resource, name))
        if known is None or known[0] != content:
            known = self._versions[resource, name] = (content, self.store.version)
        return str(known[1])


class FastQueue(WorkQueue[Item]):
    """Its delays pass as fast as the model's time."""

    def add(self, item: Item, delay: float = 0.0) -> None:
        super().add(item, delay * TICK / SPAN.total_seconds())


class Controller:
    """The parts that the program puts together, with a watch that tells everything at once."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self.view = view = View()
        self._queue = FastQueue()
        self._router = Router(view)
        learn = {
            "pods": lambda _: None,
            EVICTIONS: self._learn_eviction,
            EVICTION_REQUESTS: self._learn_request,
        }
        cluster: Any = model
        self.metrics = metrics = Metrics()
        writer = Writer(cluster, metrics, learn, lambda: True)
        self.told: list[str] = []

        def tell(_: Eviction, occurrence: Occurrence) -> None:
            self.told.append(f"{occurrence.level.name} {occurrence.reason}")

        def now() -> datetime:
            return model.store.now

        self.writer = writer
        verifier = Verifier(cluster, view, learn, lambda: None)
        reconciler = Reconciler(
            view, writer, verifier, extras=Extras, tell=tell, metrics=metrics, now=now
        )
        handlers: dict[str, Handler] = dict.fromkeys(Sync, reconciler.run)
        handlers[EVICTOR_WORK] = Evictor(view, writer, verifier, metrics, tell, now).run
        self.loop = Loop(self._queue, handlers, metrics)

    def _learn_eviction(self, document: Mapping[str, Any]) -> None:
        self._tell(
            self._router.eviction,
            self.view.evictions.learn(entry_of(document, read_eviction(document))),
        )

    def _learn_request(self, document: Mapping[str, Any]) -> None:
        self._tell(
            self._router.request,
            self.view.requests.learn(entry_of(document, read_request(document))),
        )

    def _tell(self, route: Callable[[Any], Iterator[Item]], changes: list[Any]) -> None:
        for change in changes:
            for item in route(change):
                self._queue.add(item)

    def watch(self) -> None:
        """Tell all that is stored now."""
        store, version = self._model.store, self._model.store.version
        self._tell(
            self._router.pod,
            self.view.pods.replace(
                [entry_of(pod, read_pod(pod)) for pod in store.pods.values()], version
            ),
        )
        for resource, known, read, route in (
            (EVICTIONS, self.view.evictions, read_eviction, self._router.eviction),
            (EVICTION_REQUESTS, self.view.requests, read_request, self._router.request),
        ):
            documents = [self._model.document(resource, name) for name in store.stored[resource]]
            any_store: Any = known
            entries = [entry_of(document, read(document)) for document in documents]
            self._tell(route, any_store.replace(entries, version))


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Store:
    """A store whose clock is everybody's."""
    store = Store()
    monkeypatch.setattr(clock, "now", lambda: store.now)
    return store


async def run_until(
    controller: Controller, model: Model, done: Callable[[], bool], passes: timedelta = SPAN
) -> None:
    """Work, watch and let time pass, ``passes`` with each tick, until ``done``."""
    task = asyncio.create_task(controller.loop.run(3))
    try:
        async with asyncio.timeout(PATIENCE):
            while not done():
                controller.watch()
                await asyncio.sleep(TICK)
                assert not task.done(), task.exception()
                model.store.now += passes
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def populate(store: Store) -> None:
    for number in range(PODS):
        store.create_pod(f"web-{number}")
        target = target_of(store.pods[f"web-{number}"])
        store.create_request(target, f"r{number}.acme.io/drain", "Eviction")
    store.create_pod("bystander")


def all_are_evicted(store: Store) -> bool:
    return all("PodDeleted" in reasons(request) for request in store.requests.values())


async def test_every_eviction_takes_six_writes(store: Store) -> None:
    model = Model(store, lambda: None)
    populate(store)
    # All in one instant, so that nothing depends on how fast this machine is.
    await run_until(Controller(model), model, lambda: all_are_evicted(store), timedelta())
    assert model.writes + len(model.evicted) == 6 * PODS
    assert sorted(model.evicted) == [f"web-{number}" for number in range(PODS)]
    assert list(store.pods) == ["bystander"]


async def test_of_plain_evictions_only_those_are_told_who_ask_for_all(store: Store) -> None:
    model = Model(store, lambda: None)
    populate(store)
    controller = Controller(model)
    await run_until(controller, model, lambda: all_are_evicted(store), timedelta())
    told = ("ALL ResponderActive", "ALL ResponderCompleted", "ALL EvictionSucceeded")
    assert Counter(controller.told) == dict.fromkeys(told, PODS)


async def test_every_end_is_counted(store: Store) -> None:
    model = Model(store, lambda: None)
    populate(store)
    controller = Controller(model)
    await run_until(controller, model, lambda: all_are_evicted(store), timedelta())
    shown = controller.metrics.registry.get_sample_value
    assert shown("usher_controller_evictions_ended_total", {"reason": "PodDeleted"}) == PODS
    assert shown("usher_controller_eviction_duration_seconds_count", {"outcome": "evicted"}) == PODS
    turns = {"responder": "evictor", "outcome": "completed"}
    assert shown("usher_controller_responder_turn_seconds_count", turns) == PODS


@pytest.mark.parametrize("seed", range(6))
async def test_no_failure_keeps_an_eviction_from_its_end(store: Store, seed: int) -> None:
    dice = random.Random(seed)
    model = Model(store, lambda: dice.choice(FAILURES) if dice.random() < 0.3 else None)
    populate(store)
    await run_until(Controller(model), model, lambda: all_are_evicted(store))
    assert sorted(model.evicted) == [f"web-{number}" for number in range(PODS)]
    assert len(store.evictions) == PODS
    assert list(store.pods) == ["bystander"]


async def test_a_restart_goes_on(store: Store) -> None:
    model = Model(store, lambda: None)
    populate(store)
    for goal in range(1, PODS):
        await run_until(Controller(model), model, lambda: len(model.evicted) >= goal)  # noqa: B023
    await run_until(Controller(model), model, lambda: all_are_evicted(store))
    assert sorted(model.evicted) == [f"web-{number}" for number in range(PODS)]
    for eviction in store.evictions.values():
        assert set(states(eviction)) == {EVICTOR}


async def test_who_does_not_lead_writes_nothing(store: Store) -> None:
    model = Model(store, lambda: None)
    populate(store)
    controller = Controller(model)
    controller.writer._may_write = lambda: False
    task = asyncio.create_task(controller.loop.run(3))
    controller.watch()
    await asyncio.sleep(0.05)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert (model.writes, model.evicted) == (0, [])
