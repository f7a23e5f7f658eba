"""What an eviction costs the API server."""

from collections import defaultdict
from datetime import datetime, timedelta
from typing import Final

import pytest

from controller.eviction.planning.deferral import INTERIM_DELAY
from tests.controller.program import Program, Users, cluster, controller, users
from tests.e2e.api import Object

__all__ = ["cluster", "controller", "users"]
pytestmark = pytest.mark.e2e

PODS: Final = 20
MOST_WRITES: Final = 6
"""API writes for one eviction of a pod without responders of its own: create the Eviction, its
first status, the call, the evictor's report, the last status, and that of the request."""
SWIFT: Final = INTERIM_DELAY - timedelta(seconds=1)
"""What lasts longer, on a busy machine, is told in between; stored times have no fractions."""


def test_writes_of_an_eviction(users: Users, controller: Program) -> None:
    names = [f"web-{number}" for number in range(PODS)]
    for name in names:  # one after the other, so that each is over soon
        users.request(users.create_pod(name), name)
        users.wait_for_reason("evictionrequests", name, "PodDeleted")
    writes = _writes(users)
    swift = [writes[name] for name in names if _span(writes[name]) < SWIFT]
    print(f"{users.cluster.plane.mode}: {len(swift)} of {PODS} were over within {SWIFT}")
    assert swift
    assert [each for each in swift if len(each) > MOST_WRITES] == []


def _writes(users: Users) -> dict[str, list[Object]]:
    """Pod → the controller's writes about it, by the audit log."""
    found = defaultdict(list)
    for event in users.cluster.plane.audit_events():
        if (
            event.get("userAgent") == "usher-controller"
            and event["stage"] == "ResponseComplete"
            and event["verb"] in ("create", "patch", "update", "delete")
            and event["objectRef"].get("namespace") == users.namespace
        ):
            found[event["objectRef"].get("name", "").removeprefix("pod-1-")].append(event)
    return found


def _span(writes: list[Object]) -> timedelta:
    times = [datetime.fromisoformat(event["stageTimestamp"]) for event in writes]
    return max(times) - min(times)
