"""Documents that tests start from."""

from typing import Any, Final

from rules.api import API_VERSION, EVICTOR, EVICTOR_PRIORITY, RESPONDERS_ANNOTATION
from tests.e2e.api import Object
from tests.e2e.times import ago

UID: Final = "9b0a7a5e-5f0c-4b52-9f0c-6f2a1f0e7d11"
FIRST: Final = "db.acme.io/failover"
SECOND: Final = "mesh.example.com/drain"
REQUESTER: Final = "nodes.acme.io/drain"


def eviction(name: str = "pod-1-web-0", **metadata: Any) -> Object:
    """An Eviction that nobody has looked at."""
    return {
        "apiVersion": API_VERSION,
        "kind": "Eviction",
        "metadata": {"name": name, **metadata},
        "spec": {"target": {"pod": {"name": "web-0", "uid": UID}}},
    }


def request(name: str = "drain-web-0", **metadata: Any) -> Object:
    """An EvictionRequest."""
    return {
        "apiVersion": API_VERSION,
        "kind": "EvictionRequest",
        "metadata": {"name": name, **metadata},
        "spec": {
            "target": {"pod": {"name": "web-0", "uid": UID}},
            "requester": REQUESTER,
            "intent": "Eviction",
        },
    }


def pod(name: str = "web-0", *, annotation: str | None = None, **spec: Any) -> Object:
    """A pod; ``annotation`` declares its responders."""
    annotations = {} if annotation is None else {RESPONDERS_ANNOTATION: annotation}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "annotations": annotations},
        "spec": {"containers": [{"name": "web", "image": "web"}], **spec},
    }


def condition(kind: str, status: str, reason: str) -> Object:
    """A condition that has changed just now."""
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": "",
        "lastTransitionTime": ago(),
    }


def initial_status() -> Object:
    """What a controller writes first: three responders, the first of them Active."""
    return {
        "observedGeneration": 1,
        "requesters": [{"name": REQUESTER, "intent": "Eviction"}],
        "targetResponders": [
            {"name": FIRST, "priority": 10_000, "state": "Active"},
            {"name": SECOND, "priority": 5000, "state": "Inactive"},
            {"name": EVICTOR, "priority": EVICTOR_PRIORITY, "state": "Inactive"},
        ],
        "responders": [{"name": FIRST, "startTime": ago()}, {"name": SECOND}, {"name": EVICTOR}],
        "conditions": [
            condition("TargetEvicted", "False", "AwaitingEviction"),
            condition("Failed", "False", "AwaitingEviction"),
        ],
    }
