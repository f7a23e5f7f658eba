"""The machine's clock is set while the controller runs: spans of its own go on, nothing is lost."""

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from cluster import clock
from cluster import leader_election as lease_module
from cluster.failures import Refused
from cluster.key import Key
from cluster.leader_election import Elector, Terms
from cluster.resources import Resource
from cluster.server_time import ServerTime
from cluster.work_queue import WorkQueue
from controller.eviction.loop import LONGEST_WAIT
from controller.eviction.plan import Sync, plan
from controller.eviction.planning.deferral import with_deferral
from controller.eviction.routing import Item
from controller.evictor.planning import FIRST_BACKOFF, Answer, Attempts
from rules.api import EVICTOR
from rules.times import format_time
from tests.controller import objects
from tests.controller.objects import Document, target_of
from tests.controller.program import reasons, states
from tests.controller.store import START, Store
from tests.controller.test_loop import TICK, Controller, FastQueue, Model, run_until

HOURS = timedelta(hours=5)
RESPONDER = "db.acme.io/failover"
JUMPS = [HOURS, -HOURS]


class Judge(Model):
    """An API server that goes by its own clock, and refuses what does not fit it."""

    async def apply(
        self,
        resource: Resource,
        key: Key,
        document: Mapping[str, Any],
        *,
        subresource: str,
        manager: str,
    ) -> Document:
        try:
            return await super().apply(
                resource, key, document, subresource=subresource, manager=manager
            )
        except AssertionError:
            raise Refused("not at this time") from None


@pytest.mark.parametrize("jump", JUMPS)
async def test_a_clock_that_is_set_and_set_back_loses_nothing(
    monkeypatch: pytest.MonkeyPatch, jump: timedelta
) -> None:
    store, offset = Store(), timedelta()
    monkeypatch.setattr(clock, "now", lambda: store.now + offset)
    model = Judge(store, lambda: None)
    store.create_pod("db-0", [(RESPONDER, 20_000)])
    store.create_request(target_of(store.pods["db-0"]), "ops.acme.io/drain", "Eviction")
    controller = Controller(model)
    name = "pod-1-db-0"
    await run_until(controller, model, lambda: RESPONDER in states(store.evictions.get(name, {})))
    offset = jump
    store.create_pod("web-0")
    store.create_request(target_of(store.pods["web-0"]), "ops.acme.io/drain", "Eviction")
    soon = store.now + timedelta(minutes=2)
    await run_until(controller, model, lambda: store.now > soon)
    # Whose turn it is the API server knows better.
    assert states(store.evictions[name]) == {RESPONDER: "Active", EVICTOR: "Inactive"}
    offset = timedelta()
    store.report(name, RESPONDER, {"completionTime": format_time(store.now)})
    await run_until(controller, model, lambda: not store.pods, timedelta(seconds=2))
    await run_until(controller, model, lambda: all(map(reasons, store.evictions.values())))
    assert states(store.evictions[name]) == {RESPONDER: "Completed", EVICTOR: "Completed"}
    assert model.evicted in (["db-0", "web-0"], ["web-0", "db-0"])


@pytest.mark.parametrize("jump", JUMPS)
async def test_a_leader_leads_by_the_steady_clock(
    monkeypatch: pytest.MonkeyPatch, jump: timedelta
) -> None:
    wall, steady = datetime(2026, 7, 1, tzinfo=UTC), 100.0
    monkeypatch.setattr(clock, "now", lambda: wall)
    monkeypatch.setattr(lease_module, "monotonic", lambda: steady)
    elector = Elector(_Leases(), Key("kube-system", "usher"), "me", Terms(), lambda _: None)
    await elector.acquire()
    wall += jump
    steady += 9.9
    assert elector.leads()
    steady += 0.1
    assert not elector.leads()


class _Leases:
    """A cluster in which there is nobody else."""

    time = ServerTime()

    async def get(self, *_: Any) -> Document:
        return {"metadata": {"resourceVersion": "1"}, "spec": {}}

    async def replace(self, _: Resource, __: Key, lease: Document) -> Document:
        return lease


async def test_queues_wait_by_the_steady_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock, "now", lambda: START + HOURS)
    queue: WorkQueue[Item] = WorkQueue()
    item = Item(Sync.EVICTION, Key("n", "a"), "1")
    queue.add(item, delay=0.05)
    assert (await asyncio.wait_for(queue.get(item.pool), 30)).item == item


def test_an_attempt_that_lies_ahead_says_nothing() -> None:
    made = Attempts(3, START + HOURS, Answer.REFUSED, "no")
    assert made.left(START) == timedelta()
    # Clocks of two machines differ by a little.
    assert (
        Attempts(1, START + timedelta(seconds=2), Answer.REFUSED, "no").left(START) > FIRST_BACKOFF
    )


def test_no_report_is_put_off_for_hours() -> None:
    store = Store()
    store.create_pod("web")
    target = target_of(store.pods["web"])
    name = store.create_request(target, "ops.acme.io/drain", "Eviction")
    number = 7
    store.evictions["pod-1-web"] = objects.eviction("pod-1-web", target, number, format_time(START))
    key, seen = Key(objects.NAMESPACE, name), store.snapshot({})
    for ago, writes in ((timedelta(), 0), (timedelta(seconds=20), 0), (HOURS, 1)):
        now = START - ago
        planned = plan(Sync.REQUEST, key, seen, now)
        assert len(with_deferral(Sync.REQUEST, planned, key, seen, now).writes) == writes


async def test_everything_is_looked_at_again_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store()
    monkeypatch.setattr(clock, "now", lambda: store.now - HOURS)
    delays: list[float] = []
    add = FastQueue.add

    def note(queue: FastQueue, item: Item, delay: float = 0.0) -> None:
        delays.append(delay)
        add(queue, item, delay)

    monkeypatch.setattr(FastQueue, "add", note)
    model = Judge(store, lambda: None)
    store.create_pod("db-0", [(RESPONDER, 20_000)])
    store.create_request(target_of(store.pods["db-0"]), "ops.acme.io/drain", "Eviction")
    later = store.now + timedelta(minutes=1)
    await run_until(Controller(model), model, lambda: store.now > later)
    assert TICK < max(delays) <= LONGEST_WAIT.total_seconds()
