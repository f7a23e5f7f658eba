"""Events are sent beside the work, each once; what can't be sent is lost without noise."""

import asyncio
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, Counter

from cluster import recorder as events_module
from cluster.event import Level, Occurrence
from cluster.failures import ClusterFailure, Denied, Unreachable
from cluster.recorder import MAX_NOTE, MAX_WAITING, REPEAT_SECONDS, Recorder
from cluster.resources import EVENTS, Resource
from rules.api import Eviction
from rules.decode import decode_model
from tests.controller import objects
from tests.controller.objects import Document

OCCURRENCE = Occurrence("EvictionRefused", "The disruption budget b needs 1", is_warning=True)
QUIET = Occurrence("EvictionSucceeded", "PodDeleted", Level.ALL)


def eviction(number: int = 7) -> Eviction:
    target = objects.target_of(objects.pod("web", 1))
    return decode_model(
        Eviction, objects.eviction("pod-1-web", target, number, "2026-07-01T12:00:00Z")
    )


class Cluster:
    """Takes Events, or fails."""

    def __init__(self, failure: ClusterFailure | None = None) -> None:
        self.failure = failure
        self.created: list[Document] = []

    async def create(self, resource: Resource, namespace: str, document: Document) -> Document:
        assert (resource, namespace) == (EVENTS, document["metadata"]["namespace"])
        if self.failure:
            raise self.failure
        self.created.append(document)
        return document


class Bench:
    """A recorder, its cluster, and a steady clock that stands still."""

    def __init__(self, level: Level, failure: ClusterFailure | None = None) -> None:
        self.cluster = Cluster(failure)
        self.counter = Counter("events", "", ("result",), registry=CollectorRegistry())
        cluster: Any = self.cluster
        self.recorder = Recorder(cluster, level, self.counter)
        self.seconds = 1000.0

    async def send(self) -> list[Document]:
        """Everything that was told so far."""
        task = asyncio.create_task(self.recorder.run())
        for _ in range(self.recorder._waiting.qsize() + 1):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return self.cluster.created

    def count(self, result: str) -> float:
        value: float = self.counter.labels(result)._value.get()
        return value


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    bench = Bench(Level.NOTABLE)
    monkeypatch.setattr(events_module, "monotonic", lambda: bench.seconds)
    return bench


async def test_both_the_eviction_and_the_pod_are_told(bench: Bench) -> None:
    bench.recorder.tell(eviction(), OCCURRENCE)
    first, second = await bench.send()
    assert [e["involvedObject"]["kind"] for e in (first, second)] == ["Eviction", "Pod"]
    assert second["involvedObject"]["uid"] == objects.uid(1)
    assert (first["type"], first["reason"], first["count"]) == ("Warning", "EvictionRefused", 1)
    assert first["message"] == OCCURRENCE.message
    assert first["metadata"]["name"] != second["metadata"]["name"]
    assert bench.count("ok") == 2


async def test_what_is_repeated_is_counted_and_said_later(bench: Bench) -> None:
    for _ in range(5):
        bench.recorder.tell(eviction(), OCCURRENCE)
    assert len(await bench.send()) == 2
    bench.seconds += REPEAT_SECONDS
    bench.recorder.tell(eviction(), OCCURRENCE)
    *_, last = await bench.send()
    assert last["count"] == 5
    bench.seconds += REPEAT_SECONDS
    bench.recorder.tell(eviction(), OCCURRENCE)
    *_, last = await bench.send()
    assert last["count"] == 1


async def test_another_eviction_of_the_pod_is_another_subject(bench: Bench) -> None:
    bench.recorder.tell(eviction(7), OCCURRENCE)
    bench.recorder.tell(eviction(8), OCCURRENCE)
    kinds = [event["involvedObject"]["kind"] for event in await bench.send()]
    assert kinds == ["Eviction", "Pod", "Eviction"]


@pytest.mark.parametrize(
    ("level", "told"), [(Level.NONE, []), (Level.NOTABLE, ["Warning"]), (Level.ALL, None)]
)
async def test_levels(level: Level, told: list[str] | None) -> None:
    bench = Bench(level)
    bench.recorder.tell(eviction(), QUIET)
    bench.recorder.tell(eviction(), OCCURRENCE)
    wanted = ["Normal", "Warning"] if told is None else told
    assert [e["type"] for e in await bench.send()][::2] == wanted


async def test_a_long_message_is_cut(bench: Bench) -> None:
    bench.recorder.tell(eviction(), Occurrence("EvictionRefused", "x" * 5000))
    assert [len(event["message"]) for event in await bench.send()] == [MAX_NOTE] * 2


async def test_more_than_can_wait_are_dropped(bench: Bench) -> None:
    for number in range(MAX_WAITING // 2 + 5):
        bench.recorder.tell(eviction(), Occurrence("EvictionRefused", str(number)))
    assert bench.count("dropped") == 10


@pytest.mark.parametrize("failure", [Unreachable("no"), Denied("no", "create events")])
async def test_an_event_that_can_not_be_sent_is_lost(failure: ClusterFailure) -> None:
    bench = Bench(Level.NOTABLE, failure)
    bench.recorder.tell(eviction(), OCCURRENCE)
    assert await bench.send() == []
    assert bench.count("lost") == 2


async def test_events_of_what_has_no_namespace_are_in_the_default_one() -> None:
    bench = Bench(Level.NOTABLE)
    node = {"apiVersion": "v1", "kind": "Node", "namespace": "", "name": "n", "uid": "u"}
    bench.recorder.say(node, OCCURRENCE)
    bench.recorder.say(node, QUIET)
    (event,) = await bench.send()
    assert event["metadata"]["namespace"] == "default"
    assert event["involvedObject"] == node
