"""Timelines: what they may say, and what would be evicted when."""

from datetime import timedelta
from typing import Any, Final

import pytest

from controller.node_health.planning.plan import NodeHealthSnapshot, plan_node_health
from controller.node_health.planning.pods import Pods
from controller.node_health.planning.simulation import (
    Change,
    Course,
    Timeline,
    TimelineError,
    changes,
    simulate,
    with_full_budgets,
)
from controller.node_health.planning.zones import DEFAULTS, Health, Node, ZoneState
from rules.decode import DecodeError, decode_model
from tests.controller.nodes import SECOND, START, A, B, C, nodes, pod, request, snapshot

HOUR: Final = timedelta(hours=1)
CLUSTER: Final = [*nodes(A, 40), *nodes(B, 40), *nodes(C, 40)]
LARGE_NODES: Final = 5000
PODS_PER_NODE: Final = 30


def course(*events: dict[str, Any], of: list[Node] = CLUSTER, until: float = 3600) -> Course:
    timeline = decode_model(Timeline, {"events": list(events)})
    return simulate(snapshot(of), changes(timeline, of, START), START, timedelta(seconds=until))


def minutes(found: Course) -> list[float]:
    return [(item.time - START).total_seconds() / 60 for item in found.departures]


def test_a_node_fails() -> None:
    found = course({"afterSeconds": 60, "nodes": ["a-003"], "state": "not-ready"})
    assert [(d.time, d.zone, d.node, d.pods) for d in found.departures] == [
        (START + 60 * SECOND, A, "a-003", 1)
    ]
    assert found.waiting == {A: 0, B: 0, C: 0}


def test_more_than_half_of_a_zone_fails() -> None:
    found = course({"zone": "eu-1/a", "fraction": 0.55, "state": "unreachable"})
    assert len(found.departures) == 22
    assert minutes(found)[1] == pytest.approx(100 / 60)


def test_a_zone_fails() -> None:
    found = course({"zone": "eu-1/a", "state": "unreachable"})
    assert len(found.departures) == 40
    assert found.departures[-1].time == START + 390 * SECOND


def test_everything_fails_and_some_of_it_recovers() -> None:
    found = course(
        {"state": "unreachable"},
        {"afterSeconds": 600, "zone": "eu-1/a", "state": "ready"},
        {"afterSeconds": 900, "zone": "eu-1/b", "state": "ready"},
    )
    assert min(minutes(found)) == pytest.approx(10 + 1 / 6)
    assert {item.zone for item in found.departures} == {B, C}
    assert {item.zone for item in found.withdrawals} == {B}
    assert len(found.withdrawals) == 29
    states = [(c.zone, c.status.state, c.status.rate) for c in found.zone_changes[:3]]
    assert states == [(zone, ZoneState.FULL, 0) for zone in (A, B, C)]


def test_who_waits_at_the_end() -> None:
    assert course({"zone": "eu-1/a", "state": "unreachable"}, until=60).waiting[A] == 33


def test_a_failure_that_goes_on_does_not_begin_again() -> None:
    patient = [pod("a-000", 0, 90 * SECOND)]
    events = [Change(START + n * SECOND, ("a-000",), Health.UNREACHABLE) for n in (0, 60)]
    found = simulate(snapshot(CLUSTER, patient), events, START, HOUR)
    assert [item.time for item in found.departures] == [START + 90 * SECOND]


def test_the_end_of_time_is_an_end() -> None:
    late = START.max.replace(tzinfo=START.tzinfo) - 5 * SECOND
    seen = with_full_budgets(snapshot(nodes(A, 9, 2, since=late)), late, DEFAULTS)
    assert len(simulate(seen, [], late, 5 * SECOND).departures) == 1


@pytest.mark.parametrize(
    ("event", "nodes"),
    [
        ({}, 120),
        ({"zone": "eu-1/a"}, 40),
        ({"zone": "eu-1/a", "nodes": ["a-000", "b-000"]}, 1),
        ({"fraction": 0.55}, 66),
        ({"zone": "eu-1/b", "fraction": 0.55}, 22),
        ({"fraction": 0}, 0),
    ],
)
def test_which_nodes_an_event_is_about(event: dict[str, Any], nodes: int) -> None:
    timeline = decode_model(Timeline, {"events": [{"state": "ready", **event}]})
    ((time, names, health),) = changes(timeline, CLUSTER, START)
    assert (time, len(names), health) == (START, nodes, Health.READY)


def test_events_come_in_order_of_time() -> None:
    events = [{"afterSeconds": after, "state": "ready", "nodes": ["a-000"]} for after in (9.5, 1)]
    timeline = decode_model(Timeline, {"events": events})
    assert changes(timeline, CLUSTER, START) == [
        Change(START + after * SECOND, ("a-000",), Health.READY) for after in (1, 9.5)
    ]


@pytest.mark.parametrize(
    ("event", "message"),
    [
        ({"state": "down"}, r"events\[0\].state: must be one of ready, not-ready, unreachable"),
        ({}, r"events\[0\].state: must be one of"),
        ({"state": "ready", "zone": "a"}, r"events\[0\].zone: must be one of eu-1/a, eu-1/b"),
        ({"state": "ready", "nodes": ["x"]}, r"events\[0\].nodes: there is no node 'x'"),
    ],
)
def test_events_that_mean_nothing(event: dict[str, Any], message: str) -> None:
    with pytest.raises(TimelineError, match=message):
        changes(decode_model(Timeline, {"events": [event]}), CLUSTER, START)


@pytest.mark.parametrize(
    "event", [{"afterSeconds": -1}, {"fraction": 1.1}, {"nodes": "a"}, {"afterSeconds": "1"}]
)
def test_events_that_are_none(event: dict[str, Any]) -> None:
    with pytest.raises(DecodeError):
        decode_model(Timeline, {"events": [{"state": "ready", **event}]})


# --- a large cluster; its figures are those of tests/controller/node_bench.py ------------------


def large(unhealthy: int, *, requested: bool) -> NodeHealthSnapshot:
    """5,000 nodes, every third in one zone, and 150,000 pods; the first nodes have failed."""
    zones, grace = (A, B, C), timedelta(seconds=300)
    listed = {
        name: Node(
            name,
            zones[number * 3 // LARGE_NODES],
            Health.UNREACHABLE if number < unhealthy else Health.READY,
            START,
        )
        for number in range(LARGE_NODES)
        for name in [f"node-{number:04}"]
    }
    pods = Pods.of(pod(name, number, grace) for name in listed for number in range(PODS_PER_NODE))
    asked = pods.by_uid.values() if requested else ()
    requests = {item.uid: request(item) for item in asked if not listed[item.node].is_healthy}
    return with_full_budgets(NodeHealthSnapshot(listed, pods, requests), START, DEFAULTS)


@pytest.mark.slow
@pytest.mark.parametrize("requested", [False, True], ids=["nobody-asked", "all-asked"])
@pytest.mark.parametrize(
    ("unhealthy", "turns"),
    [(1, 1), (917, 1), (1667, 1), (4999, 3), (5000, 0)],
    ids=["one-node", "55-percent-of-a-zone", "a-zone", "all-but-one", "all"],
)
def test_a_tick_of_a_large_cluster(unhealthy: int, turns: int, *, requested: bool) -> None:
    plan = plan_node_health(large(unhealthy, requested=requested), START + HOUR)
    assert len(plan.turns) == (0 if requested else turns)
    assert len(plan.withdrawals) == (LARGE_NODES * PODS_PER_NODE if requested and not turns else 0)
