"""Which fields a write changes: what decides which rules can have anything to say about it."""

from collections.abc import Iterator
from functools import cache
from typing import Any, Final, NamedTuple

from rules.api import ApiType
from rules.declared import fields_of
from rules.field import Path

PARTS: Final = ("metadata", "spec", "status")


class _Member(NamedTuple):
    """One field of a part, and how its list items are told apart."""

    attribute: str
    path: Path
    key: str | None
    item_fields: tuple[tuple[str, Path], ...]
    """Attribute and path of every field of an item."""


def changed_fields(new: ApiType, old: ApiType, part: str) -> frozenset[str]:
    """The fields of ``part`` ("metadata", "spec" or "status") that differ, by their paths.

    Of a list whose items have a key, also what differs in items of the same key: with
    ``status.responders`` goes ``status.responders.heartbeatTime``.
    """
    mine, theirs = getattr(new, part), getattr(old, part)
    if mine == theirs:
        return frozenset()
    changed: set[str] = set()
    for member in _members(type(mine), part):  # type: ignore[arg-type]
        value, stored = getattr(mine, member.attribute), getattr(theirs, member.attribute)
        if value != stored:
            changed.add(member.path)
            if member.key is not None:
                changed.update(_changed_in_items(member, value, stored))
    return frozenset(changed)


def _changed_in_items(member: _Member, items: Any, stored: Any) -> Iterator[str]:
    key = member.key or ""
    names, known = [getattr(item, key) for item in items], [getattr(item, key) for item in stored]
    if names != known:
        # Items were added, removed or moved: anything can be different where it stands now.
        yield from (path for _, path in member.item_fields)
        return
    for item, twin in zip(items, stored, strict=True):
        if item != twin:
            for attribute, path in member.item_fields:
                if getattr(item, attribute) != getattr(twin, attribute):
                    yield path


@cache
def _members(part_type: type[ApiType], part: str) -> tuple[_Member, ...]:
    return tuple(
        _Member(
            field.attribute,
            path := Path(part).child(field.name),
            field.key,
            tuple(
                (item.attribute, path.child(item.name))
                for item in (fields_of(field.model) if field.key and field.model else ())
            ),
        )
        for field in fields_of(part_type)
    )
