"""The plan for one object: which sync, which key, what can be seen, and the instant → writes."""

from collections.abc import Callable, Mapping
from datetime import datetime
from enum import StrEnum
from types import MappingProxyType
from typing import Final, TypeAlias

from cluster.key import Key
from controller.planning.eviction import plan_eviction
from controller.planning.metadata import plan_metadata
from controller.planning.request import plan_request
from controller.planning.snapshot import Snapshot
from controller.planning.writes import Plan


class Sync(StrEnum):
    """What the controller keeps in order; one queue each."""

    EVICTION = "eviction"
    """The status of an Eviction; the key is the Eviction's."""
    REQUEST = "request"
    """Evictions for an EvictionRequest, and its status; the key is the EvictionRequest's."""
    METADATA = "metadata"
    """Labels and owner references of an Eviction; the key is the Eviction's."""


Planner: TypeAlias = Callable[[Key, Snapshot, datetime], Plan]
_PLANNERS: Final[Mapping[Sync, Planner]] = MappingProxyType(
    {
        Sync.EVICTION: plan_eviction,
        Sync.REQUEST: plan_request,
        Sync.METADATA: plan_metadata,
    }
)


def plan(sync: Sync, key: Key, snapshot: Snapshot, now: datetime) -> Plan:
    """What to write for ``key`` at ``now``, and when to look again.

    Total and deterministic: no clock, no I/O, no exception. An object that is not in ``snapshot``
    needs nothing.
    """
    return _PLANNERS[sync](key, snapshot, now)
