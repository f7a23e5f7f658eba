"""``usher nodes --simulate``: outages that happen, and what must come of them."""

import json
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.cli.conftest import Usher

START: Final = "2026-07-01T12:00:00Z"
EXCLUDED: Final = {"node.kubernetes.io/exclude-disruption": "true"}


def node(zone: str, name: str, **labels: str) -> dict[str, Any]:
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-07-01T10:00:00Z"}
    known = {"topology.kubernetes.io/region": "eu-1", "topology.kubernetes.io/zone": zone}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": f"{zone}-{name}", "labels": known | labels},
        "status": {"conditions": [ready]},
    }


def workers(number: int) -> list[dict[str, Any]]:
    """So many in each of three zones."""
    return [node(zone, f"{position:02}") for zone in "abc" for position in range(number)]


def control_planes(**labels: str) -> list[dict[str, Any]]:
    """Three, in a zone of their own."""
    return [node("control", f"{position:02}", **labels) for position in range(3)]


def event(seconds: int, state: str, *names: str) -> dict[str, Any]:
    return {"afterSeconds": seconds, "state": state, "nodes": list(names)}


@pytest.fixture
def simulated(usher: Usher, tmp_path: Path) -> Any:
    """Nodes and events → what the command tells as JSON."""

    def run(nodes: list[dict[str, Any]], events: list[dict[str, Any]], until: int) -> Any:
        listed = {"apiVersion": "v1", "kind": "List", "items": nodes}
        (tmp_path / "cluster.json").write_text(json.dumps(listed))
        timeline = {"start": START, "untilSeconds": until, "events": events}
        (tmp_path / "timeline.yaml").write_text(yaml.safe_dump(timeline))
        done = usher("nodes", "cluster.json", "--simulate", "timeline.yaml", "-o", "json")
        assert done.exit_code == 0, done.stderr
        return json.loads(done.stdout)

    return run


@pytest.mark.parametrize(("labels", "evicted"), [(EXCLUDED, 0), ({}, 120)])
def test_all_workers_are_cut_off(simulated: Any, labels: dict[str, str], evicted: int) -> None:
    """The control plane's nodes are healthy; labelled, they don't stand against the rule."""
    nodes = workers(40)
    names = [each["metadata"]["name"] for each in nodes]
    found = simulated([*nodes, *control_planes(**labels)], [event(0, "unreachable", *names)], 1800)
    assert len(found["evictions"]) == evicted


def test_nodes_that_come_back_one_by_one_keep_their_pods(simulated: Any) -> None:
    """After a total outage of 10 minutes all are back within 50 seconds of the first."""
    nodes = workers(40)
    names = [each["metadata"]["name"] for each in nodes]
    back = [event(600 + 5 * number, "ready", *names[number::11]) for number in range(11)]
    found = simulated(nodes, [event(0, "unreachable", *names), *back], 1800)
    assert found["evictions"] == []


def test_who_does_not_come_back_goes_after_a_new_grace(simulated: Any) -> None:
    nodes = workers(40)
    names = [each["metadata"]["name"] for each in nodes]
    events = [event(0, "unreachable", *names), event(600, "ready", *names[1:])]
    (eviction,) = simulated(nodes, events, 1800)["evictions"]
    assert (eviction["node"], eviction["time"]) == ("a-00", "2026-07-01T12:15:00Z")


def test_a_node_that_fails_now_in_this_way_and_now_in_that_goes_in_time(simulated: Any) -> None:
    """A kubelet that crashes again and again; every 4 minutes, for 2 hours."""
    states = ["unreachable", "not-ready"] * 15
    events = [event(5 + 240 * n, state, "a-00") for n, state in enumerate(states)]
    (eviction,) = simulated(workers(4), events, 7200)["evictions"]
    assert (eviction["node"], eviction["time"]) == ("a-00", "2026-07-01T12:05:05Z")


def test_only_being_ready_ends_being_down(simulated: Any) -> None:
    events = [event(5, "unreachable", "a-00"), event(240, "ready", "a-00")]
    events += [event(245, "not-ready", "a-00")]
    (eviction,) = simulated(workers(4), events, 7200)["evictions"]
    assert eviction["time"] == "2026-07-01T12:09:05Z"
