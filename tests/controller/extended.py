"""The controller of the model, with what goes beyond the reference."""

from cluster.key import Key
from controller.eviction.planning.extras import Extras, extended
from controller.eviction.planning.snapshot import Snapshot
from controller.eviction.planning.writes import Plan
from tests.controller.objects import NAMESPACE
from tests.controller.running import Controller, Item
from tests.controller.store import Store


class Extended(Controller):
    """Plans as ``extras`` want it; without any, as the reference does."""

    def __init__(self, store: Store, extras: Extras) -> None:
        super().__init__(store)
        self._extras = extras

    def plan(self, item: Item, snapshot: Snapshot | None = None) -> Plan:
        seen = snapshot or self.snapshot()
        planned = super().plan(item, seen)
        key = Key(NAMESPACE, item.name)
        return extended(item.sync, planned, key, seen, self.store.now, self._extras)
