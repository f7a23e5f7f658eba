"""What an SRE asks the controller: how evictions end, how long they take, and what goes on now."""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final

import pytest
from prometheus_client import CollectorRegistry

from cluster.client import NO_ANSWER
from cluster.failures import Denied
from cluster.key import Key
from cluster.store import entry_of
from cluster.work_queue import WorkQueue
from controller.eviction.loop import Loop
from controller.eviction.plan import Sync
from controller.eviction.planning import conditions
from controller.eviction.planning.admission import as_request
from controller.eviction.planning.extras import Extras
from controller.eviction.planning.measurements import REASONS, Waiting, waiting
from controller.eviction.routing import Item as RoutedItem
from controller.eviction.view import View, keep_eviction, read_pod
from controller.metrics import MAX_OLDEST, Metrics, StateCollector
from rules.api import EVICTOR, Eviction
from rules.times import format_time
from tests.controller import objects
from tests.controller.extended import Extended
from tests.controller.objects import Document, target_of
from tests.controller.running import Item
from tests.controller.store import START, Store
from tests.patience import PATIENCE

FIRST: Final = "db.acme.io/failover"
NAME: Final = "pod-1-web"
PREFIX: Final = "usher_controller_"


class Scene:
    """One pod and its eviction; every write to the Eviction's status is measured."""

    def __init__(self, *responders: str, extras: Extras | None = None) -> None:
        self.metrics = Metrics()
        self.store = Store()
        self._controller = Extended(self.store, extras or Extras())
        self.store.create_pod("web", [(name, 1000) for name in responders])
        target = target_of(self.store.pods["web"])
        self.request = self.store.create_request(target, "ops.acme.io/drain", "Eviction")
        self._controller.sync(Item(Sync.REQUEST, self.request), crash_after=1)

    def sync(self, after: timedelta = timedelta()) -> None:
        """Let time pass, and make the writes that are due then."""
        self.store.now += after
        snapshot = self._controller.snapshot()
        for write in self._controller.plan(Item(Sync.EVICTION, NAME)).writes:
            judged = as_request(write, snapshot, self.store.now)
            assert self.store.apply(write).allowed
            before, after_ = judged.old_object, judged.object
            assert isinstance(before, Eviction)
            assert isinstance(after_, Eviction)
            self.metrics.measure(before, after_, self.store.now)

    def settle(self) -> None:
        self._controller.settle()

    def report(self, responder: str, **entry: str) -> None:
        self.store.report(NAME, responder, entry)

    def complete(self, responder: str) -> None:
        self.report(responder, completionTime=format_time(self.store.now))

    def eviction(self) -> Eviction:
        (found,) = self._controller.snapshot().evictions
        return found

    def shown(self, name: str, **labels: str) -> float | None:
        return self.metrics.registry.get_sample_value(PREFIX + name, labels)

    def ended(self) -> dict[str, float]:
        """Reason → how often, where that is not 0."""
        counts = {each: self.shown("evictions_ended_total", reason=each) for each in REASONS}
        return {reason: count for reason, count in counts.items() if count}

    def took(self, outcome: str) -> tuple[float | None, float | None]:
        """How many evictions had that outcome, and the seconds of all of them."""
        name = "eviction_duration_seconds_"
        return tuple(self.shown(name + part, outcome=outcome) for part in ("count", "sum"))  # type: ignore[return-value]

    def turns(self) -> dict[tuple[str, str], tuple[float, float]]:
        """Responder and outcome → how many turns, and the seconds of all of them."""
        name, found = "responder_turn_seconds_", {}
        for kind in ("evictor", "other"):
            for outcome in ("completed", "interrupted", "canceled"):
                labels = {"responder": kind, "outcome": outcome}
                if count := self.shown(f"{name}count", **labels):
                    found[kind, outcome] = (count, self.shown(f"{name}sum", **labels) or 0.0)
        return found


MINUTE: Final = timedelta(minutes=1)


def test_an_eviction_that_succeeds() -> None:
    scene = Scene(FIRST)
    scene.sync()
    assert scene.turns() == {}
    scene.store.now += MINUTE
    scene.complete(FIRST)
    scene.sync()
    assert scene.turns() == {("other", "completed"): (1, 60)}
    assert scene.ended() == {}
    scene.store.now += MINUTE
    scene.complete(EVICTOR)
    scene.store.remove_pod("web")
    scene.sync()
    assert scene.ended() == {"PodDeleted": 1}
    assert scene.took("evicted") == (1, 120)
    assert scene.turns()["evictor", "completed"] == (1, 60)


def test_silence_and_nobody_left() -> None:
    scene = Scene(FIRST)
    scene.sync()
    scene.sync(20 * MINUTE)
    scene.sync(20 * MINUTE)
    scene.sync()
    assert scene.turns() == {
        ("other", "interrupted"): (1, 1200),
        ("evictor", "interrupted"): (1, 1200),
    }
    assert scene.ended() == {"NoFurtherResponder": 1}
    assert scene.took("failed") == (1, 2400)


def test_withdrawal_is_no_failure() -> None:
    scene = Scene(FIRST)
    scene.sync()
    scene.store.flip_request(scene.request, "Withdrawn")
    scene.sync(MINUTE)
    assert scene.turns() == {("other", "canceled"): (1, 60)}
    assert scene.ended() == {"CanceledDueToNoRequesters": 1}
    assert (scene.took("canceled"), scene.took("failed")) == ((1, 60), (0, 0))


def test_a_deadline() -> None:
    scene = Scene(extras=Extras(deadline=MINUTE))
    scene.sync()
    scene.sync(MINUTE)
    assert scene.ended() == {"DeadlineExceeded": 1}


def test_each_end_is_counted_once() -> None:
    scene = Scene()
    scene.sync()
    scene.complete(EVICTOR)
    scene.store.remove_pod("web")
    for _ in range(3):
        scene.sync(MINUTE)
    assert scene.ended() == {"PodDeleted": 1}


def test_every_reason_of_an_end_is_foreseen() -> None:
    outcomes = [each for each in vars(conditions).values() if isinstance(each, conditions.Outcome)]
    made = [conditions.invalid("…"), conditions.overdue(MINUTE)]
    found = {
        finding.reason
        for outcome in (*outcomes, *made)
        for finding in outcome
        if finding.status == "True"
    }
    assert found == set(REASONS)


def test_no_name_becomes_a_label() -> None:
    scene = Scene(FIRST)
    scene.sync()
    scene.complete(FIRST)
    scene.sync()
    labels = {
        value
        for family in scene.metrics.registry.collect()
        for sample in family.samples
        for value in sample.labels.values()
    }
    assert not labels & {FIRST, EVICTOR, NAME, "web"}


# --- what evictions under way wait for ------------------------------------------------------------


def test_what_an_eviction_waits_for() -> None:
    scene = Scene(FIRST)
    assert waiting(scene.eviction()) is Waiting.START
    scene.sync()
    assert waiting(scene.eviction()) is Waiting.RESPONDER
    scene.complete(FIRST)
    scene.sync()
    assert waiting(scene.eviction()) is Waiting.EVICTOR
    scene.store.now += MINUTE
    refusal = "Attempt 3 to evict the pod was refused: no"
    scene.report(EVICTOR, heartbeatTime=format_time(scene.store.now), message=refusal)
    assert waiting(scene.eviction()) is Waiting.REFUSED


# --- the leader's figures -------------------------------------------------------------------------


def _eviction(number: int, namespace: str, age: timedelta) -> Document:
    target = target_of(objects.pod(f"p{number}", number))
    document = objects.eviction(f"pod-1-p{number}", target, number, format_time(START - age))
    document["metadata"]["namespace"] = namespace
    return document


def _collector(view: View, *, leads: Callable[[], bool]) -> CollectorRegistry:
    registry = CollectorRegistry()
    registry.register(StateCollector(view, lambda: (3, 4), dict, lambda: START, leads))
    return registry


def _view(*evictions: Document) -> View:
    view = View()
    view.evictions.replace([entry_of(each, keep_eviction(each)) for each in evictions], 1)
    return view


def test_only_the_leader_speaks_for_the_cluster() -> None:
    leads = False
    registry = _collector(_view(_eviction(1, "shop", MINUTE)), leads=lambda: leads)

    def names() -> set[str]:
        return {family.name for family in registry.collect()}

    assert names() == {"usher_controller_watch_age_seconds"}
    leads = True
    assert {
        "usher_controller_evictions",
        "usher_controller_queue_depth",
        "usher_controller_stored_objects",
        "evictionrequest_controller_responder_state",
        "evictionrequest_controller_requester_intent",
    } <= names()
    leads = False
    assert names() == {"usher_controller_watch_age_seconds"}


def _oldest(registry: CollectorRegistry) -> dict[tuple[str, str], float]:
    name = "usher_controller_oldest_active_eviction_seconds"
    return {
        (sample.labels["target_namespace"], sample.labels["reason"]): sample.value
        for family in registry.collect()
        for sample in family.samples
        if sample.name == name
    }


def test_the_oldest_of_each_namespace() -> None:
    view = _view(
        _eviction(1, "shop", MINUTE),
        _eviction(2, "shop", 3 * MINUTE),
        _eviction(3, "bank", 2 * MINUTE),
    )
    assert _oldest(_collector(view, leads=lambda: True)) == {
        ("shop", "NotStarted"): 180,
        ("bank", "NotStarted"): 120,
    }


def test_a_thousand_namespaces_are_not_a_thousand_series() -> None:
    view = _view(*(_eviction(n, f"ns-{n}", n * MINUTE) for n in range(1, 1001)))
    shown = _oldest(_collector(view, leads=lambda: True))
    assert len(shown) == MAX_OLDEST
    assert min(shown.values()) == (1001 - MAX_OLDEST) * 60


def test_what_is_stored() -> None:
    view = _view(_eviction(1, "shop", MINUTE))
    pod = objects.pod("p", 1)
    view.pods.replace([entry_of(pod, read_pod(pod))], 1)
    registry = _collector(view, leads=lambda: True)
    name = "usher_controller_stored_objects"
    stored = {
        each: registry.get_sample_value(name, {"resource": each})
        for each in ("pods", "evictions", "evictionrequests")
    }
    assert stored == {"pods": 1, "evictions": 1, "evictionrequests": 0}


# --- work -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("is_terminating", "counted"), [(False, 1), (True, None)])
async def test_what_ends_with_its_namespace_is_no_failure(
    *, is_terminating: bool, counted: float | None
) -> None:
    """Namespaces come and go; an alert tells of work that keeps failing."""
    metrics, queue, done = Metrics(), WorkQueue[RoutedItem](), asyncio.Event()

    async def fail(_: RoutedItem) -> None:
        done.set()
        raise Denied("no", "create evictions", is_terminating=is_terminating)

    queue.add(RoutedItem(Sync.REQUEST, Key("shop", "drain"), objects.uid(1)))
    task = asyncio.create_task(Loop(queue, {Sync.REQUEST: fail}, metrics).run(1))
    async with asyncio.timeout(PATIENCE):
        await done.wait()
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    labels = {"work": Sync.REQUEST, "kind": "Denied"}
    assert metrics.registry.get_sample_value(f"{PREFIX}failures_total", labels) == counted


# --- the process ----------------------------------------------------------------------------------


@pytest.mark.parametrize("code", ["200", "409", NO_ANSWER])
def test_requests_are_counted_by_code_and_timed(code: str) -> None:
    metrics = Metrics()
    metrics.observe("patch", "evictions/status", code, 0.02)
    what = {"verb": "patch", "resource": "evictions/status"}
    shown: Any = metrics.registry.get_sample_value
    assert shown(f"{PREFIX}api_requests_total", {**what, "code": code}) == 1
    assert shown(f"{PREFIX}api_request_seconds_sum", what) == 0.02
    assert shown(f"{PREFIX}api_request_seconds_bucket", {**what, "le": "0.05"}) == 1


def test_the_process_tells_of_itself() -> None:
    registry = Metrics().registry
    (build,) = (each for each in registry.collect() if each.name == "usher_build_info")
    ((_, labels, value, *_),) = build.samples
    assert (labels.keys(), value) == ({"version", "python"}, 1)
    assert (registry.get_sample_value("process_resident_memory_bytes") or 0) > 0
