"""A controller of a few lines on the model of a store: what the I/O loop will do, without I/O."""

from datetime import datetime
from typing import Final, NamedTuple

from cluster.key import Key
from controller.eviction.plan import Sync, plan
from controller.eviction.planning.admission import as_request
from controller.eviction.planning.snapshot import Snapshot
from controller.eviction.planning.writes import EVICTIONS, Plan
from rules.api import ApiType, Eviction
from rules.decode import decode_model
from rules.evaluate import ADMITTED
from tests.controller.objects import NAMESPACE
from tests.controller.store import Store

MAX_ROUNDS: Final = 12
"""Far more than the few that any change takes to be worked off."""


class Item(NamedTuple):
    """One item of one queue."""

    sync: Sync
    name: str


class WakeUp(NamedTuple):
    """When to look at an item again."""

    time: datetime
    item: Item


class Controller:
    """Plans and applies, and holds the laws that every planned write obeys."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.terminal_times: dict[str, datetime] = {}
        self.wake_ups: list[WakeUp] = []
        self._seen_version = -1

    def items(self) -> list[Item]:
        requests = [Item(Sync.REQUEST, name) for name in self.store.requests]
        evictions = [
            Item(sync, name)
            for name in self.store.evictions
            for sync in (Sync.EVICTION, Sync.METADATA)
        ]
        return requests + evictions

    def plan(self, item: Item, snapshot: Snapshot | None = None) -> Plan:
        seen = snapshot or self.snapshot()
        return plan(item.sync, Key(NAMESPACE, item.name), seen, self.store.now)

    def snapshot(self) -> Snapshot:
        return self.store.snapshot(self.terminal_times)

    def sync(self, item: Item, *, crash_after: int | None = None) -> int:
        """Plan and apply; returns how many writes were planned."""
        snapshot = self.snapshot()
        planned = self.plan(item, snapshot)
        for write in planned.writes[:crash_after]:
            expected = as_request(write, self.snapshot(), self.store.now)
            verdict = self.store.apply(write)
            assert verdict == ADMITTED, (item, write.apply, verdict)
            self._assert_as_expected(write.resource, write.key.name, expected.object)
        if item.sync == Sync.EVICTION:
            self._remember(item, snapshot, planned)
        if planned.requeue_after is not None:
            self.wake_ups.append(WakeUp(self.store.now + planned.requeue_after, item))
        return len(planned.writes)

    def _assert_as_expected(self, resource: str, name: str, expected: ApiType | None) -> None:
        """What :func:`as_request` shows to the rules is what the store makes of the write."""
        if resource == EVICTIONS and isinstance(expected, Eviction):
            stored = decode_model(Eviction, self.store.evictions[name])
            assert sorted(map(repr, stored.status.responders)) == sorted(
                map(repr, expected.status.responders)
            )
            assert set(map(repr, stored.status.conditions)) == set(
                map(repr, expected.status.conditions)
            )
            assert expected.metadata.labels.items() >= stored.metadata.labels.items()

    def _remember(self, item: Item, snapshot: Snapshot, planned: Plan) -> None:
        eviction = snapshot.eviction(Key(NAMESPACE, item.name))
        if eviction is None:
            return
        if planned.terminal_time is None:
            self.terminal_times.pop(eviction.metadata.uid, None)
        else:
            self.terminal_times[eviction.metadata.uid] = planned.terminal_time

    def settle(self) -> None:
        """Sync everything until there is nothing to write."""
        for _ in range(MAX_ROUNDS):
            if not sum(self.sync(item) for item in self.items()):
                return
        raise AssertionError(f"still writing after {MAX_ROUNDS} rounds")

    def react(self) -> None:
        """Sync what a real loop would: everything after a change, else what is due."""
        for _ in range(MAX_ROUNDS):
            due = [wake_up.item for wake_up in self.wake_ups if wake_up.time <= self.store.now]
            self.wake_ups = [wake_up for wake_up in self.wake_ups if wake_up.time > self.store.now]
            if self.store.version != self._seen_version:
                self._seen_version = self.store.version
                due = self.items()
            if not due:
                return
            for item in due:
                self.sync(item)
        raise AssertionError(f"still busy after {MAX_ROUNDS} rounds")
