"""What an eviction costs the API server."""

from collections import Counter

import pytest

from tests.controller.program import Program, Users, cluster, controller, users
from tests.e2e.api import Object

__all__ = ["cluster", "controller", "users"]
pytestmark = pytest.mark.e2e

PODS = 50
MOST_WRITES = 6
"""API writes for one eviction of a pod without responders of its own: create the Eviction, its
first status, the call, the evictor's report, the last status, and that of the request."""


def test_writes_of_an_eviction(users: Users, controller: Program) -> None:
    pods = [users.create_pod(f"web-{number}") for number in range(PODS)]
    for pod in pods:
        users.request(pod, f"drain-{pod['metadata']['name']}")
    for pod in pods:
        name = f"drain-{pod['metadata']['name']}"
        users.wait_for_reason("evictionrequests", name, "PodDeleted")
    writes = Counter(map(_shown, _writes(users)))
    figure = sum(writes.values()) / PODS
    print(f"{users.cluster.plane.mode}: {figure:.2f} API writes per eviction; {dict(writes)}")
    assert figure <= MOST_WRITES


def _writes(users: Users) -> list[Object]:
    return [
        event
        for event in users.cluster.plane.audit_events()
        if event.get("userAgent") == "usher-controller"
        and event["stage"] == "ResponseComplete"
        and event["verb"] in ("create", "patch", "update", "delete")
        and event["objectRef"].get("namespace") == users.namespace
    ]


def _shown(event: Object) -> str:
    reference = event["objectRef"]
    resource = "/".join(filter(None, (reference["resource"], reference.get("subresource"))))
    return f"{event['verb']} {resource} {event['responseStatus']['code']}"
