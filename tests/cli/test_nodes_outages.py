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
