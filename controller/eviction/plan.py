"""The plan for one object: which sync, which key, what can be seen, and the instant → writes."""

from datetime import datetime
from enum import StrEnum

from cluster.key import Key
from controller.eviction.planning.eviction import plan_eviction
from controller.eviction.planning.metadata import plan_metadata
from controller.eviction.planning.request import plan_request
from controller.eviction.planning.snapshot import Snapshot
from controller.eviction.planning.writes import Plan


class Sync(StrEnum):
    """What the controller keeps in order; one queue each."""

    EVICTION = "eviction"
    """The status of an Eviction; the key is the Eviction's."""
    REQUEST = "request"
    """Evictions for an EvictionRequest, and its status; the key is the EvictionRequest's."""
    METADATA = "metadata"
    """Labels and owner references of an Eviction; the key is the Eviction's."""


def plan(
    sync: Sync, key: Key, snapshot: Snapshot, now: datetime, *, counts_silence: bool = True
) -> Plan:
    """What to write for ``key`` at ``now``, and when to look again.

    Total and deterministic: no clock, no I/O, no exception. An object that is not in ``snapshot``
    needs nothing. ``counts_silence`` is that of
    :func:`controller.eviction.planning.progression.progressed`.
    """
    match sync:
        case Sync.EVICTION:
            return plan_eviction(key, snapshot, now, counts_silence=counts_silence)
        case Sync.REQUEST:
            return plan_request(key, snapshot, now)
        case Sync.METADATA:
            return plan_metadata(key, snapshot, now)
