"""Each sentence of Kubernetes' "Rate limits on eviction" about states and rates; corner cases."""

from datetime import timedelta
from typing import Any, Final

import pytest

from controller.zones import DEFAULTS, Health, Limits, Node, NodeObject, Zone, ZoneState, assess
from rules.decode import decode_model
from rules.times import format_time
from tests.controller.nodes import START, A, B, C, nodes

NORMAL, PARTIAL, FULL = ZoneState.NORMAL, ZoneState.PARTIAL, ZoneState.FULL
REGION: Final = "topology.kubernetes.io/region"
ZONE: Final = "topology.kubernetes.io/zone"

# sentence → nodes, unhealthy nodes of the zones a, b, …; wanted state and rate of the zone a
SENTENCES: Final = {
    "in most cases the eviction rate is 0.1 per second": ([(20, 3), (20, 0)], NORMAL, 0.1),
    "the behaviour changes when nodes in a zone become unhealthy": (
        [(100, 60), (100, 0)],
        PARTIAL,
        0.01,
    ),
    "if the fraction is at least 0.55 the rate is reduced": ([(100, 55), (100, 0)], PARTIAL, 0.01),
    "below 0.55 it is not": ([(100, 54), (100, 0)], NORMAL, 0.1),
    "at 0.55 of 20 nodes, where the fraction is not exact": ([(20, 11), (40, 0)], PARTIAL, 0.01),
    "if the cluster is small evictions are stopped": ([(20, 12), (20, 0)], PARTIAL, 0.0),
    "a cluster of 50 nodes is small": ([(20, 12), (30, 0)], PARTIAL, 0.0),
    "otherwise, with 51, the rate is reduced to 0.01 per second": (
        [(20, 12), (31, 0)],
        PARTIAL,
        0.01,
    ),
    "the cluster counts, not the zone": ([(5, 3), (100, 0)], PARTIAL, 0.01),
    "policies are per zone: another partitioned zone does not matter": (
        [(20, 1), (20, 20), (20, 15)],
        NORMAL,
        0.1,
    ),
    "without several zones the fraction of the cluster counts": ([(100, 55)], PARTIAL, 0.01),
    "if all nodes in a zone are unhealthy the rate is the normal one": (
        [(20, 20), (20, 19)],
        FULL,
        0.1,
    ),
    "even in a small cluster": ([(2, 2), (2, 1)], FULL, 0.1),
    "if all zones are completely unhealthy nothing is evicted": ([(20, 20), (5, 5)], FULL, 0.0),
    "which is so in a cluster of one zone, too": ([(100, 100)], FULL, 0.0),
    "and in a cluster of one node": ([(1, 1)], FULL, 0.0),
    "when some nodes reappear, the remaining ones are evicted": ([(20, 20), (5, 4)], FULL, 0.1),
    "when they reappear in the zone itself": ([(60, 59), (5, 5)], PARTIAL, 0.01),
}


@pytest.mark.parametrize(("zones", "state", "rate"), SENTENCES.values(), ids=SENTENCES)
def test_the_reference(zones: list[tuple[int, int]], state: ZoneState, rate: float) -> None:
    listed = [
        n for zone, counts in zip((A, B, C), zones, strict=False) for n in nodes(zone, *counts)
    ]
    status = assess(listed)
    assert (status.zones[A].state, status.zones[A].rate) == (state, rate)
    assert status.zones[A].unhealthy_fraction == zones[0][1] / zones[0][0]
    assert status.is_down == all(total == unhealthy for total, unhealthy in zones)


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
