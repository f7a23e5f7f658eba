"""Objects as an API server would serve them, short to write."""

from typing import Any, Final

NAMESPACE: Final = "default"
_GROUP_VERSION: Final = "lifecycle.k8s.io/v1alpha1"

Document = dict[str, Any]


def uid(number: int) -> str:
    return f"00000000-0000-4000-8000-{number:012x}"


def pod(name: str, number: int, responders: Any = (), **status: Any) -> Document:
    """The pod ``name``; ``responders`` are (name, priority)."""
    spec: Document = {"containers": [{"name": "c", "image": "x"}]}
    if responders:
        spec["evictionResponders"] = [
            {"name": responder, "priority": priority} for responder, priority in responders
        ]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": NAMESPACE, "uid": uid(number)},
        "spec": spec,
        "status": {"phase": "Running"} | status,
    }


def target_of(pod: Document) -> Document:
    return {"pod": {"name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]}}


def request(
    name: str, target: Document, number: int, created: str, requester: str, intent: str
) -> Document:
    return {
        "apiVersion": _GROUP_VERSION,
        "kind": "EvictionRequest",
        "metadata": {
            "name": name,
            "namespace": NAMESPACE,
            "uid": uid(number),
            "generation": 1,
            "creationTimestamp": created,
        },
        "spec": {"target": target, "requester": requester, "intent": intent},
    }


def eviction(name: str, target: Document, number: int, created: str) -> Document:
    return {
        "apiVersion": _GROUP_VERSION,
        "kind": "Eviction",
        "metadata": {
            "name": name,
            "namespace": NAMESPACE,
            "uid": uid(number),
            "generation": 1,
            "creationTimestamp": created,
        },
        "spec": {"target": target},
    }
