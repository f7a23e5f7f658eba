"""What is to be looked at, each item once, and when; and whose turn it is.

An item added several times is worked off once; one that is added while somebody works on its flow
is worked off after that. Items of one flow are never worked on at the same time. Namespaces take
turns, so that nobody waits for all the work of somebody else. See ADR 47.
"""

import asyncio
import heapq
import itertools
import sys
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Hashable, Mapping
from functools import partial
from time import monotonic
from types import MappingProxyType
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

FIRST_BACKOFF: Final = 0.25
LONGEST_BACKOFF: Final = 300.0
"""Seconds after the first failure of an item, doubling with each further one up to the longest."""
_MAX_DOUBLINGS: Final = 30
_NEVER: Final = sys.maxsize


class Queued(Protocol):
    """What a queue needs to know of its items, besides that they are hashable."""

    @property
    def flow(self) -> Hashable:
        """Of the items with one flow only one is worked on at a time."""

    @property
    def namespace(self) -> str:
        """Who takes turns with others."""

    @property
    def priority(self) -> int:
        """In a namespace lower ones go first; items of negative ones go before those of all."""

    @property
    def pool(self) -> str:
        """Whose work it is: each pool has workers of its own."""


ItemT = TypeVar("ItemT", bound=Queued)


class Taken(NamedTuple, Generic[ItemT]):
    """An item to work on, and how long it has waited since it was due."""

    item: ItemT
    waited: float


class _Rota(Generic[ItemT]):
    """The flows with something to do for one pool: namespaces in turn, lower priorities first."""

    def __init__(self) -> None:
        self._offers: OrderedDict[str, list[tuple[int, int, ItemT]]] = OrderedDict()
        """Namespace → a heap; who comes next is at the front."""

    def __bool__(self) -> bool:
        return bool(self._offers)

    def offer(self, item: ItemT, number: int) -> None:
        """``item`` may be taken; of one priority the lowest number goes first."""
        offers = self._offers.setdefault(item.namespace, [])
        heapq.heappush(offers, (item.priority, number, item))

    def next(self, may: Callable[[str], bool]) -> ItemT | None:
        """The next item of a namespace that ``may`` have one more; it is not offered any more."""
        for _ in range(len(self._offers)):
            namespace, offers = next(iter(self._offers.items()))
            if may(namespace):
                item = heapq.heappop(offers)[2]
                if offers:
                    self._offers.move_to_end(namespace)
                else:
                    del self._offers[namespace]
                return item
            self._offers.move_to_end(namespace)
        return None


class _Flow(Generic[ItemT]):
    """The ready items of one flow, in the order in which they are to be worked off."""

    def __init__(self) -> None:
        self.busy = False
        self.items: dict[str, list[tuple[int, int, ItemT]]] = {}
        """Pool → a heap by priority and number."""
        self.offered: dict[str, int] = {}
        """Pool → the priority of the item that it is offered at present."""


class Schedule(Generic[ItemT]):
    """The queue as a value: instants come from outside, in seconds of any steady clock.

    Everything costs as much as a step in a heap, however many items wait in a flow.
    """

    def __init__(self, shares: Mapping[str, int] = MappingProxyType({})) -> None:
        """``shares``: pool → how many of its workers one namespace may have at a time."""
        self._shares = shares
        self._numbers = itertools.count()
        self._due: dict[ItemT, float] = {}
        self._later: list[tuple[float, int, ItemT]] = []
        """A heap; what no longer agrees with ``_due`` is void."""
        self._ready: dict[ItemT, float] = {}
        self._flows: dict[Hashable, _Flow[ItemT]] = {}
        self._urgent: defaultdict[str, _Rota[ItemT]] = defaultdict(_Rota)
        self._rotas: defaultdict[str, _Rota[ItemT]] = defaultdict(_Rota)
        """Pool → what its workers may take. An item whose flow has become busy since, or has been
        given a better one, is void."""
        self._working: Counter[tuple[str, str]] = Counter()
        """Pool and namespace → how many items are worked on."""
        self._failures: defaultdict[ItemT, int] = defaultdict(int)

    def __len__(self) -> int:
        return len(self._ready)

    @property
    def delayed(self) -> int:
        """How many items wait for their time."""
        return len(self._due)

    def has_line(self, pool: str) -> bool:
        """Whether a worker of ``pool`` could take an item, as far as is known."""
        return bool(self._urgent[pool] or self._rotas[pool])

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

    def take(self, now: float, pool: str) -> Taken[ItemT] | None:
        """The next item for ``pool`` that is due and whose flow is free.

        Its flow is busy until ``done``.
        """
        self.ripen(now)
        for rota in (self._urgent[pool], self._rotas[pool]):
            while (offered := rota.next(partial(self._may_work, pool))) is not None:
                flow = self._flows.get(offered.flow)
                if flow is None:
                    continue
                flow.offered.pop(pool, None)
                if not flow.busy and flow.items.get(pool):
                    return self._taken(flow, pool, now)
        return None

    def ripen(self, now: float) -> None:
        """What was due until ``now`` is ready."""
        while (due := self.next_due()) is not None and due <= now:
            item = heapq.heappop(self._later)[2]
            del self._due[item]
            self._line_up(item, due)

    def _taken(self, flow: _Flow[ItemT], pool: str, now: float) -> Taken[ItemT]:
        item = heapq.heappop(flow.items[pool])[2]
        flow.busy = True
        self._working[pool, item.namespace] += 1
        return Taken(item, max(0.0, now - self._ready.pop(item)))

    def _may_work(self, pool: str, namespace: str) -> bool:
        share = self._shares.get(pool)
        return share is None or self._working[pool, namespace] < share

    def done(self, item: ItemT) -> None:
        """The flow of ``item`` is free again."""
        self._working[item.pool, item.namespace] -= 1
        if not self._working[item.pool, item.namespace]:
            del self._working[item.pool, item.namespace]
        flow = self._flows[item.flow]
        flow.busy = False
        for pool in [pool for pool, items in flow.items.items() if not items]:
            del flow.items[pool]
        if not flow.items:
            del self._flows[item.flow]
        for pool in flow.items:
            self._offer(flow, pool)

    def failed(self, item: ItemT) -> float:
        """Count a failure of ``item``; returns the seconds to wait before the next attempt."""
        doublings = min(self._failures[item], _MAX_DOUBLINGS)
        self._failures[item] += 1
        return min(FIRST_BACKOFF * 2.0**doublings, LONGEST_BACKOFF)

    def succeeded(self, item: ItemT) -> None:
        """Forget the failures of ``item``."""
        self._failures.pop(item, None)

    def _line_up(self, item: ItemT, due: float) -> None:
        if item in self._ready:
            return
        self._ready[item] = due
        flow = self._flows.setdefault(item.flow, _Flow())
        items = flow.items.setdefault(item.pool, [])
        heapq.heappush(items, (item.priority, next(self._numbers), item))
        if not flow.busy:
            self._offer(flow, item.pool)

    def _offer(self, flow: _Flow[ItemT], pool: str) -> None:
        """Offer the first item of ``flow``, unless one as urgent is offered already."""
        priority, number, item = flow.items[pool][0]
        if flow.offered.get(pool, _NEVER) <= priority:
            return
        flow.offered[pool] = priority
        rotas = self._urgent if priority < 0 else self._rotas
        rotas[pool].offer(item, number)


class WorkQueue(Generic[ItemT]):
    """A schedule that several workers wait on."""

    def __init__(
        self,
        clock: Callable[[], float] = monotonic,
        shares: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        """``shares``: see :class:`Schedule`."""
        self._clock = clock
        self._shares = shares
        self.schedule: Schedule[ItemT] = Schedule(shares)
        self._waiters: defaultdict[str, deque[asyncio.Future[None]]] = defaultdict(deque)
        """Pool → who waits for something to do."""
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due = 0.0

    def add(self, item: ItemT, delay: float = 0.0) -> None:
        """``item`` is due after ``delay`` seconds; see :meth:`Schedule.add`."""
        self.schedule.add(item, self._clock(), delay)
        self._wake()

    async def get(self, pool: str) -> Taken[ItemT]:
        """The next item for ``pool``, as soon as there is one.

        Whoever takes it says ``done`` in the end.
        """
        while True:
            taken = self.schedule.take(self._clock(), pool)
            if taken is not None:
                self._wake()  # there may be another one
                return taken
            waiter = asyncio.get_running_loop().create_future()
            self._waiters[pool].append(waiter)
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
        self.schedule = Schedule(self._shares)

    def _wake(self) -> None:
        """Wake one worker of each pool that has something to do."""
        for pool, waiters in self._waiters.items():
            while waiters and self.schedule.has_line(pool):
                waiter = waiters.popleft()
                if not waiter.done():
                    waiter.set_result(None)
                    break
        self._set_timer()

    def _set_timer(self) -> None:
        """See to it that the next delayed item finds its worker."""
        due = self.schedule.next_due()
        if self._timer is not None:
            if due == self._timer_due:
                return
            self._timer.cancel()
            self._timer = None
        if due is not None and any(self._waiters.values()):
            loop = asyncio.get_running_loop()
            self._timer_due = due
            self._timer = loop.call_later(max(0.0, due - self._clock()), self._ring)

    def _ring(self) -> None:
        self._timer = None
        self.schedule.ripen(self._clock())
        self._wake()
