"""The work queue: once each, in its own time, never two of a flow at once."""

import asyncio
from typing import NamedTuple

from cluster.work_queue import FIRST_BACKOFF, LONGEST_BACKOFF, Schedule, WorkQueue
from tests.patience import PATIENCE


class Thing(NamedTuple):
    name: str
    flow: str = ""
    priority: int = 0
    namespace: str = ""
    pool: str = ""


A, B = Thing("a", "a"), Thing("b", "b")


def taken(schedule: Schedule[Thing], now: float) -> Thing | None:
    found = schedule.take(now, "")
    return found.item if found else None


def test_an_item_added_twice_is_taken_once() -> None:
    schedule: Schedule[Thing] = Schedule()
    schedule.add(A, 0)
    schedule.add(A, 1)
    assert schedule.take(3, "") == (A, 3)
    assert schedule.take(3, "") is None


def test_lower_stages_go_first_and_equals_in_order() -> None:
    schedule: Schedule[Thing] = Schedule()
    late = Thing("late", "late", priority=2)
    for item in (late, B, A):
        schedule.add(item, 0)
    assert [taken(schedule, 0) for _ in range(3)] == [B, A, late]


def test_a_busy_lane_waits() -> None:
    schedule: Schedule[Thing] = Schedule()
    first, second = Thing("1", "flow"), Thing("2", "flow")
    schedule.add(first, 0)
    schedule.add(second, 0)
    assert taken(schedule, 0) == first
    schedule.add(first, 0)  # changed again while it is worked on
    assert taken(schedule, 0) is None
    schedule.done(first)
    assert taken(schedule, 0) == second
    schedule.done(second)
    assert taken(schedule, 0) == first


def test_delays_are_kept_and_the_earlier_one_wins() -> None:
    schedule: Schedule[Thing] = Schedule()
    schedule.add(A, 0, delay=10)
    schedule.add(A, 0, delay=20)
    assert schedule.next_due() == 10
    schedule.add(A, 0, delay=5)
    assert schedule.next_due() == 5
    assert schedule.take(4.9, "") is None
    assert schedule.take(7, "") == (A, 2)
    schedule.done(A)
    assert (schedule.next_due(), schedule.take(30, "")) == (None, None)


def test_what_is_due_now_is_not_due_later_as_well() -> None:
    schedule: Schedule[Thing] = Schedule()
    schedule.add(A, 0, delay=10)
    schedule.add(A, 0)
    schedule.add(A, 0, delay=3)
    assert taken(schedule, 0) == A
    schedule.done(A)
    assert (schedule.delayed, schedule.next_due()) == (0, None)


def test_backoff_doubles_up_to_its_end_and_is_forgotten() -> None:
    schedule: Schedule[Thing] = Schedule()
    delays = [schedule.failed(A) for _ in range(60)]
    assert delays[:3] == [FIRST_BACKOFF, 2 * FIRST_BACKOFF, 4 * FIRST_BACKOFF]
    assert delays[-1] == LONGEST_BACKOFF
    schedule.succeeded(A)
    assert schedule.failed(A) == FIRST_BACKOFF


async def test_workers_share_the_items() -> None:
    queue: WorkQueue[Thing] = WorkQueue()
    done: list[str] = []
    all_done = asyncio.Event()

    async def work() -> None:
        while True:
            item, _ = await queue.get("")
            await asyncio.sleep(0)
            done.append(item.name)
            queue.done(item)
            if len(done) == len(names):
                all_done.set()

    names = [str(number) for number in range(20)]
    workers = [asyncio.create_task(work()) for _ in range(3)]
    await asyncio.sleep(0)
    for name in names:
        queue.add(Thing(name, name), delay=0.001 * (len(name) - 1))
    async with asyncio.timeout(PATIENCE):
        await all_done.wait()
    for worker in workers:
        worker.cancel()
    await asyncio.gather(*workers, return_exceptions=True)
    assert sorted(done) == sorted(names)


async def test_a_worker_that_is_cancelled_loses_nothing() -> None:
    queue: WorkQueue[Thing] = WorkQueue()
    first = asyncio.create_task(queue.get(""))
    second = asyncio.create_task(queue.get(""))
    await asyncio.sleep(0)
    queue.add(A)
    first.cancel()  # just after it was woken
    async with asyncio.timeout(PATIENCE):
        assert (await second).item == A
    assert first.cancelled()


async def test_retry_waits_as_long_as_the_server_wants() -> None:
    queue: WorkQueue[Thing] = WorkQueue()
    assert queue.retry(A, at_least=7) == 7
    assert queue.retry(B) == FIRST_BACKOFF
    queue.clear()
    assert queue.schedule.delayed == 0


def test_namespaces_take_turns() -> None:
    schedule: Schedule[Thing] = Schedule()
    for number in range(100):
        schedule.add(Thing(str(number), str(number), namespace="crowd"), 0)
    for priority in (2, 0):
        schedule.add(
            Thing(f"late {priority}", f"late {priority}", priority=priority, namespace="b"), 1
        )
    found = [taken(schedule, 1) for _ in range(5)]
    assert [thing.name for thing in found if thing] == ["0", "late 0", "1", "late 2", "2"]


def test_what_is_urgent_goes_before_all_others() -> None:
    schedule: Schedule[Thing] = Schedule()
    schedule.add(Thing("1", "1", namespace="a"), 0)
    schedule.add(Thing("urgent", "2", priority=-1, namespace="z"), 0)
    found = [taken(schedule, 1) for _ in range(2)]
    assert [thing.name for thing in found if thing] == ["urgent", "1"]


def test_pools_share_lanes_but_no_workers() -> None:
    schedule: Schedule[Thing] = Schedule()
    slow, quick = Thing("slow", "flow", pool="slow"), Thing("quick", "flow")
    other = Thing("other", "other")
    for item in (slow, quick, other):
        schedule.add(item, 0)
    assert schedule.take(0, "slow") == (slow, 0)
    assert taken(schedule, 0) == other
    assert taken(schedule, 0) is None
    schedule.done(slow)
    assert taken(schedule, 0) == quick
    assert schedule.take(0, "slow") is None


def test_no_namespace_has_more_than_its_share_of_a_pool() -> None:
    schedule: Schedule[Thing] = Schedule({"slow": 2})
    crowd = [Thing(str(n), str(n), namespace="crowd", pool="slow") for n in range(9)]
    other = Thing("x", "x", namespace="other", pool="slow")
    for item in (*crowd, other):
        schedule.add(item, 0)
    found = [schedule.take(0, "slow") for _ in range(4)]
    assert [each.item for each in found if each] == [crowd[0], other, crowd[1]]
    schedule.done(crowd[1])
    assert schedule.take(0, "slow") == (crowd[2], 0)


class Counted:
    """An item that counts how often a queue looks at it."""

    looks = 0
    priority = 0
    namespace = pool = ""

    @property
    def flow(self) -> str:
        Counted.looks += 1
        return "one"


def test_a_long_lane_costs_no_more_than_a_short_one() -> None:
    looks = []
    for number in (500, 1000, 2000):
        schedule: Schedule[Counted] = Schedule()
        Counted.looks = 0
        for _ in range(number):
            schedule.add(Counted(), 0)
        while (found := schedule.take(0, "")) is not None:
            assert schedule.take(0, "") is None  # a second worker looks for something to do
            schedule.done(found.item)
        looks.append(Counted.looks / number)
    assert max(looks) <= min(looks) * 1.1 < 10
