"""A small cluster with failed nodes, and leaders that come and die at any moment, in virtual time.

The reconciler of nodes is the real one, and so is the writer. The API server is a model of a few
lines that keeps what arrived when.
"""

import asyncio
import heapq
import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

import pytest

from cluster import clock
from cluster.failures import ClusterFailure, Missing
from cluster.key import Key
from cluster.resources import Resource
from cluster.store import Change, Entry, entry_of
from cluster.work_queue import FIRST_BACKOFF
from controller.eviction.loop import reaction_to
from controller.eviction.routing import Item
from controller.eviction.view import KnownPod, View, read_request
from controller.eviction.writer import NotLeadingError, Writer
from controller.metrics import Metrics
from controller.node_health import reconciler as node_reconciler
from controller.node_health import requests as node_requests
from controller.node_health import zone_budgets
from controller.node_health.planning.plan import REQUESTER
from controller.node_health.planning.pods import NodePod
from controller.node_health.planning.zones import Health, Node, Zone
from controller.node_health.reconciler import NodeHealth, NodeReconciler
from rules.times import format_time
from tests.controller.nodes import AT_ONCE, SECOND, START, A, B
from tests.controller.objects import Document, uid

MARGIN: Final = 10 * SECOND
"""The renew deadline."""
TAKEOVER: Final = 15 * SECOND
"""The lease duration."""
NODES: Final = {f"n{number}": (A, B)[number % 2] for number in range(8)}
PODS_OF_A_NODE: Final = 3


class Killed(BaseException):
    """The process ends here."""


class Arrival(NamedTuple):
    """A request that was made for a pod of a node."""

    time: datetime
    node: str
    zone: Zone


class World:
    """The cluster, and the one clock that is right."""

    def __init__(self) -> None:
        self.now = START
        self.nodes = {name: Node(name, zone, Health.READY, START) for name, zone in NODES.items()}
        names = [f"{name}-pod-{place}" for name in NODES for place in range(PODS_OF_A_NODE)]
        self.pods = {
            uid(number): NodePod(
                Key("default", name), uid(number), name.partition("-")[0], AT_ONCE, AT_ONCE
            )
            for number, name in enumerate(names)
        }
        self.requests: dict[str, Document] = {}
        self.note = ""
        self.noted = START
        self.arrivals: list[Arrival] = []
        self.latency: Callable[[], float] = lambda: 0.01
        """Seconds that a write takes, one half before it has its effect."""
        self.fate: Callable[[], ClusterFailure | type[Killed] | None] = lambda: None
        """What becomes of a write, asked before and after its effect."""
        self.clock_set = 0.0
        """Seconds by which the leader's clock is ahead."""
        self.misjudged = 0.0
        """Seconds by which what it knows of the API server's time is behind."""
        self._versions = itertools.count(1)

    def turn(self, health: Health, *names: str) -> None:
        for name in names:
            if self.nodes[name].health is not health:
                self.nodes[name] = Node(name, NODES[name], health, self.now)

    def steady(self) -> float:
        return (self.now - START).total_seconds()

    def wall(self) -> datetime:
        return self.now + timedelta(seconds=self.clock_set)

    def pass_by(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)

    def version(self) -> str:
        return str(next(self._versions))

    def settle(self) -> None:
        """The controller of requests takes note of what they want."""
        for document in self.requests.values():
            document["status"] = {"observedGeneration": document["metadata"]["generation"]}

    def wanted(self) -> set[str]:
        """The nodes of which pods are asked to leave."""
        return {self.pods[uid].node for uid in self.asked()}

    def asked(self) -> set[str]:
        """UIDs of the pods that are asked to leave."""
        return {
            document["spec"]["target"]["pod"]["uid"]
            for document in self.requests.values()
            if document["spec"]["intent"] == "Eviction"
        }

    # --- the API server -------------------------------------------------------------------------

    async def arrive(self) -> None:
        """The first half of a write."""
        self.pass_by(self.latency() / 2)
        self._meet()

    async def answer(self) -> None:
        """The second half."""
        self.pass_by(self.latency() / 2)
        self._meet()

    def _meet(self) -> None:
        fate = self.fate()
        if isinstance(fate, ClusterFailure):
            raise fate
        if fate is not None:
            raise fate

    def apply(self, document: Mapping[str, Any]) -> Document:
        name, target = document["metadata"]["name"], document["spec"]["target"]["pod"]["uid"]
        stored = self.requests.get(name)
        if stored is None:
            pod = self.pods[target]
            self.arrivals.append(Arrival(self.now, pod.node, self.nodes[pod.node].zone))
            metadata = {**document["metadata"], "uid": uid(10_000 + len(self.arrivals))}
            metadata["creationTimestamp"] = format_time(self.now.replace(microsecond=0))
            stored = {**document, "metadata": metadata | {"generation": 0}}
        generation = stored["metadata"]["generation"] + (stored["spec"] != document["spec"])
        generation = max(generation, 1)
        versions = {"generation": generation, "resourceVersion": self.version()}
        self.requests[name] = {
            **stored,
            "spec": document["spec"],
            "metadata": stored["metadata"] | versions,
        }
        return self.requests[name]


class Lead:
    """A leader's hold on the Lease."""

    subject = None
    margin = MARGIN
    beat = 0.0

    def __init__(self, world: World) -> None:
        self._world = world
        self.inherited = world.note
        self.note: Callable[[], str | None] = lambda: None
        self.until = world.now + MARGIN

    def leads(self) -> bool:
        return self._world.now < self.until

    async def keep(self) -> None:
        """Renew."""
        began, note = self._world.now, self.note()
        await self._world.arrive()
        if note is not None:
            self._world.note, self._world.noted = note, self._world.now
        await self._world.answer()
        self.until = began + MARGIN

    async def acquire(self) -> None: ...
    async def hold(self) -> None: ...
    async def release(self) -> None: ...


class Leader:
    """One process that leads: the reconciler of nodes, its queue, and what it sees."""

    jumps = 0
    """Of the time: none of the kind that would be noticed."""

    def __init__(self, world: World, settings: NodeHealth) -> None:
        self.world = world
        self.metrics = Metrics()
        self.told: list[str] = []
        self.view = View()
        self.lead = Lead(world)
        self._queue: list[tuple[float, int, Item]] = []
        self._numbers = itertools.count()
        self.deleted: list[str] = []
        """Names of pods."""
        self.is_watching = True
        """Whether the API server tells it about nodes."""
        self._failures: Counter[Item] = Counter()
        self._busy: set[Item] = set()
        self.in_flight: Mapping[str, Any] | None = None
        """What was sent and is not known to have arrived."""
        learn = {"evictionrequests": self._learn}
        writer = Writer(self, self.metrics, learn, self.lead.leads)  # type: ignore[arg-type]
        self.reconciler = NodeReconciler(
            settings,
            self,  # type: ignore[arg-type]
            self.view,
            writer,
            self.lead,
            lambda _, occurrence: self.told.append(occurrence.reason),
            self.metrics,
            self.add,
        )
        self.lead.note = self.reconciler.note
        self.reconciler.informer.trouble = None
        self._seen: dict[str, Node] = {}
        for number, pod in enumerate(world.pods.values()):
            entry = Entry(pod.key, pod.uid, number, KnownPod(b"", pod))
            self._tell(self.view.pods.put(entry), self.reconciler.pod_changed)
        for document in world.requests.values():
            self._learn(document)
        self.watch()
        self.reconciler.informer.catch_up = self._caught_up  # type: ignore[method-assign]
        asyncio.run(self.reconciler.begin())

    @property
    def time(self) -> "Leader":
        return self  # the API server's, as far as it is known

    def now(self) -> datetime:
        return self.world.now - timedelta(seconds=self.world.misjudged)

    async def _caught_up(self) -> None:
        """The watch is as the test has it."""

    # --- what it sees ---------------------------------------------------------------------------

    def watch(self) -> None:
        """Take note of nodes, and of requests that others have changed."""
        for name, node in self.world.nodes.items() if self.is_watching else ():
            if self._seen.get(name) != node:
                self._seen[name] = node
                entry = Entry(Key("", name), name, int(self.world.version()), node)
                self._tell(self.reconciler.informer.store.put(entry), self.reconciler.node_changed)
        for document in self.world.requests.values():
            document["metadata"]["resourceVersion"] = self.world.version()
            self._learn(document)

    def _learn(self, document: Mapping[str, Any]) -> None:
        entry = entry_of(document, read_request(document))
        self._tell(self.view.requests.learn(entry), self.reconciler.request_changed)

    def _tell(self, changes: list[Change[Any]], changed: Callable[[Change[Any]], None]) -> None:
        for change in changes:
            changed(change)

    # --- what it does ---------------------------------------------------------------------------

    def add(self, item: Item, delay: float) -> None:
        heapq.heappush(self._queue, (self.world.steady() + delay, next(self._numbers), item))

    async def work(self) -> None:
        """Do what is due now; what an item is busy with nobody else does."""
        while self._queue and self._queue[0][0] <= self.world.steady():
            item = heapq.heappop(self._queue)[2]
            if item in self._busy:
                self.add(item, 0.001)
                return
            await self._do(item)

    async def run(self, span: float, renewal_span: float = 2.0) -> None:
        """Work until ``span`` seconds are over, and renew the Lease every so often."""
        end, renewal = self.world.steady() + span, self.world.steady()
        while self.world.steady() < end:
            if not self.lead.leads():
                raise Killed  # a real one would stand by, and forget as much
            if self.world.steady() >= renewal:
                await self._renew()
                renewal = self.world.steady() + renewal_span
            self.watch()
            await self.work()
            due = min([renewal, end, *(entry[0] for entry in self._queue[:1])])
            self.world.pass_by(max(due - self.world.steady(), 0.001))

    async def _renew(self) -> None:
        with suppress(ClusterFailure):
            await self.lead.keep()

    async def _do(self, item: Item) -> None:
        self._busy.add(item)
        try:
            again = await self.reconciler.handlers[item.work](item)
        except ClusterFailure as failure:
            self._failures[item] += 1
            reaction = reaction_to(failure)
            backoff = FIRST_BACKOFF * 2.0 ** min(self._failures[item], 10)
            if reaction.retry:
                self.add(item, max(backoff, reaction.at_least))
        except NotLeadingError:
            raise Killed from None
        else:
            del self._failures[item]
            if again is not None:
                self.add(item, again.total_seconds())
        finally:
            self._busy.discard(item)

    # --- the API server, as the writer calls it -------------------------------------------------

    async def apply(
        self,
        resource: Resource,
        _: Key,
        document: Mapping[str, Any],
        *,
        subresource: str,
        manager: str,
    ) -> Document:
        assert (resource.name, subresource, manager) == (
            "evictionrequests",
            "",
            "usher-node-health",
        )
        assert document["spec"]["requester"] == REQUESTER
        self.in_flight = document
        try:
            await self.world.arrive()
        except ClusterFailure:
            self.in_flight = None
            raise
        stored = self.world.apply(document)
        self.in_flight = None
        await self.work()  # others are not idle while this one waits for its answer
        await self.world.answer()
        return stored

    async def get(self, _: Resource, key: Key) -> Document:
        """A node, in a form that :func:`virtual` lets be read."""
        await self.world.arrive()
        node = self.world.nodes.get(key.name)
        if node is None:
            raise Missing("gone")
        metadata = {"name": node.name, "uid": node.name, "resourceVersion": self.world.version()}
        await self.world.answer()
        return {"metadata": metadata, "node": node}

    async def delete(self, resource: Resource, key: Key, uid: str, _: str = "") -> None:
        await self.world.arrive()
        if resource.name == "pods":
            self.deleted.append(key.name)
            return
        stored = self.world.requests.pop(key.name, None)
        if stored is None:
            raise Missing("gone")
        number = int(self.world.version())
        self._tell(self.view.requests.delete(key, uid, number), self.reconciler.request_changed)
        await self.world.answer()


@contextmanager
def virtual(world: World) -> Iterator[None]:
    """All clocks are those of ``world``."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (zone_budgets, node_requests):
            patch.setattr(module, "monotonic", world.steady)
        patch.setattr(clock, "now", world.wall)
        patch.setattr(node_reconciler, "read_node", lambda document: document["node"])
        yield
