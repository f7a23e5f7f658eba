"""Reviews as API servers send them, and the objects in them."""

import json
from typing import Any, Final

from rules.times import parse_time
from webhook.review import plural

NOW: Final = parse_time("2026-07-01T12:00:00Z")
"""The instant at which the test server judges."""
UID: Final = "705ab4f5-6393-11e8-b7cc-42010a800002"
POD_UID: Final = "272ce49c-7064-51e5-0c98-57dd86b50043"

Json = dict[str, Any]


def metadata(name: str = "pod-1-web-0") -> Json:
    return {
        "name": name,
        "namespace": "default",
        "uid": "2a2923a1-7bf8-469a-b0ad-35dac2f1905f",
        "resourceVersion": "2049",
        "creationTimestamp": "2026-07-01T08:13:00Z",
        "managedFields": [{"manager": "kubectl", "operation": "Update", "fieldsV1": {"f:x": {}}}],
    }


def eviction_request(**spec: Any) -> Json:
    """Return a lawful EvictionRequest; ``spec`` replaces fields of its spec."""
    return {
        "apiVersion": "lifecycle.k8s.io/v1alpha1",
        "kind": "EvictionRequest",
        "metadata": metadata("drain-web-0"),
        "spec": {
            "target": {"pod": {"name": "web-0", "uid": POD_UID}},
            "requester": "drain.acme.io/node-upgrade",
            "intent": "Eviction",
            **spec,
        },
    }


def eviction(heartbeat: str = "2026-07-01T11:59:00Z") -> Json:
    """Return an Eviction under way, whose first responder last reported at ``heartbeat``."""
    waiting = {
        "status": "False",
        "reason": "AwaitingEviction",
        "message": "",
        "lastTransitionTime": "2026-07-01T08:13:00Z",
    }
    return {
        "apiVersion": "lifecycle.k8s.io/v1alpha1",
        "kind": "Eviction",
        "metadata": metadata(),
        "spec": {"target": {"pod": {"name": "web-0", "uid": POD_UID}}},
        "status": {
            "observedGeneration": 1,
            "requesters": [{"name": "drain.acme.io/node-upgrade", "intent": "Eviction"}],
            "targetResponders": [
                {"name": "db.acme.io/failover", "priority": 10000, "state": "Active"},
                {"name": "mesh.acme.io/drain", "priority": 1000, "state": "Inactive"},
                {
                    "name": "imperative-eviction.k8s.io/evictor",
                    "priority": 100,
                    "state": "Inactive",
                },
            ],
            "responders": [
                {
                    "name": "db.acme.io/failover",
                    "startTime": "2026-07-01T11:58:00Z",
                    "heartbeatTime": heartbeat,
                    "message": "failing over to replica 2 of 3",
                },
                {"name": "mesh.acme.io/drain"},
                {"name": "imperative-eviction.k8s.io/evictor"},
            ],
            "conditions": [{"type": "TargetEvicted", **waiting}, {"type": "Failed", **waiting}],
        },
    }


def pod(**spec: Any) -> Json:
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata("web-0"), "spec": spec}


def review(
    operation: str = "CREATE",
    new: Any = None,
    old: Any = None,
    *,
    kind: tuple[str, str, str] = ("lifecycle.k8s.io", "v1alpha1", "EvictionRequest"),
    resource: str = "",
    subresource: str = "",
    api_version: str = "admission.k8s.io/v1",
    **request: Any,
) -> Json:
    """Return a review; ``request`` adds or replaces members of its request."""
    group, version, name = kind
    kinds = {"group": group, "version": version, "kind": name}
    resources = {
        "group": group,
        "version": version,
        "resource": resource or plural(name),
    }
    body: Json = {
        "uid": UID,
        "kind": kinds,
        "resource": resources,
        "requestKind": kinds,
        "requestResource": resources,
        "name": (new or old or {}).get("metadata", {}).get("name", ""),
        "namespace": "default",
        "operation": operation,
        "userInfo": {"username": "jane", "uid": "42", "groups": ["system:authenticated"]},
        "object": new,
        "oldObject": old,
        "dryRun": False,
        "options": {"kind": f"{operation.title()}Options", "apiVersion": "meta.k8s.io/v1"},
        **request,
    }
    if subresource:
        body["subResource"] = body["requestSubResource"] = subresource
    return {"kind": "AdmissionReview", "apiVersion": api_version, "request": body}


def creation(**changes: Any) -> Json:
    """Return a review of the creation of a lawful EvictionRequest."""
    return review("CREATE", eviction_request(), **changes)


def refused_creation(**changes: Any) -> Json:
    """Return a review of the creation of an EvictionRequest without an intent."""
    return review("CREATE", eviction_request(intent=None), **changes)


def heartbeat(time: str = "2026-07-01T12:00:00Z", **changes: Any) -> Json:
    """Return a review of a status write with which a responder reports at ``time``."""
    kind = ("lifecycle.k8s.io", "v1alpha1", "Eviction")
    return review("UPDATE", eviction(time), eviction(), kind=kind, subresource="status", **changes)


def encoded(document: Any) -> bytes:
    return json.dumps(document).encode()
