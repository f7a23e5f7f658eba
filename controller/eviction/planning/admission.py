"""A planned write as the request that admission sees.

The controller judges its own writes by :mod:`rules` before it sends them: one that would be refused
is a bug, and sending it would only repeat.
"""

from collections.abc import Callable, Hashable, Iterable
from datetime import datetime
from typing import TypeVar

from msgspec.structs import replace

from controller.eviction.planning.snapshot import Snapshot
from controller.eviction.planning.writes import EVICTIONS, Write
from rules.api import ApiType, Eviction, EvictionRequest, EvictionStatus, ResponderStatus
from rules.decode import decode_model
from rules.request import STATUS, Operation, Request

ItemT = TypeVar("ItemT", bound=ApiType)


def as_request(write: Write, snapshot: Snapshot, now: datetime) -> Request:
    """``write`` at ``now``, where the stored objects are those of ``snapshot``.

    For labels and owner references, of which others may have their own, this is what remains at
    least: the stored ones and the written ones.
    """
    stored: Eviction | EvictionRequest | None
    if write.resource == EVICTIONS:
        stored = snapshot.eviction(write.key)
        written: Eviction | EvictionRequest = decode_model(Eviction, write.apply)
    else:
        stored = snapshot.eviction_request(write.key)
        written = decode_model(EvictionRequest, write.apply)
    return Request(
        operation=Operation.UPDATE if stored else Operation.CREATE,
        subresource=write.subresource,
        object=_applied(written, stored, write.subresource) if stored else written,
        old_object=stored,
        name=write.key.name,
        namespace=write.key.namespace,
        now=now,
    )


def _applied(
    written: Eviction | EvictionRequest, stored: Eviction | EvictionRequest, subresource: str
) -> Eviction | EvictionRequest:
    """``stored`` after ``written`` has been applied to it."""
    if subresource != STATUS:
        changed = {"metadata": _metadata(written, stored), "spec": written.spec}
        return replace(stored, **changed)
    conditions = _merged(
        stored.status.conditions, written.status.conditions, lambda condition: condition.type
    )
    changes: dict[str, object] = {
        "conditions": conditions,
        "observed_generation": written.status.observed_generation,
    }
    if isinstance(written, Eviction) and isinstance(stored, Eviction):
        changes |= _responders(written.status, stored.status)
    return replace(stored, status=replace(stored.status, **changes))


def _metadata(written: Eviction | EvictionRequest, stored: Eviction | EvictionRequest) -> object:
    return replace(
        stored.metadata,
        labels=stored.metadata.labels | written.metadata.labels,
        owner_references=_merged(
            stored.metadata.owner_references,
            written.metadata.owner_references,
            lambda owner: owner.uid,
        ),
    )


def _responders(written: EvictionStatus, stored: EvictionStatus) -> dict[str, object]:
    """The lists of which the controller owns every item, and the reports, where it owns starts."""
    reports = {report.name: report for report in stored.responders}
    started = tuple(_started(reports.get(report.name), report) for report in written.responders)
    return {
        "requesters": written.requesters,
        "target_responders": written.target_responders,
        "responders": _merged(stored.responders, started, lambda report: report.name),
    }


def _started(stored: ResponderStatus | None, written: ResponderStatus) -> ResponderStatus:
    if stored is None or stored.start_time == written.start_time:
        return stored or written
    return replace(stored, start_time=written.start_time)


def _merged(
    stored: Iterable[ItemT], written: Iterable[ItemT], key: Callable[[ItemT], Hashable]
) -> tuple[ItemT, ...]:
    items = {key(item): item for item in stored} | {key(item): item for item in written}
    return tuple(items.values())
