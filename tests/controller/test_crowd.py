"""Thousands of requests for one pod cost nobody else anything, and themselves no more than each."""

import asyncio
from collections.abc import Iterable
from datetime import timedelta
from typing import Any, Final

import msgspec

from cluster.key import Key
from cluster.store import Change, entry_of
from cluster.work_queue import WorkQueue
from controller.eviction.loop import Loop
from controller.eviction.plan import Sync, plan
from controller.eviction.planning.metadata import complete_creation
from controller.eviction.planning.owners import MAX_OWNERS, bounded_owners, with_bounded_owners
from controller.eviction.routing import EVICTOR, Item, Router
from controller.eviction.view import MAX_REQUESTS, View, read_eviction, read_pod, read_request
from controller.metrics import Metrics
from rules import api
from rules.times import format_time
from tests.controller import objects
from tests.controller.objects import NAMESPACE, Document
from tests.controller.store import START
from tests.patience import PATIENCE

POD: Final = objects.pod("db-0", 1)
TARGET: Final = objects.target_of(POD)
UID: Final = POD["metadata"]["uid"]


def request(number: int, intent: str = "Eviction") -> Document:
    """The request with that number, the older the lower it is."""
    created = format_time(START + timedelta(seconds=number))
    name, requester = f"{number:05}-{'long' * 55}", f"r{number}.acme.io/drain"
    document = objects.request(name, TARGET, number + 10, created, requester, intent)
    document["metadata"]["resourceVersion"] = str(number + 10)
    return document


def owner(document: Document) -> Document:
    names = {name: document["metadata"][name] for name in ("name", "uid")}
    return {"apiVersion": api.API_VERSION, "kind": "EvictionRequest", **names}


def view_of(documents: Iterable[Document]) -> View:
    view = View()
    view.pods.put(entry_of(POD, read_pod(POD)))
    for document in documents:
        view.requests.put(entry_of(document, read_request(document)))
    return view


def snapshot_of(view: View, name: str) -> Any:
    entry = view.requests.get(Key(NAMESPACE, name))
    assert entry is not None
    return view.snapshot(NAMESPACE, entry.value, {})


def test_each_that_comes_and_goes_wakes_no_others() -> None:
    view = view_of(request(number, "Withdrawn") for number in range(4000))
    eviction = objects.eviction("pod-1-db-0", TARGET, 5, format_time(START))
    view.evictions.put(entry_of(eviction, read_eviction(eviction)))
    router = Router(view)
    for entry in view.requests:
        assert len(list(router.request(Change(None, entry)))) <= 3
        assert len(list(router.request(Change(entry, None)))) <= 2


def test_a_plan_looks_at_no_more_requests_than_take_part() -> None:
    view = view_of(request(number, "Withdrawn") for number in range(2000))
    wanting = request(5000)
    view.requests.put(entry_of(wanting, read_request(wanting)))
    for name in (request(0)["metadata"]["name"], request(1999)["metadata"]["name"]):
        seen = snapshot_of(view, name).eviction_requests
        assert len(seen) <= MAX_REQUESTS + 1
        assert seen[0].metadata.name == wanting["metadata"]["name"]
        assert name in [each.metadata.name for each in seen]


def test_an_eviction_is_made_with_so_few_owners_that_it_fits() -> None:
    documents = [request(number) for number in range(10_000)]
    view = view_of(documents)
    last = documents[-1]["metadata"]["name"]
    snapshot = snapshot_of(view, last)
    creation, _ = plan(Sync.REQUEST, Key(NAMESPACE, last), snapshot, START).writes
    write = bounded_owners(complete_creation(creation, snapshot, START), snapshot)
    owners = write.apply["metadata"]["ownerReferences"]
    assert len(owners) == MAX_OWNERS
    assert len(msgspec.json.encode(write.apply)) < 100_000  # etcd takes 1.5 MiB


def test_who_has_withdrawn_owns_nothing_and_makes_room() -> None:
    view = view_of([*(request(n, "Withdrawn") for n in range(50)), request(60), request(61)])
    eviction = objects.eviction("pod-1-db-0", TARGET, 5, format_time(START))
    eviction["metadata"]["ownerReferences"] = [owner(request(n)) for n in (*range(40), 60)]
    view.evictions.put(entry_of(eviction, read_eviction(eviction)))
    snapshot = snapshot_of(view, request(60)["metadata"]["name"])
    key = Key(NAMESPACE, "pod-1-db-0")
    planned = with_bounded_owners(plan(Sync.METADATA, key, snapshot, START), key, snapshot)
    (write,) = planned.writes
    owners = [owner["name"][:5] for owner in write.apply["metadata"]["ownerReferences"]]
    # Ten never wanted the pod gone; those that once did stay as long as they fit.
    assert sorted(owners) == [f"{n:05}" for n in (*range(40), 60, 61)]
    crowded = view_of(
        [*(request(n, "Withdrawn") for n in range(50)), *map(request, range(60, 160))]
    )
    crowded.evictions.put(entry_of(eviction, read_eviction(eviction)))
    snapshot = snapshot_of(crowded, request(60)["metadata"]["name"])
    planned = with_bounded_owners(plan(Sync.METADATA, key, snapshot, START), key, snapshot)
    owners = [o["name"][:5] for o in planned.writes[0].apply["metadata"]["ownerReferences"]]
    assert sorted(owners) == [f"{n:05}" for n in range(60, 160)]


def test_what_would_change_nothing_is_not_written() -> None:
    view = view_of([request(60), request(1, "Withdrawn")])
    eviction = objects.eviction("pod-1-db-0", TARGET, 5, format_time(START))
    eviction["metadata"]["ownerReferences"] = [owner(request(60))]
    eviction["metadata"]["labels"] = {
        "r60.acme.io/drain": "requester",
        "r1.acme.io/drain": "requester",
        api.EVICTOR: "responder",
    }
    view.evictions.put(entry_of(eviction, read_eviction(eviction)))
    snapshot = snapshot_of(view, request(60)["metadata"]["name"])
    key = Key(NAMESPACE, "pod-1-db-0")
    planned = plan(Sync.METADATA, key, snapshot, START)
    assert planned.writes  # the reference makes everybody an owner
    assert with_bounded_owners(planned, key, snapshot).writes == ()


async def test_the_event_loop_goes_on_and_others_have_their_turn() -> None:
    queue: WorkQueue[Item] = WorkQueue()
    handled: list[Item] = []
    turns, crowd = 0, 4000

    all_handled = asyncio.Event()

    async def handle(item: Item) -> None:
        handled.append(item)
        if len(handled) > crowd:
            all_handled.set()

    async def live() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async def hang(_: Item) -> None:
        await asyncio.get_running_loop().create_future()

    for number in range(crowd):
        queue.add(Item(Sync.REQUEST, Key("crowd", str(number)), UID))
    for number in range(250):
        queue.add(Item(EVICTOR, Key("slow", str(number)), str(number)))
    honest = Item(Sync.REQUEST, Key("honest", "drain"), "other")
    queue.add(honest)
    loop = Loop(queue, {Sync.REQUEST: handle, EVICTOR: hang}, Metrics())  # type: ignore[dict-item]
    tasks = [asyncio.create_task(loop.run(10)), asyncio.create_task(live())]
    async with asyncio.timeout(PATIENCE):
        await all_handled.wait()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert handled.index(honest) < 20
    assert turns > crowd / 10
