"""The stored objects of ``--old``: which of them does a manifest change?"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from cli.manifests.objects import Manifest

_Key: TypeAlias = tuple[str, str, str]


class NoSingleMatch(ValueError):  # noqa: N818 - says what is the case, as LookupError does
    """Two or more stored objects could be the one that a manifest changes."""


@dataclass(frozen=True, slots=True)
class Stored:
    """A stored object; ``sound`` unless something in it could not be read."""

    manifest: Manifest
    sound: bool


class StoredObjects:
    """Objects to be found by kind, namespace and name."""

    def __init__(self, objects: Sequence[Stored]) -> None:
        self._objects = objects
        self._named: defaultdict[_Key, list[Stored]] = defaultdict(list)
        for stored in objects:
            self._named[_key(stored.manifest)].append(stored)

    def find(self, manifest: Manifest, *, alone: bool) -> Stored | None:
        """What ``manifest`` changes; None if nothing is stored of that name.

        A namespace counts only where both name one, because a manifest may leave it to kubectl.
        ``alone`` says that there is no other manifest: then a single stored object is the one,
        whatever its name. Raises NoSingleMatch.
        """
        if not manifest.name.name:
            return None  # generateName: an object that does not exist yet
        namespace = manifest.name.namespace
        if alone and len(self._objects) == 1:
            return self._objects[0] if _same_kind(self._objects[0].manifest, manifest) else None
        named = self._named.get(_key(manifest), [])
        exact = [stored for stored in named if stored.manifest.name.namespace == namespace]
        found = exact or [
            stored for stored in named if not (namespace and stored.manifest.name.namespace)
        ]
        if len(found) > 1:
            raise NoSingleMatch(f"--old holds {len(found)} objects {manifest.name}; keep one")
        return found[0] if found else None


def _key(manifest: Manifest) -> _Key:
    return manifest.group_version[0], manifest.name.kind, manifest.name.name


def _same_kind(stored: Manifest, manifest: Manifest) -> bool:
    return _key(stored)[:2] == _key(manifest)[:2]
