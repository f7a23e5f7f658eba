"""Zones that change: clusters grow and shrink, nodes move, zones come, go and come back."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

import pytest

from controller.node_health.planning.plan import NodeHealthSnapshot, plan_node_health
from controller.node_health.planning.pods import Pods
from controller.node_health.planning.zones import Health, Node, Zone
from tests.controller.nodes import SECOND, START, A, B, C, nodes, pod, request

LONG_AGO: Final = START - 3600 * SECOND
UNLABELLED: Final = Zone()


def turns(*stages: tuple[int, Iterable[Node]]) -> list[tuple[int, str]]:
    """Whose turn it is in which second, with a plan each second.

    A stage is the second from which on, and how the nodes are then; the last one only says when
    the others are over. Each node has one pod, and nothing has been saved up.
    """
    seen = NodeHealthSnapshot({}, Pods.of(()))
    found = []
    ends = [second for second, _ in stages[1:]] + [stages[-1][0]]
    for (begin, listed), end in zip(stages, ends, strict=True):
        known = {node.name: node for node in listed}
        seen = replace(seen, nodes=known, pods=Pods.of(pod(name) for name in known))
        for second in range(begin, end):
            plan = plan_node_health(seen, START + second * SECOND)
            requests = {
                uid: own for uid, own in seen.requests.items() if own not in plan.withdrawals
            }
            for node, asked in plan.turns:
                requests |= {each.uid: request(each) for each in asked}
                found.append((second, node.name))
            seen = replace(seen, requests=requests, budgets=plan.budgets)
    return found


def failed(zone: Zone, total: int, unhealthy: int) -> list[Node]:
    return nodes(zone, total, unhealthy, since=LONG_AGO)


def names(count: int, zone: str = "a") -> list[str]:
    return [f"{zone}-{number:03}" for number in range(count)]


@pytest.mark.parametrize("zone", [A, UNLABELLED], ids=["labels", "no-labels"])
def test_a_cluster_of_one_zone(zone: Zone) -> None:
    """Some failed: the normal rate; then most of 60; then all; then one is back."""
    found = turns(
        (0, failed(zone, 60, 3)),
        (100, failed(zone, 60, 40)),
        (350, failed(zone, 60, 60)),
        (900, failed(zone, 60, 59)),
        (1150, ()),
    )
    # What has been saved up before is good for one node at 100. Requests are withdrawn when all
    # nodes are down, so that everybody's turn comes again.
    expected = [10, 20, 30, 100, 200, 300, 1000, 1100]
    order = [*names(6, zone.name or "node"), *names(2, zone.name or "node")]
    assert found == list(zip(expected, order, strict=True))


def test_nodes_without_labels_are_a_zone_beside_the_others() -> None:
    found = turns((0, [*failed(A, 20, 2), *failed(UNLABELLED, 20, 20)]), (40, ()))
    assert found == [
        (10, "node-000"),
        (10, "a-000"),
        (20, "node-001"),
        (20, "a-001"),
        (30, "node-002"),
    ]


def test_all_zones_are_down_and_one_comes_back() -> None:
    down = [*failed(A, 3, 3), *failed(B, 3, 3)]
    found = turns((0, down), (1000, [*failed(A, 3, 3), *failed(B, 3, 0)]), (1035, ()))
    assert found == [(1010, "a-000"), (1020, "a-001"), (1030, "a-002")]


def test_an_outage_that_comes_and_goes_is_never_a_burst() -> None:
    """Up for less than ten seconds each time: nobody saves anything up for nobody knows what."""
    down, up = [*failed(A, 3, 3), *failed(B, 3, 3)], [*failed(A, 3, 3), *failed(B, 3, 0)]
    stages = [(second, down if second % 20 else up) for second in range(0, 200, 10)]
    assert turns(*stages) == []


def test_a_cluster_that_grows_beyond_50_nodes_goes_on_slowly() -> None:
    small, large = [*failed(A, 20, 12), *nodes(B, 30)], [*failed(A, 20, 12), *nodes(B, 31)]
    found = turns((0, small), (500, large), (750, ()))
    assert found == [(600, "a-000"), (700, "a-001")]


def test_a_cluster_that_shrinks_to_50_nodes_stops_at_once_and_keeps_nothing() -> None:
    """After 99 seconds of saving, a second with 50 nodes means to begin anew."""
    small, large = [*failed(A, 20, 12), *nodes(B, 30)], [*failed(A, 20, 12), *nodes(B, 31)]
    found = turns((0, large), (99, small), (100, large), (199, small), (200, large), (301, ()))
    assert found == [(300, "a-000")]


def test_a_threshold_that_is_crossed_again_and_again_keeps_the_lower_rate() -> None:
    """54 and 55 failed nodes of 100 in turn, each second: between two looks the lower rate."""
    more, less = failed(A, 100, 55), failed(A, 100, 54)
    stages = [(second, more if second % 2 else less) for second in range(300)]
    assert [second for second, _ in turns(*stages)] == [100, 200]


def test_a_node_that_moves_takes_its_place_in_the_other_queue() -> None:
    first, second = failed(A, 9, 2)[:2]
    later = nodes(B, 9, 2, since=LONG_AGO + SECOND)
    found = turns(
        (0, [first, second, *nodes(C, 9), *later]),
        (15, [first, replace(second, zone=B), *nodes(C, 9), *later]),
        (45, ()),
    )
    assert found == [(10, "a-000"), (10, "b-000"), (20, "a-001"), (30, "b-001")]


def test_nodes_that_move_to_and_fro_do_not_raise_the_rate() -> None:
    """Every 5 seconds the failed nodes are in another zone, which is forgotten when it is empty."""
    listed = failed(A, 20, 20)
    moved = [replace(node, zone=B) for node in listed]
    stages = [
        (second, [*(moved if second % 10 else listed), *nodes(C, 9)]) for second in range(0, 100, 5)
    ]
    assert turns(*stages) == []


def test_a_zone_of_which_healthy_nodes_move_away_is_judged_by_those_that_stay() -> None:
    listed = failed(A, 40, 15)
    moved = [replace(node, zone=B) if node.is_healthy else node for node in listed[:30]]
    found = turns((0, listed), (15, [*moved, *listed[30:], *nodes(C, 20)]), (230, ()))
    # 15 of 25 nodes are more than 55 %. 0.4 nodes have been saved up until 14, and 0.01 each second
    # from then on, because the lower rate counts where it changes.
    assert found == [(10, "a-000"), (74, "a-001"), (174, "a-002")]


def test_a_new_zone_begins_with_nothing_and_others_do_not_notice() -> None:
    listed = [*failed(A, 20, 3), *nodes(C, 9)]
    found = turns((0, listed), (25, [*listed, *failed(B, 5, 5)]), (50, ()))
    assert found == [
        (10, "a-000"),
        (20, "a-001"),
        (30, "a-002"),
        (35, "b-000"),
        (45, "b-001"),
    ]


def test_a_zone_that_is_gone_for_a_while_begins_anew() -> None:
    listed, others = failed(B, 5, 5), nodes(C, 9)
    found = turns((0, [*listed, *others]), (9, others), (10, [*listed, *others]), (21, ()))
    assert found == [(20, "b-000")]


def test_a_node_that_is_replaced_under_its_name_is_another_one() -> None:
    (old,) = failed(A, 1, 1)
    young = Node(old.name, A, Health.READY, START)
    others = nodes(C, 9)
    found = turns((0, [old, *others]), (9, [young, *others]), (30, [old, *others]), (41, ()))
    assert found == [(30, "a-000")]
