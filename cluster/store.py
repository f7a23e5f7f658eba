"""What is known of the objects of one resource: the newest state of each, with indexes.

Knowledge comes from lists, from watches, and from the answers to the controller's own writes, which
are earlier than the watch. Pure: no I/O, no clock.
"""

import sys
from bisect import bisect_left, insort
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Final, Generic, NamedTuple, TypeVar

from cluster.key import Key
from rules.api import ApiType
from rules.decode import Encoded, decode

ValueT = TypeVar("ValueT")

MAX_DELETED: Final = 16_384
"""Of so many objects that are gone it is remembered that they are: 3 MB at most. Our own choice:
more than are deleted in the minutes within which anybody asks. What is forgotten is read anew."""


class Packed(Generic[ValueT]):
    """A small form in which something is kept that is hardly ever looked at."""

    __slots__ = ()

    def unpack(self) -> ValueT:
        """What it stands for."""
        raise NotImplementedError


class Entry(NamedTuple, Generic[ValueT]):
    """One object."""

    key: Key
    uid: str
    version: int
    """Its resource version; -1 where that is no number."""
    kept: Any
    """What is kept of it: the value, or something :class:`Packed` that stands for it."""

    @property
    def value(self) -> ValueT:
        """What is kept of it, unpacked: some 15 µs where it was packed."""
        kept = self.kept
        value: ValueT = kept.unpack() if isinstance(kept, Packed) else kept
        return value


class Change(NamedTuple, Generic[ValueT]):
    """An object was added (no ``old``), changed, or removed (no ``new``)."""

    old: Entry[ValueT] | None
    new: Entry[ValueT] | None


class Metadata(ApiType):
    """What tells an object of the API, and its versions, from others."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""

    @property
    def identity(self) -> tuple[Key, str, int]:
        """Key, UID and resource version."""
        key = Key(sys.intern(self.namespace), self.name)
        return key, self.uid, version_of(self.resource_version)


class _Identified(ApiType):
    metadata: Metadata = Metadata()


def metadata_of(document: Encoded) -> Metadata:
    """What identifies an object of the API. Raises DecodeError."""
    return decode(_Identified, document).metadata


def entry_of(document: Encoded, kept: ValueT | Packed[Any]) -> Entry[ValueT]:
    """The entry for an object of the API, of which ``kept`` is kept. Raises DecodeError."""
    return Entry(*metadata_of(document).identity, kept)


def version_of(text: str) -> int:
    """A resource version as a number that can be compared, -1 if it is none.

    Since 1.35 Kubernetes promises that they can be compared; before it just was so.
    """
    return int(text) if text.isdecimal() and text.isascii() else -1


class Index(Generic[ValueT]):
    """Finds entries by something else than their names, in an order.

    Most values have one entry, which is held without a list around it; thousands cost no more than
    a search in a sorted list for each that comes or goes.
    """

    def __init__(
        self,
        value_of: Callable[[Entry[ValueT]], Hashable | None],
        rank_of: Callable[[Entry[ValueT]], Any] = lambda entry: entry.key,
    ) -> None:
        """``value_of``: under what an entry is to be found; None: not at all.

        ``rank_of``: by what those of one value are ordered; no two have the same.
        """
        self._value_of = value_of
        self._rank_of = rank_of
        self._found: dict[Hashable, Entry[ValueT] | list[Entry[ValueT]]] = {}

    def find(self, value: Hashable) -> Sequence[Entry[ValueT]]:
        """The entries of that value, in order; not to be kept."""
        found = self._found.get(value, ())
        return (found,) if isinstance(found, Entry) else found

    def add(self, entry: Entry[ValueT]) -> None:
        """From now on ``entry`` is found."""
        value = self._value_of(entry)
        if value is None:
            return
        found = self._found.get(value)
        if found is None:
            self._found[value] = entry
        elif isinstance(found, Entry):
            self._found[value] = sorted((found, entry), key=self._rank_of)
        else:
            insort(found, entry, key=self._rank_of)

    def remove(self, entry: Entry[ValueT]) -> None:
        """``entry`` was added, and is not found any more."""
        value = self._value_of(entry)
        if value is None:
            return
        found = self._found[value]
        if isinstance(found, list) and len(found) > 1:
            del found[bisect_left(found, self._rank_of(entry), key=self._rank_of)]
        else:
            del self._found[value]


class Store(Generic[ValueT]):
    """The objects of one resource."""

    def __init__(self, **indexes: Index[ValueT]) -> None:
        """``indexes``, by the names under which :meth:`find` knows them."""
        self._entries: dict[Key, Entry[ValueT]] = {}
        self._indexes = indexes
        self._seen = -1
        self._deleted: OrderedDict[str, None] = OrderedDict()
        """UIDs, the one deleted last at the end."""

    @property
    def seen(self) -> int:
        """Everything up to this version is known."""
        return self._seen

    def was_deleted(self, uid: str) -> bool:
        """Whether the API server has told that the object with that UID is gone.

        False says nothing: it may be there, or gone for long.
        """
        return uid in self._deleted

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Entry[ValueT]]:
        return iter(tuple(self._entries.values()))

    def get(self, key: Key) -> Entry[ValueT] | None:
        """The object of that name."""
        return self._entries.get(key)

    def find(self, index: str, value: Hashable, most: int | None = None) -> Sequence[Entry[ValueT]]:
        """The objects that an index holds under ``value``, in its order, at most so many."""
        return tuple(islice(self._indexes[index].find(value), most))

    def replace(self, entries: Iterable[Entry[ValueT]], version: int) -> list[Change[ValueT]]:
        """Take over a complete list as of ``version``; returns what that changes.

        Answers to own writes that came while the list was on its way are newer than it. A list
        that is older than what was seen is of a cluster restored from a backup, in which nothing
        of that has happened.
        """
        is_restored = version < self._seen
        self._seen = version
        listed = {entry.key: entry for entry in entries}
        changes: list[Change[ValueT]] = []
        for entry in tuple(self._entries.values()):
            if entry.version > version and not is_restored:
                listed.pop(entry.key, None)
            elif entry.key not in listed:
                changes += self._remove(entry.key)
        for entry in listed.values():
            changes += self._put(entry)
        return changes

    def saw(self, version: int) -> None:
        """The watch has told everything up to ``version``."""
        self._seen = max(self._seen, version)

    def knows(self, key: Key, uid: str, version: int) -> bool:
        """Whether that version of the object, or a later one, is known; never reads the object."""
        known = self._entries.get(key)
        return known is not None and known.uid == uid and -1 < version <= known.version

    def put(self, entry: Entry[ValueT]) -> list[Change[ValueT]]:
        """Take over an event of the watch."""
        self.saw(entry.version)
        if self.knows(entry.key, entry.uid, entry.version):
            return []  # the answer to our own write, this one or a later one, came first
        return self._put(entry)

    def delete(self, key: Key, uid: str, version: int) -> list[Change[ValueT]]:
        """Take over the event of the watch that an object is gone."""
        self.saw(version)
        self._bury(uid)
        known = self._entries.get(key)
        if known is None or known.uid != uid:
            return []
        return self._remove(key)

    def learn(self, entry: Entry[ValueT]) -> list[Change[ValueT]]:
        """Take over the answer to an own write, unless the watch knows more already.

        What the watch has been told up to is the judge: an object that was deleted in the meantime
        would come back to life otherwise, and for good.
        """
        if entry.version <= self._seen:
            return []
        known = self._entries.get(entry.key)
        if known is not None and entry.version <= known.version:
            return []
        return self._put(entry)

    def _put(self, entry: Entry[ValueT]) -> list[Change[ValueT]]:
        known = self._entries.get(entry.key)
        changes: list[Change[ValueT]] = []
        if known is not None and known.uid != entry.uid:
            changes += self._remove(entry.key)  # a namesake
            known = None
        if known is not None:
            self._unindex(known)
        self._entries[entry.key] = entry
        for index in self._indexes.values():
            index.add(entry)
        if known is None or known.kept != entry.kept:
            changes.append(Change(known, entry))
        return changes

    def _remove(self, key: Key) -> list[Change[ValueT]]:
        entry = self._entries.pop(key)
        self._unindex(entry)
        self._bury(entry.uid)
        return [Change(entry, None)]

    def _bury(self, uid: str) -> None:
        self._deleted[uid] = None
        if len(self._deleted) > MAX_DELETED:
            self._deleted.popitem(last=False)

    def _unindex(self, entry: Entry[ValueT]) -> None:
        for index in self._indexes.values():
            index.remove(entry)
