"""The work queue: once each, in its own time, never two of a lane at once."""

import asyncio
from typing import NamedTuple

from controller.queue import FIRST_BACKOFF, LONGEST_BACKOFF, Schedule, WorkQueue
from tests.patience import PATIENCE


class Thing(NamedTuple):
    name: str
    lane: str = ""
    stage: int = 0


A, B = Thing("a", "a"), Thing("b", "b")


def taken(schedule: Schedule[Thing], now: float) -> Thing | None:
    found = schedule.take(now)
    return found.item if found else None


def test_an_item_added_twice_is_taken_once() -> None:
    schedule: Schedule[Thing] = Schedule()
    schedule.add(A, 0)
    schedule.add(A, 1)
    assert schedule.take(3) == (A, 3)
    assert schedule.take(3) is None


def test_lower_stages_go_first_and_equals_in_order() -> None:
    schedule: Schedule[Thing] = Schedule()
    late = Thing("late", "late", stage=2)
    for item in (late, B, A):
        schedule.add(item, 0)
    assert [taken(schedule, 0) for _ in range(3)] == [B, A, late]


def test_a_busy_lane_waits() -> None:
    schedule: Schedule[Thing] = Schedule()
    first, second = Thing("1", "lane"), Thing("2", "lane")
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
    assert schedule.take(4.9) is None
    assert schedule.take(7) == (A, 2)
    schedule.done(A)
    assert (schedule.next_due(), schedule.take(30)) == (None, None)


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
            item, _ = await queue.get()
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
    first = asyncio.create_task(queue.get())
    second = asyncio.create_task(queue.get())
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
