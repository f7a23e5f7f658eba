"""From a change in the cluster to the items that are to be looked at. Pure."""

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple, TypeVar

from cluster.key import Key
from cluster.store import Change, Entry
from controller.eviction.plan import Sync
from controller.eviction.planning.relevance import has_ended
from controller.eviction.view import KnownPod, View
from controller.evictor.planning import evictor_turn
from rules.api import Eviction, EvictionRequest
from rules.states import FINAL_CONDITIONS, condition_of

EVICTOR: Final = "evictor"
"""The work of the default evictor on an Eviction, beside the three syncs."""
PLANNING: Final = "node-health"
"""The work of planning for failed nodes, for all of them at once."""
NODE_REQUEST: Final = "node-request"
"""The work on one EvictionRequest for a pod of a failed node."""
NODE_DEADLINE: Final = "node-deadline"
"""The work on one pod of a failed node that has not gone in time."""
STATES_POOL: Final = "states"
"""Whose workers see to Evictions, their requests and nodes."""
EVICTIONS_POOL: Final = "evictions"
"""Whose workers call ``pods/eviction``, or delete pods."""
POOLS: Final = (STATES_POOL, EVICTIONS_POOL)
_PRIORITIES: Final = {
    PLANNING: -1,
    NODE_REQUEST: -1,
    NODE_DEADLINE: 0,
    Sync.EVICTION: 0,
    EVICTOR: 0,
    Sync.METADATA: 1,
    Sync.REQUEST: 2,
}

ValueT = TypeVar("ValueT", Eviction, EvictionRequest)


class Item(NamedTuple):
    """What to do about one object."""

    work: str
    """A :class:`Sync`, :data:`EVICTOR`, :data:`PLANNING`, :data:`NODE_REQUEST` or
    :data:`NODE_DEADLINE`."""
    key: Key
    target: str
    """UID of the target, "" for none."""

    @property
    def flow(self) -> tuple[str, str]:
        """Everything about one target goes in single file, so that no work overtakes another."""
        return self.key.namespace, self.target or self.key.name

    @property
    def namespace(self) -> str:
        """Who takes turns with others."""
        return self.key.namespace

    @property
    def priority(self) -> int:
        """Evictions that have begun go first: under load each ends soon, rather than all late.

        Before these goes what takes a wish back: each moment may cost a pod.
        """
        return _PRIORITIES[self.work]

    @property
    def pool(self) -> str:
        """An eviction may take as long as an admission webhook likes; nothing else waits for it."""
        return EVICTIONS_POOL if self.work in (EVICTOR, NODE_DEADLINE) else STATES_POOL


def target_uid(value: Eviction | EvictionRequest) -> str:
    """The UID of the target, "" for none."""
    return value.spec.target.pod.uid if value.spec.target.pod else ""


def _item(work: str, entry: Entry[ValueT]) -> Item:
    return Item(work, entry.key, target_uid(entry.value))


class Router:
    """Knows who cares for which change."""

    def __init__(self, view: View) -> None:
        self._view = view

    def everything(self) -> Iterator[Item]:
        """All that there is to look at, for whoever starts."""
        for entry in self._view.evictions:
            if not has_ended(entry.value):
                yield _item(Sync.EVICTION, entry)
                yield from self._evictor(entry)
            yield _item(Sync.METADATA, entry)
        for request in self._view.requests:
            yield _item(Sync.REQUEST, request)

    def pod(self, change: Change[KnownPod]) -> Iterator[Item]:
        """A pod has come, gone, or changed in what counts."""
        entry = change.new or change.old
        if entry is None:
            return
        is_under_way = False
        for eviction in self._view.evictions_of(entry.key.namespace, entry.uid):
            if not has_ended(eviction.value):
                is_under_way = True
                yield from self._evictor(eviction)
                yield _item(Sync.EVICTION, eviction)
        # A pod that ends after its eviction has failed makes its requests succeed after all.
        if change.old is None or change.new is None or not is_under_way:
            yield from self._requests(entry.key.namespace, entry.uid)

    def eviction(self, change: Change[Eviction]) -> Iterator[Item]:
        """An Eviction has come, gone or changed."""
        old, new = change
        if new is not None:
            if not has_ended(new.value):
                yield _item(Sync.EVICTION, new)
                yield from self._evictor(new)
            if old is None or _membership(old.value) != _membership(new.value):
                yield _item(Sync.METADATA, new)
        entry = new or old
        if entry is None:
            return
        if old is None or new is None or _outcome(old.value) != _outcome(new.value):
            yield from self._requests(entry.key.namespace, target_uid(entry.value))
            if new is not None and has_ended(new.value):
                yield _item(Sync.METADATA, new)  # one that nobody owns may be removed some day
        if new is None:  # an Eviction that was a duplicate may now be the one that counts
            yield from self._evictions(entry, Sync.EVICTION)

    def request(self, change: Change[EvictionRequest]) -> Iterator[Item]:
        """An EvictionRequest has come, gone or changed."""
        old, new = change
        if new is not None:
            yield _item(Sync.REQUEST, new)
        entry = new or old
        if entry is None:
            return
        if old and new and _wish(old.value) == _wish(new.value):
            return
        yield from self._evictions(entry, Sync.EVICTION)
        yield from self._evictions(entry, Sync.METADATA)
        # The evictor asks nobody to go whom nobody wants gone, and waits for no time then.
        for eviction in self._view.evictions_of(entry.key.namespace, target_uid(entry.value)):
            yield from self._evictor(eviction)

    def _evictor(self, entry: Entry[Eviction]) -> Iterator[Item]:
        if evictor_turn(entry.value) is not None:
            yield _item(EVICTOR, entry)

    def _evictions(self, entry: Entry[ValueT], work: Sync) -> Iterator[Item]:
        evictions: Iterable[Entry[Eviction]] = self._view.evictions_of(
            entry.key.namespace, target_uid(entry.value)
        )
        for eviction in evictions:
            yield _item(work, eviction)

    def _requests(self, namespace: str, uid: str) -> Iterator[Item]:
        for request in self._view.requests_of(namespace, uid):
            yield _item(Sync.REQUEST, request)


def _membership(eviction: Eviction) -> object:
    return eviction.metadata.labels, eviction.metadata.owner_references


def _outcome(eviction: Eviction) -> object:
    return [condition_of(eviction.status.conditions, type_) for type_ in FINAL_CONDITIONS]


def _wish(request: EvictionRequest) -> object:
    return request.spec.intent, request.metadata.deletion_timestamp
