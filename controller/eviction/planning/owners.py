"""Who owns an Eviction: only requests that want the pod gone, and no more than fit. See ADR 48.

The reference makes every request an owner. An owner costs up to 500 bytes, and thousands of them
are more than etcd takes for an object; then no metadata can be written any more.
"""

from dataclasses import replace
from typing import Any, Final

from cluster.key import Key
from controller.eviction.planning.metadata import labels_are_changed, stored_owners
from controller.eviction.planning.requesters import wants_eviction
from controller.eviction.planning.snapshot import Snapshot
from controller.eviction.planning.writes import EVICTIONS, Plan, Write
from rules.api import MAX_REQUESTERS, Eviction

MAX_OWNERS: Final = MAX_REQUESTERS
"""No more requesters fit into the status of an Eviction, either (v1alpha1/types.go)."""


def with_bounded_owners(plan: Plan, key: Key, snapshot: Snapshot) -> Plan:
    """``plan`` of the metadata of the Eviction ``key``, without owners that it can do without."""
    eviction = snapshot.eviction(key)
    bounded = (bounded_owners(write, snapshot) for write in plan.writes)
    return replace(plan, writes=tuple(w for w in bounded if not _is_idle(w, eviction)))


def bounded_owners(write: Write, snapshot: Snapshot) -> Write:
    """``write`` of the metadata of an Eviction, without owners that it can do without.

    An owner that has withdrawn stays one until its place is needed: to take it away would cost a
    write, and whether anybody wants the pod gone is not read from the owners.
    """
    if write.resource != EVICTIONS or write.subresource:
        return write
    metadata = write.apply["metadata"]
    owners: list[dict[str, Any]] = metadata.get("ownerReferences", [])
    wanting = {r.metadata.uid for r in snapshot.eviction_requests if wants_eviction(r)}
    eviction = snapshot.eviction(write.key)
    stored = {owner.uid for owner in eviction.metadata.owner_references} if eviction else set()
    kept = [owner for owner in owners if owner["uid"] in wanting]
    kept += [o for o in owners if o["uid"] not in wanting and o["uid"] in stored]
    listed = kept[:MAX_OWNERS]
    if len(listed) == len(owners):
        return write
    bare = {name: value for name, value in metadata.items() if name != "ownerReferences"}
    named = {"ownerReferences": listed} if listed else {}
    return replace(write, apply={**write.apply, "metadata": {**bare, **named}})


def _is_idle(write: Write, eviction: Eviction | None) -> bool:
    """Whether ``write`` says nothing that ``eviction`` does not."""
    if eviction is None:
        return False
    metadata = write.apply["metadata"]
    owners = {owner["uid"] for owner in metadata.get("ownerReferences", ())}
    known = {owner["uid"] for owner in stored_owners(eviction)}
    labels = metadata.get("labels", {})
    return owners == known and not labels_are_changed(labels, eviction.metadata.labels)
