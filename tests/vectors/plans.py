"""The vectors of ``plans.jsonl.gz``: what the reference controller writes, and how to compare.

One JSON object a line: ``sync``, ``key``, ``now`` and all that the controller can see, as for
``usher plan``; ``want.writes`` are server-side apply documents in order, and
``want.requeueAfterSeconds`` is when it asked to look again.
"""

import gzip
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from cluster.key import Key
from controller.eviction.plan import Sync, plan
from controller.eviction.planning.snapshot import Snapshot
from controller.eviction.planning.writes import Plan, Write
from rules.decode import decode_model, load
from rules.times import parse_time

PLANS: Final = Path(__file__).parent / "plans.jsonl.gz"

_MAP_KEYS: Final = {
    "conditions": "type",
    "requesters": "name",
    "targetResponders": "name",
    "responders": "name",
    "ownerReferences": "uid",
}
"""List field → the key of its items: such a list is a map, its order means nothing."""


def plan_vectors() -> Iterator[dict[str, Any]]:
    """Every plan vector."""
    with gzip.open(PLANS) as lines:
        for line in lines:
            yield load(line)


def snapshot_of(vector: dict[str, Any]) -> Snapshot:
    """What the controller can see in a vector."""
    return decode_model(Snapshot, vector)


def plan_of(vector: dict[str, Any]) -> Plan:
    """Our answer to a vector."""
    return plan(
        Sync(vector["sync"]),
        Key.parse(vector["key"]),
        snapshot_of(vector),
        parse_time(vector["now"]),
    )


def as_want(planned: Plan) -> dict[str, Any]:
    """A plan in the form of ``want``."""
    want: dict[str, Any] = {"writes": [_document(write) for write in planned.writes]}
    if planned.requeue_after is not None:
        want["requeueAfterSeconds"] = planned.requeue_after.total_seconds()
    return want


def _document(write: Write) -> dict[str, Any]:
    subresource = {"subresource": write.subresource} if write.subresource else {}
    return {
        "resource": write.resource,
        "name": write.key.name,
        "apply": write.apply,
        **subresource,
    }


def meaning(value: Any) -> Any:
    """``value`` with its map-like lists as maps, so that ``==`` compares the meaning."""
    if isinstance(value, dict):
        return {name: _by_key(name, meaning(item)) for name, item in value.items()}
    if isinstance(value, list):
        return [meaning(item) for item in value]
    return value


def _by_key(name: str, value: Any) -> Any:
    if name not in _MAP_KEYS or not isinstance(value, list):
        return value
    items = {item[_MAP_KEYS[name]]: item for item in value}
    assert len(items) == len(value), f"{name} repeats a key"
    return items
