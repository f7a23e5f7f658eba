"""The reviews that the figures are about.

Most are about a status update of 4.5 kB, a heartbeat with a message. Others have a larger object,
or break rules.
"""

import copy
import json
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from rules.times import format_time

UID: Final = "272ce49c-7064-51e5-0c98-57dd86b50043"
HEARTBEAT_AHEAD: Final = timedelta(seconds=10)
"""So much in the future, a heartbeat stays present for 40 seconds: longer than one run of load."""


@dataclass(frozen=True, slots=True)
class Size:
    """How large the object of a review is."""

    responders: int = 4
    """With the evictor, which is the last one."""
    conditions: int = 2
    managed: int = 0
    """Bytes that ``managedFields`` has beside the usual ones."""


USUAL: Final = Size()


def target_responders(count: int = USUAL.responders) -> list[dict[str, Any]]:
    """The evictor and those before it; the second is Active, or the only one."""
    names = [f"step-{i}.acme.io/drain" for i in range(count - 1)]
    responders: list[dict[str, Any]] = [
        {"name": name, "priority": 20_000 - 1000 * i, "state": "Inactive"}
        for i, name in enumerate(names)
    ]
    responders.append({"name": _EVICTOR, "priority": 100, "state": "Inactive"})
    responders[0]["state"] = "Completed"
    responders[_active(count)]["state"] = "Active"
    return responders


_EVICTOR: Final = "imperative-eviction.k8s.io/evictor"


def _active(count: int) -> int:
    return min(1, count - 1)


def eviction(now: datetime, size: Size = USUAL) -> dict[str, Any]:
    """The stored Eviction, as an API server would send it at ``now``."""
    ago = {minutes: format_time(now - timedelta(minutes=minutes)) for minutes in (1, 5, 10, 15)}
    condition = {"status": "False", "reason": "AwaitingEviction", "message": ""}
    others = [f"acme.io/Step{number}" for number in range(size.conditions - 2)]
    conditions = [
        {"type": type_, "lastTransitionTime": ago[15]} | condition
        for type_ in ("TargetEvicted", "Failed", *others)
    ]
    targets = target_responders(size.responders)
    responders: list[dict[str, Any]] = [{"name": responder["name"]} for responder in targets]
    active = _active(size.responders)
    if active:
        responders[0] |= {"startTime": ago[15], "heartbeatTime": ago[10], "completionTime": ago[5]}
    responders[active] |= {
        "startTime": ago[5],
        "heartbeatTime": ago[1],
        "message": "draining, 40 % done",
    }
    return {
        "apiVersion": "lifecycle.k8s.io/v1alpha1",
        "kind": "Eviction",
        "metadata": _metadata(ago[15], targets, size),
        "spec": {"target": {"pod": {"name": "web-0", "uid": UID}}},
        "status": {
            "observedGeneration": 1,
            "requesters": [
                {"name": "nodes.acme.io/drain", "intent": "Eviction"},
                {"name": "vpa.example.com/resize", "intent": "Withdrawn"},
            ],
            "targetResponders": targets,
            "responders": responders,
            "conditions": conditions,
        },
    }


def _metadata(created: str, targets: list[dict[str, Any]], size: Size) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "f:status": {"f:responders": {'k:{"name":"step-1.acme.io/drain"}': {".": {}}}}
    }
    count = size.managed // len('"f:field-000000":{},')
    fields |= {f"f:field-{number:06}": {} for number in range(count)}
    return {
        "name": "pod-1-web-0",
        "namespace": "default",
        "uid": "0df5f996-a88a-faba-c7e4-de0cf1767f89",
        "resourceVersion": "7349",
        "generation": 1,
        "creationTimestamp": created,
        "labels": {responder["name"]: "responder" for responder in targets},
        "ownerReferences": [
            {"apiVersion": "lifecycle.k8s.io/v1alpha1", "kind": "EvictionRequest",
             "name": "drain-web-0", "uid": "5ec62dbe-c6d3-3353-f581-e833a3b1b71e"}
        ],
        "managedFields": [
            {"manager": "drain", "operation": "Apply", "apiVersion": "lifecycle.k8s.io/v1alpha1",
             "time": created, "fieldsType": "FieldsV1", "fieldsV1": fields, "subresource": "status"}
        ],
    }  # fmt: skip


def refused(now: datetime) -> bytes:
    """The AdmissionReview of a status update that breaks several rules."""
    old = eviction(now)
    new = copy.deepcopy(old)
    new["status"]["targetResponders"][2]["state"] = "Active"
    new["status"]["targetResponders"][3]["priority"] = 200
    new["status"]["responders"][1]["startTime"] = format_time(now)
    new["status"]["conditions"][0]["type"] = "not a name"
    return _review(new, old)


def review(now: datetime, size: Size = USUAL) -> bytes:
    """The AdmissionReview of a heartbeat, admitted for 40 seconds from ``now``."""
    old = eviction(now, size)
    new = copy.deepcopy(old)
    new["status"]["responders"][_active(size.responders)] |= {
        "heartbeatTime": format_time(now + HEARTBEAT_AHEAD),
        "message": "draining, 60 % done",
    }
    return _review(new, old)


def _review(new: dict[str, Any], old: dict[str, Any]) -> bytes:
    gvr = {"group": "lifecycle.k8s.io", "version": "v1alpha1", "resource": "evictions"}
    gvk = {"group": "lifecycle.k8s.io", "version": "v1alpha1", "kind": "Eviction"}
    request = {
        "uid": "9b0a7a5e-5f0c-4b52-9f0c-6f2a1f0e7d11",
        "kind": gvk, "resource": gvr, "subResource": "status",
        "requestKind": gvk, "requestResource": gvr, "requestSubResource": "status",
        "name": "pod-1-web-0", "namespace": "default", "operation": "UPDATE",
        "userInfo": {
            "username": "system:serviceaccount:mesh:operator",
            "uid": "d1f5a6de-0a3c-4b8e-9b39-0f6f9a5f7c11",
            "groups": ["system:serviceaccounts", "system:authenticated"],
        },
        "object": new, "oldObject": old, "dryRun": False,
        "options": {"kind": "UpdateOptions", "apiVersion": "meta.k8s.io/v1"},
    }  # fmt: skip
    document = {
        "kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": request,
    }  # fmt: skip
    return json.dumps(document, separators=(",", ":")).encode()
