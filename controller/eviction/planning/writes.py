"""What a plan consists of: server-side apply documents, and when to look again.

A write states everything that the controller owns in what it writes. An apply removes what its
field manager owned before and does not state any more, so a document that left something out would
take it away.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any, Final

from cluster.key import Key
from rules.api import (
    API_VERSION,
    Condition,
    ConditionStatus,
    EvictionRequest,
    EvictionStatus,
    PodReference,
    Requester,
    ResponderStatus,
    TargetResponder,
)
from rules.request import STATUS
from rules.times import format_time

EVICTIONS: Final = "evictions"
EVICTION_REQUESTS: Final = "evictionrequests"
EVICTION_REQUEST_KIND: Final = "EvictionRequest"
_KINDS: Final = {EVICTIONS: "Eviction", EVICTION_REQUESTS: EVICTION_REQUEST_KIND}


@dataclass(frozen=True, slots=True)
class Write:
    """One server-side apply; forced, because what it states is the controller's."""

    resource: str
    """:data:`EVICTIONS` or :data:`EVICTION_REQUESTS`, of ``lifecycle.k8s.io/v1alpha1``."""
    key: Key
    apply: Mapping[str, Any]
    """The document to apply, as JSON values."""
    subresource: str = ""
    """``status``, or "" for the object itself, which is created if it does not exist."""

    @property
    def ends(self) -> bool:
        """Whether it says that an eviction has ended: a condition is True."""
        conditions = self.apply.get("status", {}).get("conditions", ())
        return any(condition["status"] == ConditionStatus.TRUE for condition in conditions)


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do about one object now."""

    writes: tuple[Write, ...] = ()
    """To be sent in this order. None of them relies on the others: whoever stops half-way plans
    again."""
    requeue_after: timedelta | None = None
    """When to plan again although nothing has changed; None: when something changes."""
    terminal_time: datetime | None = None
    """When the target of this Eviction ended or is to end. To be given back in
    the ``terminal_times`` of the next snapshot; None: to be forgotten. Whoever loses it grants the
    last responder its grace once more."""


def eviction_status_write(key: Key, status: EvictionStatus) -> Write:
    """Apply ``status``; of the responders only what the controller sets: name and startTime."""
    document: dict[str, Any] = {
        "conditions": [_condition(condition) for condition in status.conditions],
        "observedGeneration": status.observed_generation,
    }
    if status.requesters:
        document["requesters"] = [_requester(requester) for requester in status.requesters]
    if status.target_responders:
        document["targetResponders"] = [_target(target) for target in status.target_responders]
        document["responders"] = [_report(report) for report in status.responders]
    return _write(EVICTIONS, key, {"status": document}, subresource=STATUS)


def request_status_write(key: Key, conditions: Iterable[Condition], generation: int) -> Write:
    """Apply the status of an EvictionRequest."""
    document = {
        "conditions": [_condition(condition) for condition in conditions],
        "observedGeneration": generation,
    }
    return _write(EVICTION_REQUESTS, key, {"status": document}, subresource=STATUS)


def eviction_write(
    key: Key,
    pod: PodReference,
    labels: Mapping[str, str],
    owners: Iterable[Mapping[str, Any]],
) -> Write:
    """Apply an Eviction of ``pod`` without its status; ``owners`` are owner references."""
    metadata: dict[str, Any] = {}
    if labels:
        metadata["labels"] = {name: str(role) for name, role in labels.items()}
    if listed := list(owners):
        metadata["ownerReferences"] = listed
    spec = {"target": {"pod": {"name": pod.name, "uid": pod.uid}}}
    return _write(EVICTIONS, key, {"spec": spec}, metadata=metadata)


def owner_reference(request: EvictionRequest) -> dict[str, Any]:
    """A reference to ``request``: its Evictions are collected as garbage after the last one."""
    return request_reference(request.metadata.name, request.metadata.uid)


def request_reference(name: str, uid: str) -> dict[str, Any]:
    """A reference to the EvictionRequest ``name``."""
    return {
        "apiVersion": API_VERSION,
        "kind": EVICTION_REQUEST_KIND,
        "name": name,
        "uid": uid,
    }


def _write(
    resource: str,
    key: Key,
    parts: Mapping[str, Any],
    *,
    metadata: Mapping[str, Any] = MappingProxyType({}),
    subresource: str = "",
) -> Write:
    document = {
        "apiVersion": API_VERSION,
        "kind": _KINDS[resource],
        "metadata": {"name": key.name, "namespace": key.namespace, **metadata},
        **parts,
    }
    return Write(resource, key, document, subresource)


def _condition(condition: Condition) -> dict[str, Any]:
    document = {"type": str(condition.type), "status": str(condition.status)}
    if condition.last_transition_time is not None:
        document["lastTransitionTime"] = format_time(condition.last_transition_time)
    return document | {"reason": condition.reason, "message": condition.message}


def _requester(requester: Requester) -> dict[str, Any]:
    return {"name": requester.name, "intent": str(requester.intent)}


def _target(target: TargetResponder) -> dict[str, Any]:
    priority = {"priority": target.priority} if target.priority is not None else {}
    return {"name": target.name, **priority, "state": str(target.state)}


def _report(report: ResponderStatus) -> dict[str, Any]:
    start = {"startTime": format_time(report.start_time)} if report.start_time else {}
    return {"name": report.name, **start}
