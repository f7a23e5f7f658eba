"""What is to be looked at, each item once, and when.

An item added several times is worked off once; one that is added while somebody works on its lane
is worked off after that. Items of one lane are never worked on at the same time.
"""

import asyncio
import heapq
import itertools
from collections import defaultdict, deque
from collections.abc import Callable, Hashable
from time import monotonic
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

FIRST_BACKOFF: Final = 0.25
LONGEST_BACKOFF: Final = 300.0
"""Seconds after the first failure of an item, doubling with each further one up to the longest."""
_MAX_DOUBLINGS: Final = 30


class Queued(Protocol):
    """What a queue needs to know of its items, besides that they are hashable."""

    @property
    def lane(self) -> Hashable:
        """Of the items with one lane only one is worked on at a time."""

    @property
    def stage(self) -> int:
        """Items of lower stages go first."""


ItemT = TypeVar("ItemT", bound=Queued)


class Taken(NamedTuple, Generic[ItemT]):
    """An item to work on, and how long it has waited since it was due."""

    item: ItemT
    waited: float


class Schedule(Generic[ItemT]):
    """The queue as a value: instants come from outside, in seconds of any steady clock."""

    def __init__(self) -> None:
        self._numbers = itertools.count()
        self._due: dict[ItemT, float] = {}
        self._later: list[tuple[float, int, ItemT]] = []
        """A heap; what no longer agrees with ``_due`` is void."""
        self._ready: dict[ItemT, float] = {}
        self._line: list[tuple[int, int, ItemT]] = []
        """A heap of the ready items whose lanes are free, as far as is known."""
        self._parked: dict[Hashable, list[ItemT]] = {}
        """Busy lane → ready items that wait for it."""
        self._failures: defaultdict[ItemT, int] = defaultdict(int)

    def __len__(self) -> int:
        return len(self._ready)

    @property
    def delayed(self) -> int:
        """How many items wait for their time."""
        return len(self._due)

    @property
    def has_line(self) -> bool:
        """Whether somebody could take an item, as far as is known."""
        return bool(self._line)

    def add(self, item: ItemT, now: float, delay: float = 0.0) -> None:
        """``item`` is due after ``delay``, or when it was already, if that is earlier."""
        if item in self._ready:
            return
        due = now + delay
        if delay <= 0:
            self._due.pop(item, None)
            self._line_up(item, now)
        elif due < self._due.get(item, float("inf")):
            self._due[item] = due
            heapq.heappush(self._later, (due, next(self._numbers), item))

    def next_due(self) -> float | None:
        """When the next delayed item is due."""
        while self._later and self._due.get(self._later[0][2]) != self._later[0][0]:
            heapq.heappop(self._later)
        return self._later[0][0] if self._later else None

    def take(self, now: float) -> Taken[ItemT] | None:
        """The next item that is due and whose lane is free; its lane is busy until ``done``."""
        while (due := self.next_due()) is not None and due <= now:
            item = heapq.heappop(self._later)[2]
            del self._due[item]
            self._line_up(item, due)
        while self._line:
            item = heapq.heappop(self._line)[2]
            if item.lane in self._parked:
                self._parked[item.lane].append(item)
                continue
            self._parked[item.lane] = []
            return Taken(item, max(0.0, now - self._ready.pop(item)))
        return None

    def done(self, item: ItemT) -> None:
        """The lane of ``item`` is free again."""
        for waiting in self._parked.pop(item.lane):
            self._push(waiting)

    def failed(self, item: ItemT) -> float:
        """Count a failure of ``item``; returns the seconds to wait before the next attempt."""
        doublings = min(self._failures[item], _MAX_DOUBLINGS)
        self._failures[item] += 1
        return min(FIRST_BACKOFF * 2.0**doublings, LONGEST_BACKOFF)

    def succeeded(self, item: ItemT) -> None:
        """Forget the failures of ``item``."""
        self._failures.pop(item, None)

    def _line_up(self, item: ItemT, due: float) -> None:
        if item not in self._ready:
            self._ready[item] = due
            self._push(item)

    def _push(self, item: ItemT) -> None:
        heapq.heappush(self._line, (item.stage, next(self._numbers), item))


class WorkQueue(Generic[ItemT]):
    """A schedule that several workers wait on."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self.schedule: Schedule[ItemT] = Schedule()
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._timer: asyncio.TimerHandle | None = None

    def add(self, item: ItemT, delay: float = 0.0) -> None:
        """``item`` is due after ``delay`` seconds; see :meth:`Schedule.add`."""
        self.schedule.add(item, self._clock(), delay)
        self._wake()

    async def get(self) -> Taken[ItemT]:
        """The next item, as soon as there is one. Whoever takes it says ``done`` in the end."""
        while True:
            taken = self.schedule.take(self._clock())
            if taken is not None:
                self._wake()  # there may be another one
                return taken
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            self._set_timer()
            try:
                await waiter
            except asyncio.CancelledError:
                if waiter.done() and not waiter.cancelled():
                    self._wake()  # it was our turn, and we can't take it
                raise

    def done(self, item: ItemT) -> None:
        """The work on ``item`` has ended."""
        self.schedule.done(item)
        self._wake()

    def retry(self, item: ItemT, at_least: float = 0.0) -> float:
        """Add ``item`` again after its backoff, or ``at_least`` seconds; returns the delay."""
        delay = max(self.schedule.failed(item), at_least)
        self.add(item, delay)
        return delay

    def clear(self) -> None:
        """Forget everything; nobody may be at work."""
        self.schedule = Schedule()

    def _wake(self) -> None:
        if self.schedule.has_line:
            while self._waiters:
                waiter = self._waiters.popleft()
                if not waiter.done():
                    waiter.set_result(None)
                    return
        self._set_timer()

    def _set_timer(self) -> None:
        """Wake a waiter when the next delayed item is due."""
        due = self.schedule.next_due()
        if self._timer is not None:
            if due is not None and self._timer_due == due and not self._timer.cancelled():
                return
            self._timer.cancel()
            self._timer = None
        if due is not None and self._waiters:
            loop = asyncio.get_running_loop()
            self._timer_due = due
            self._timer = loop.call_later(max(0.0, due - self._clock()), self._ring)

    _timer_due: float = 0.0

    def _ring(self) -> None:
        self._timer = None
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return
