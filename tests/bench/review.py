"""The review that every figure is about: a status update of 4.5 kB, a heartbeat with a message."""

import copy
import json
from datetime import datetime, timedelta
from typing import Any, Final

from rules.times import format_time

UID: Final = "272ce49c-7064-51e5-0c98-57dd86b50043"
HEARTBEAT_AHEAD: Final = timedelta(seconds=10)
"""So much in the future, a heartbeat stays present for 40 seconds: longer than one run of load."""


def target_responders() -> list[dict[str, Any]]:
    """Three responders and the evictor; the second is Active."""
    states = ("Completed", "Active", "Inactive")
    responders: list[dict[str, Any]] = [
        {"name": f"step-{i}.acme.io/drain", "priority": 20_000 - 1000 * i, "state": state}
        for i, state in enumerate(states)
    ]
    evictor = "imperative-eviction.k8s.io/evictor"
    return [*responders, {"name": evictor, "priority": 100, "state": "Inactive"}]


def eviction(now: datetime) -> dict[str, Any]:
    """The stored Eviction, as an API server would send it at ``now``."""
    ago = {minutes: format_time(now - timedelta(minutes=minutes)) for minutes in (1, 5, 10, 15)}
    condition = {"status": "False", "reason": "AwaitingEviction", "message": ""}
    conditions = [
        {"type": type_, "lastTransitionTime": ago[15]} | condition
        for type_ in ("TargetEvicted", "Failed")
    ]
    responders = [{"name": responder["name"]} for responder in target_responders()]
    responders[0] |= {"startTime": ago[15], "heartbeatTime": ago[10], "completionTime": ago[5]}
    responders[1] |= {
        "startTime": ago[5],
        "heartbeatTime": ago[1],
        "message": "draining, 40 % done",
    }
    return {
        "apiVersion": "lifecycle.k8s.io/v1alpha1",
        "kind": "Eviction",
        "metadata": _metadata(ago[15]),
        "spec": {"target": {"pod": {"name": "web-0", "uid": UID}}},
        "status": {
            "observedGeneration": 1,
            "requesters": [
                {"name": "nodes.acme.io/drain", "intent": "Eviction"},
                {"name": "vpa.example.com/resize", "intent": "Withdrawn"},
            ],
            "targetResponders": target_responders(),
            "responders": responders,
            "conditions": conditions,
        },
    }


def _metadata(created: str) -> dict[str, Any]:
    fields = {"f:status": {"f:responders": {'k:{"name":"step-1.acme.io/drain"}': {".": {}}}}}
    return {
        "name": "pod-1-web-0",
        "namespace": "default",
        "uid": "0df5f996-a88a-faba-c7e4-de0cf1767f89",
        "resourceVersion": "7349",
        "generation": 1,
        "creationTimestamp": created,
        "labels": {responder["name"]: "responder" for responder in target_responders()},
        "ownerReferences": [
            {"apiVersion": "lifecycle.k8s.io/v1alpha1", "kind": "EvictionRequest",
             "name": "drain-web-0", "uid": "5ec62dbe-c6d3-3353-f581-e833a3b1b71e"}
        ],
        "managedFields": [
            {"manager": "drain", "operation": "Apply", "apiVersion": "lifecycle.k8s.io/v1alpha1",
             "time": created, "fieldsType": "FieldsV1", "fieldsV1": fields, "subresource": "status"}
        ],
    }  # fmt: skip


def review(now: datetime) -> bytes:
    """The AdmissionReview of a heartbeat, admitted for 40 seconds from ``now``."""
    old = eviction(now)
    new = copy.deepcopy(old)
    new["status"]["responders"][1] |= {
        "heartbeatTime": format_time(now + HEARTBEAT_AHEAD),
        "message": "draining, 60 % done",
    }
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
