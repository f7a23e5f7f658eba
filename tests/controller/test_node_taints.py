"""Pods leave for every NoExecute taint that they do not tolerate, on healthy nodes, too."""

import asyncio
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Final

import pytest

from cluster.failures import Busy
from cluster.key import Key
from controller.node_health.planning.plan import NodeHealthPlan, plan_node_health
from controller.node_health.planning.pods import NodePod, PodObject, Tolerance
from controller.node_health.planning.simulation import Change, simulate
from controller.node_health.planning.zones import Health, Node, OtherTaint
from controller.node_health.reconciler import NodeHealth
from rules.decode import decode_model
from tests.controller.node_world import NODES, PODS_OF_A_NODE, Leader, World, virtual
from tests.controller.nodes import AT_ONCE, SECOND, START, A, nodes, pod, request, snapshot

KEY: Final = "a.io/maintenance"
TAINT: Final = OtherTaint(KEY, "soon", START)
OTHER: Final = OtherTaint("a.io/other", "", START + 100 * SECOND)


def tainted(*taints: OtherTaint, of: Node | None = None) -> Node:
    return replace(of or Node("n", A, since=START), taints=taints)


def served(*tolerations: dict[str, Any], **more: Any) -> NodePod:
    document = {
        "metadata": {"name": "p", "namespace": "default", "uid": "u", **more},
        "spec": {"nodeName": "n", "tolerations": list(tolerations)},
    }
    return NodePod.of(decode_model(PodObject, document))


def plan(node: Node, only: NodePod, now: datetime = START, **more: Any) -> NodeHealthPlan:
    return plan_node_health(snapshot([node, *nodes(A, 2)], [only], **more), now)


def due(node: Node, only: NodePod) -> timedelta | None:
    """How long after the start ``only`` is asked to leave; None: never."""
    first = plan(node, only)
    if first.tainted:
        return AT_ONCE
    if first.requeue_after is None:
        return None
    found = plan(node, only, START + first.requeue_after)
    assert [turn.pods for turn in found.tainted] == [(only,)]
    return first.requeue_after


@pytest.mark.parametrize(
    ("tolerations", "seconds"),
    [
        ([], 0),
        ([{"operator": "Exists"}], None),
        ([{"operator": "Exists", "tolerationSeconds": 60}], 60),
        ([{"key": KEY, "operator": "Exists", "effect": "NoExecute"}], None),
        ([{"key": KEY, "operator": "Exists", "effect": "NoSchedule"}], 0),
        ([{"key": KEY, "value": "soon"}], None),
        ([{"key": KEY, "operator": "Equal", "value": "soon", "tolerationSeconds": 9}], 9),
        ([{"key": KEY, "value": "late"}], 0),
        ([{"key": KEY}], 0),
        ([{"key": "node.kubernetes.io/unreachable", "operator": "Exists"}], 0),
        ([{"key": KEY, "value": "late"}, {"key": KEY, "operator": "Exists"}], None),
        ([{"key": KEY, "operator": "Exists", "tolerationSeconds": -5}], 0),
    ],
)
def test_the_toleration_decides(tolerations: list[Any], seconds: int | None) -> None:
    wanted = None if seconds is None else seconds * SECOND
    assert due(tainted(TAINT), served(*tolerations)) == wanted


@pytest.mark.parametrize(
    ("operator", "value", "matches"),
    [
        ("Gt", "5", True),
        ("Gt", "7", False),
        ("Lt", "7", False),
        ("Lt", "8", True),
        ("Gt", "x", False),
    ],
)
def test_numbers_are_compared(operator: str, value: str, *, matches: bool) -> None:
    """The taint has 7."""
    assert Tolerance(KEY, operator, value, None).matches(KEY, "7") == matches


def test_of_several_taints_the_first_that_is_over_counts() -> None:
    only = served({"key": KEY, "operator": "Exists", "tolerationSeconds": 300})
    assert due(tainted(TAINT), only) == 300 * SECOND
    assert due(tainted(TAINT, OTHER), only) == 100 * SECOND


@pytest.mark.parametrize(
    "metadata",
    [
        {"deletionTimestamp": "2026-07-01T12:00:00Z"},
        {"annotations": {"kubernetes.io/config.mirror": "x"}},
        {
            "ownerReferences": [
                {
                    "apiVersion": "apps/v1",
                    "kind": "DaemonSet",
                    "name": "d",
                    "uid": "d",
                    "controller": True,
                }
            ]
        },
    ],
)
def test_pods_that_belong_to_their_node_or_are_leaving_stay(metadata: dict[str, Any]) -> None:
    assert due(tainted(TAINT), served(**metadata)) is None


def test_no_rate_limits_them() -> None:
    """Whoever has set the taints has chosen the pace; budgets of zones are for judging health."""
    listed = [tainted(TAINT, of=node) for node in nodes(A, 20, 5)]
    seen = snapshot(listed, budgets={})
    found = plan_node_health(seen, START)
    assert len(found.tainted) == 20
    assert (found.turns, found.budgets[A].tokens) == ((), 0)


def test_one_request_for_both_reasons() -> None:
    failed = tainted(TAINT, of=nodes(A, 1, 1)[0])
    found = plan_node_health(snapshot([failed, *nodes(A, 9)[1:]]), START)
    assert [turn.node.name for turn in found.tainted] == ["a-000"]
    assert found.turns == ()


def test_nothing_in_a_total_outage() -> None:
    listed = [tainted(TAINT, of=node) for node in nodes(A, 3, 3)]
    asked = request(pod("a-000"))
    found = plan_node_health(snapshot(listed, requests=[asked]), START)
    assert (found.tainted, found.withdrawals) == ((), (asked,))


# --- taking back --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("node", "kept"),
    [
        (tainted(TAINT), True),
        (tainted(), False),
        (tainted(OTHER), False),
        (tainted(of=Node("n", A, Health.UNREACHABLE, START)), True),
    ],
)
def test_a_request_is_kept_as_long_as_the_pod_has_to_leave(node: Node, *, kept: bool) -> None:
    only = served({"key": OTHER.key, "operator": "Exists"})
    found = plan(node, only, requests=[request(only)])
    assert bool(found.withdrawals) != kept


def test_a_pod_that_tolerates_the_failure_stays_when_the_taint_goes() -> None:
    only = served({"key": "node.kubernetes.io/unreachable", "operator": "Exists"})
    failed = Node("n", A, Health.UNREACHABLE, START)
    assert plan(tainted(TAINT, of=failed), only, requests=[request(only)]).withdrawals == ()
    assert len(plan(failed, only, requests=[request(only)]).withdrawals) == 1


def test_what_is_leaving_for_a_taint_goes_on_leaving() -> None:
    leaving = served(deletionTimestamp="2026-07-01T12:00:00Z")
    assert plan(tainted(TAINT), leaving, requests=[request(leaving)]).withdrawals == ()


def test_the_simulation_has_them() -> None:
    listed = [tainted(TAINT, of=node) if node.name == "a-003" else node for node in nodes(A, 9)]
    failure = Change(START + 5 * SECOND, ("a-001",), Health.UNREACHABLE)
    found = simulate(snapshot(listed, budgets={}), [failure], START, timedelta(hours=1))
    assert [each.node for each in found.departures] == ["a-003", "a-001"]


# --- carried out --------------------------------------------------------------------------------


def test_all_tainted_nodes_at_once_and_no_budget_is_touched() -> None:
    world = World()
    for name in ("n0", "n2", "n4"):
        world.nodes[name] = tainted(TAINT, of=world.nodes[name])
    world.turn(Health.UNREACHABLE, "n6")
    with virtual(world):
        leader = Leader(world, NodeHealth())
        asyncio.run(leader.run(5))
        assert world.wanted() == {"n0", "n2", "n4"}
        asyncio.run(leader.run(6))
    assert world.wanted() == {"n0", "n2", "n4", "n6"}
    assert leader.reconciler.counters.turns.labels(*NODES["n0"])._value.get() == 1
    assert leader.reconciler.counters.asked.labels(*NODES["n0"])._value.get() == 4 * PODS_OF_A_NODE
    assert leader.told == ["EvictingPods"] * 4


def test_what_could_not_be_sent_is_told_once_and_tried_again() -> None:
    world = World()
    world.nodes["n0"] = tainted(TAINT, of=world.nodes["n0"])
    with virtual(world):
        leader = Leader(world, NodeHealth())
        apply, left = leader.apply, 5

        async def busy(*args: Any, **more: Any) -> Any:
            nonlocal left
            left -= 1
            if left >= 0:
                raise Busy("later")
            return await apply(*args, **more)

        leader.apply = busy  # type: ignore[method-assign]
        asyncio.run(leader.run(60))
    assert len(world.requests) == PODS_OF_A_NODE
    assert leader.told == ["EvictingPods"]


def test_taints_that_go_take_their_requests_back() -> None:
    world = World()
    world.nodes["n0"] = tainted(TAINT, of=world.nodes["n0"])
    with virtual(world):
        leader = Leader(world, NodeHealth())
        asyncio.run(leader.run(2))
        world.nodes["n0"] = tainted(of=world.nodes["n0"])
        asyncio.run(leader.run(2))
    assert world.wanted() == set()
    assert leader.told == ["EvictingPods", "EvictionsWithdrawn"]


def test_no_request_for_a_taint_that_is_gone_unseen() -> None:
    world = World()
    healthy = world.nodes["n0"]
    world.nodes["n0"] = tainted(TAINT, of=healthy)
    with virtual(world):
        leader = Leader(world, NodeHealth())
        leader.is_watching = False
        world.nodes["n0"] = healthy
        asyncio.run(leader.run(10))
    assert world.arrivals == []


def test_a_dry_run_tells_of_them_once() -> None:
    world = World()
    world.nodes["n0"] = tainted(TAINT, of=world.nodes["n0"])
    with virtual(world):
        leader = Leader(world, NodeHealth(dry_run=True))
        asyncio.run(leader.run(60))
    assert leader.reconciler.counters.asked.labels(*NODES["n0"])._value.get() == PODS_OF_A_NODE
    assert world.requests == {}


def test_keys_of_pods() -> None:
    """Default tolerations cost nothing: they are about the two taints that are treated apart."""
    one = served({"key": "node.kubernetes.io/unreachable", "operator": "Exists"})
    assert (one.tolerances, one.key) == ((), Key("default", "p"))
