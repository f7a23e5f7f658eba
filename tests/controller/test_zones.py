"""States and rates of zones, and what is read from a node."""

from dataclasses import replace
from datetime import timedelta
from typing import Any, Final

import pytest

from controller.node_health.planning.zones import (
    DEFAULTS,
    EXCLUDED_LABEL,
    Health,
    Limits,
    Node,
    NodeObject,
    OtherTaint,
    Zone,
    ZoneState,
    assess,
)
from rules.decode import decode_model
from rules.times import format_time
from tests.controller.nodes import START, A, B, C, nodes

REGION: Final = "topology.kubernetes.io/region"
ZONE: Final = "topology.kubernetes.io/zone"


def test_the_defaults_are_those_of_the_node_controller() -> None:
    assert Limits(0.1, 0.01, 0.55, 50) == DEFAULTS


def test_every_limit_can_be_set() -> None:
    limits = Limits(2, 1, 0.3, 4)
    small = assess([*nodes(A, 3, 1), *nodes(B, 1)], limits)
    large = assess([*nodes(A, 3, 1), *nodes(B, 2)], limits)
    assert [status.rate for status in small.zones.values()] == [0, 2]
    assert [status.rate for status in large.zones.values()] == [1, 2]


def test_no_nodes_are_no_outage() -> None:
    assert assess([]).zones == {}
    assert not assess([]).is_down


def test_a_node_that_moves_counts_where_it_is_now() -> None:
    listed = [*nodes(A, 2, 1), *nodes(B, 3)]
    moved = [Node(n.name, B, n.health, n.since) if not n.is_healthy else n for n in listed]
    assert [s.unhealthy for s in assess(listed).zones.values()] == [1, 0]
    assert [(s.nodes, s.unhealthy) for s in assess(moved).zones.values()] == [(1, 0), (4, 1)]


def test_a_new_zone_may_be_what_keeps_the_cluster_up() -> None:
    failed = nodes(A, 3, 3)
    assert assess(failed).zones[A].rate == 0
    assert assess([*failed, *nodes(B, 1)]).zones[A].rate == 0.1


# --- nodes that do not count --------------------------------------------------------------------


def excluded(node: Node) -> Node:
    return replace(node, is_excluded=True)


def test_an_excluded_node_does_not_stand_for_a_connection() -> None:
    status = assess([*nodes(A, 40, 40), *nodes(B, 40, 40), *map(excluded, nodes(C, 3))])
    assert status.is_down
    assert {zone.rate for zone in status.zones.values()} == {0}


def test_an_excluded_node_counts_for_no_threshold() -> None:
    status = assess([*nodes(A, 20, 11), *map(excluded, nodes(A, 40))]).zones[A]
    assert (status.nodes, status.unhealthy, status.rate) == (20, 11, 0)


def test_a_zone_of_excluded_nodes_is_normal_and_has_its_turns() -> None:
    status = assess([*nodes(A, 3), *map(excluded, nodes(B, 2, 2))]).zones[B]
    assert (status.nodes, status.unhealthy, status.unhealthy_fraction) == (0, 0, 0)
    assert (status.state, status.rate) == (ZoneState.NORMAL, 0.1)


def test_where_all_are_excluded_all_count() -> None:
    assert assess(map(excluded, nodes(A, 3, 3))).is_down
    assert not assess(map(excluded, nodes(A, 3, 2))).is_down


# --- what is read from a node -------------------------------------------------------------------


def node(status: str | None, labels: dict[str, str] | None = None, *taints: Any) -> Node:
    ready = {"type": "Ready", "status": status, "lastTransitionTime": format_time(START)}
    return Node.of(
        decode_model(
            NodeObject,
            {
                "metadata": {"name": "n", "labels": labels or {}},
                "spec": {"taints": list(taints)},
                "status": {"conditions": [ready] if status else []},
            },
        )
    )


def taint(name: str, minutes: int, effect: str = "NoExecute") -> Any:
    added = format_time(START + timedelta(minutes=minutes))
    return {"key": f"node.kubernetes.io/{name}", "effect": effect, "timeAdded": added}


@pytest.mark.parametrize(
    ("status", "health"),
    [
        ("True", Health.READY),
        ("False", Health.NOT_READY),
        ("Unknown", Health.UNREACHABLE),
        (None, Health.UNREACHABLE),
    ],
)
def test_unhealthy_means_that_ready_is_unknown_or_false(status: str, health: Health) -> None:
    assert node(status).health is health
    assert node(status).is_healthy == (status == "True")


@pytest.mark.parametrize(
    ("labels", "zone", "name"),
    [
        ({}, Zone(), "(no zone)"),
        ({ZONE: "a"}, Zone("", "a"), "a"),
        ({REGION: "eu-1"}, Zone("eu-1"), "eu-1"),
        ({REGION: "eu-1", ZONE: "a"}, A, "eu-1/a"),
    ],
)
def test_a_zone_is_a_region_and_a_zone(labels: dict[str, str], zone: Zone, name: str) -> None:
    assert node("True", labels).zone == zone
    assert str(zone) == name


@pytest.mark.parametrize(
    ("taints", "minutes"),
    [
        ([], 0),
        ([taint("unreachable", 2)], 2),
        ([taint("unreachable", -2)], 0),
        ([taint("not-ready", 2)], 0),
        ([taint("unreachable", 2, "NoSchedule")], 0),
    ],
)
def test_the_taint_tells_since_when(taints: list[Any], minutes: int) -> None:
    assert node("Unknown", {}, *taints).since == START + timedelta(minutes=minutes)


def test_nobody_knows_since_when() -> None:
    assert node(None).since is None


@pytest.mark.parametrize("value", ["", "true", "false"])
def test_the_label_excludes_whatever_its_value(value: str) -> None:
    assert node("True", {EXCLUDED_LABEL: value}).is_excluded
    assert not node("True").is_excluded


def test_labels_of_old_are_not_honoured() -> None:
    old = "failure-domain.beta.kubernetes.io"
    assert node("True", {f"{old}/region": "eu-1", f"{old}/zone": "a"}).zone == Zone()


def test_other_taints_are_those_that_are_about_something_else() -> None:
    added = format_time(START)
    mine = {"key": "a.io/b", "value": "c", "effect": "NoExecute"}
    soft = {"key": "a.io/d", "effect": "NoSchedule"}
    found = node("True", None, taint("unreachable", 0), soft, mine, mine | {"timeAdded": added})
    assert found.taints == (OtherTaint("a.io/b", "c"), OtherTaint("a.io/b", "c", START))
