"""Hundreds of evictions, while the controller is killed and the API server restarts."""

from collections import Counter
from collections.abc import Iterator
from http.client import HTTPException
from pathlib import Path

import pytest

from tests.controller.program import Program, Users, prepared, reasons, running
from tests.controlplane import Mode
from tests.e2e.cluster import Cluster
from tests.e2e.waiting import eventually, eventually_reach

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

PODS, BYSTANDERS = 500, 20
KILLS = 10
WRITES = 150
"""After how many of its writes a controller is killed: in every phase, however busy the machine is.
Its log has four of each eviction, so that a part is left for the last controller."""
RESTARTS_AFTER = (3, 7)
"""After which of the kills the API server restarts."""
FLAGS = ("--no-leader-elect", "--concurrency", "4")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with prepared(Mode.NATIVE) as cluster:
        yield cluster


def test_nothing_is_lost_and_nobody_is_evicted_unasked(cluster: Cluster, tmp_path: Path) -> None:
    users = Users(cluster)
    wanted = [f"web-{number}" for number in range(PODS)]
    for name in wanted:
        users.request(users.create_pod(name), f"drain-{name}")
    for number in range(BYSTANDERS):
        users.create_pod(f"bystander-{number}")
    withdrawn = users.create_pod("withdrawn")
    users.request(withdrawn, "drain-withdrawn", "Withdrawn")
    for kill in range(KILLS):
        with Program(cluster, tmp_path, *FLAGS).killed_afterwards() as program:
            eventually_reach(WRITES, program.written, "the controller writes")
        if kill in RESTARTS_AFTER:
            with Program(cluster, tmp_path, *FLAGS).killed_afterwards() as program:
                cluster.plane.stop_apiserver()
                eventually(lambda: program.ask("/readyz")[0] == 503, "it sees it")
                cluster.plane.start_apiserver()
                cluster.api.close()
    assert _ended(users) < PODS, "every kill met work that was not done yet"
    with running(cluster, tmp_path, *FLAGS):
        eventually_reach(PODS, lambda: _ended(users), "evictions end")
    _assert_all_is_well(users, wanted)


def _ended(users: Users) -> int:
    """How many requests know that their pod is gone; 0 while the API server is not there."""
    try:
        answer = users.cluster.api("GET", users.path("evictionrequests"))
    except (OSError, HTTPException):
        return 0
    found = answer.body["items"] if answer.ok else []
    return sum("PodDeleted" in reasons(request) for request in found)


def _assert_all_is_well(users: Users, wanted: list[str]) -> None:
    names = Counter(e["spec"]["target"]["pod"]["name"] for e in users.list("evictions"))
    assert names == Counter(wanted)
    called = {
        reference["name"]
        for event in users.cluster.plane.audit_events()
        if (reference := event.get("objectRef", {})).get("subresource") == "eviction"
    }
    assert called <= set(wanted)
    left = {pod["metadata"]["name"] for pod in users.list("pods")}
    assert left == {"withdrawn", *(f"bystander-{number}" for number in range(BYSTANDERS))}
