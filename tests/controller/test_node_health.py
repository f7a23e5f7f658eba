"""Which pods of failed nodes are asked to leave, when, and when no longer."""

from dataclasses import replace
from datetime import timedelta
from typing import Any, Final

import pytest

from cluster.key import Key
from controller.eviction.planning.admission import as_request
from controller.eviction.planning.snapshot import Snapshot
from controller.node_health.planning.budget import Budget, Waiting
from controller.node_health.planning.plan import REQUESTER, NodeHealthPlan, plan_node_health
from controller.node_health.planning.pods import NodePod, OwnRequest, PodObject
from controller.node_health.planning.zones import Health, Node
from rules.api import EvictionRequest
from rules.decode import decode_model
from rules.evaluate import evaluate
from tests.controller import objects
from tests.controller.nodes import (
    AT_ONCE,
    SECOND,
    START,
    A,
    B,
    C,
    nodes,
    pod,
    request,
    snapshot,
    writes,
)

MINUTE: Final = timedelta(minutes=1)


def asked(plan: NodeHealthPlan) -> list[str]:
    return [pod.key.name for turn in plan.turns for pod in turn.pods]


# --- the reference, as far as it is about pods --------------------------------------------------


def test_not_pods_from_more_than_one_node_in_10_seconds() -> None:
    seen = snapshot(nodes(A, 20, 3))
    first = plan_node_health(seen, START)
    assert asked(first) == ["a-000-pod-0"]
    assert first.queues[A] == (Waiting(START, "a-001"), Waiting(START, "a-002"))
    assert first.requeue_after == 10 * SECOND
    seen = replace(
        seen, budgets=first.budgets, requests={"uid-of-a-000-pod-0": request(pod("a-000"))}
    )
    assert asked(plan_node_health(seen, START + 9 * SECOND)) == []
    assert asked(plan_node_health(seen, START + 10 * SECOND)) == ["a-001-pod-0"]


def test_all_pods_of_a_node_in_one_turn() -> None:
    pods = [pod("a-000", number) for number in range(30)]
    assert len(asked(plan_node_health(snapshot(nodes(A, 9, 1), pods), START))) == 30


def test_one_node_in_each_zone() -> None:
    seen = snapshot([*nodes(A, 20, 2), *nodes(B, 20, 2), *nodes(C, 20)])
    assert asked(plan_node_health(seen, START)) == ["a-000-pod-0", "b-000-pod-0"]


def test_nothing_while_all_zones_are_down_and_what_was_asked_is_taken_back() -> None:
    seen = snapshot([*nodes(A, 3, 3), *nodes(B, 3, 3)], requests=[request(pod("a-000"))])
    plan = plan_node_health(seen, START)
    assert (asked(plan), plan.requeue_after) == ([], None)
    assert plan.withdrawals == tuple(seen.requests.values())


def test_when_some_nodes_reappear_the_others_are_evicted_after_10_seconds() -> None:
    down = snapshot([*nodes(A, 3, 3), *nodes(B, 3, 3)])
    plan = plan_node_health(down, START)
    back = snapshot([*nodes(A, 3, 3), *nodes(B, 3, 2)], budgets=plan.budgets)
    plan = plan_node_health(back, START + MINUTE)
    assert (asked(plan), plan.requeue_after) == ([], 10 * SECOND)
    back = replace(back, budgets=plan.budgets)
    assert asked(plan_node_health(back, START + MINUTE + 10 * SECOND)) == ["a-000-pod-0"]


def test_pods_are_evicted_unless_they_tolerate_the_taint() -> None:
    pods = [
        pod("a-000", 0, None),
        pod("a-000", 1, 5 * MINUTE),
        pod("a-000", 2, MINUTE),
        NodePod(Key("default", "p3"), "u3", "a-000", not_ready=AT_ONCE, unreachable=None),
    ]
    seen = snapshot(nodes(A, 9, 1), pods)
    plan = plan_node_health(seen, START)
    assert (asked(plan), plan.requeue_after) == ([], MINUTE)
    plan = plan_node_health(seen, START + MINUTE)
    assert (asked(plan), plan.requeue_after) == (["a-000-pod-2"], 4 * MINUTE)
    plan = plan_node_health(seen, START + 5 * MINUTE)
    assert asked(plan) == ["a-000-pod-1", "a-000-pod-2"]


def test_a_node_waits_from_when_its_first_pod_is_due() -> None:
    pods = [
        pod("a-000", 0, 60 * SECOND),
        pod("a-000", 1, 20 * SECOND),
        pod("a-001", 0, 40 * SECOND),
    ]
    plan = plan_node_health(snapshot(nodes(A, 9, 2), pods, budgets={}), START + MINUTE)
    assert plan.queues[A] == (
        Waiting(START + 20 * SECOND, "a-000"),
        Waiting(START + 40 * SECOND, "a-001"),
    )


def test_a_node_of_unknown_age_is_left_alone() -> None:
    seen = snapshot([Node("a", A, Health.UNREACHABLE), *nodes(A, 9)])
    assert asked(plan_node_health(seen, START)) == []


# --- tolerations and pods, as the API serves them -----------------------------------------------


def read(spec: Any = (), metadata: Any = (), phase: str = "Running") -> NodePod:
    document = {
        "metadata": {"name": "p", "namespace": "d", "uid": "u", **dict(metadata)},
        "spec": {"nodeName": "n", **dict(spec)},
        "status": {"phase": phase},
    }
    return NodePod.of(decode_model(PodObject, document))


def tolerating(*tolerations: dict[str, Any]) -> tuple[float | None, ...]:
    found = read({"tolerations": tolerations})
    spans = (found.not_ready, found.unreachable)
    return tuple(span.total_seconds() if span is not None else None for span in spans)


NOT_READY: Final = {"key": "node.kubernetes.io/not-ready", "operator": "Exists"}
SECONDS: Final = {"tolerationSeconds": 300}


@pytest.mark.parametrize(
    ("tolerations", "wanted"),
    [
        ([], (0, 0)),
        ([NOT_READY], (None, 0)),
        ([NOT_READY | SECONDS], (300, 0)),
        ([NOT_READY | {"effect": "NoExecute"} | SECONDS], (300, 0)),
        ([NOT_READY | {"effect": "NoSchedule"}], (0, 0)),
        ([NOT_READY | {"operator": "Equal"}], (None, 0)),
        ([NOT_READY | {"operator": ""}], (None, 0)),
        ([NOT_READY | {"operator": "Equal", "value": "x"}], (0, 0)),
        ([NOT_READY | {"operator": "Gt", "value": "1"}], (0, 0)),
        ([{"operator": "Exists"}], (None, None)),
        ([{"operator": "Exists"} | SECONDS, NOT_READY], (300, 300)),
        ([{}], (0, 0)),
        ([NOT_READY | {"tolerationSeconds": -1}], (0, 0)),
        ([NOT_READY | {"tolerationSeconds": 2**62}], (None, 0)),
    ],
)
def test_tolerations(tolerations: list[dict[str, Any]], wanted: tuple[float | None, ...]) -> None:
    assert tolerating(*tolerations) == wanted


DAEMON: Final = {"kind": "DaemonSet", "name": "d", "controller": True}


@pytest.mark.parametrize(
    "stays",
    [
        {"metadata": {"annotations": {"kubernetes.io/config.mirror": "x"}}},
        {"metadata": {"ownerReferences": [DAEMON]}},
        {"metadata": {"deletionTimestamp": "2026-07-01T12:00:00Z"}},
        {"spec": {"schedulingGroup": {"podGroupName": "g"}}},
        {"phase": "Succeeded"},
        {"phase": "Failed"},
    ],
    ids=str,
)
def test_pods_that_stay(stays: dict[str, Any]) -> None:
    found = read(**stays)
    assert (found.not_ready, found.unreachable) == (None, None)


def test_an_owner_that_is_no_controller_does_not_matter() -> None:
    assert read(metadata={"ownerReferences": [DAEMON | {"controller": False}]}).not_ready == AT_ONCE


# --- requests -----------------------------------------------------------------------------------

POD: Final = pod("a-000")


@pytest.mark.parametrize(
    ("state", "unhealthy", "wanted"),
    [
        ({}, 1, "keep"),
        ({}, 0, "withdraw"),
        ({"is_seen": True}, 0, "withdraw"),
        ({"wants_eviction": False}, 0, "keep"),
        ({"wants_eviction": False}, 1, "keep"),
        ({"wants_eviction": False, "is_seen": True}, 0, "delete"),
        ({"wants_eviction": False, "is_seen": True}, 1, "delete"),
        ({"is_evicted": True, "is_done": True}, 1, "delete"),
        ({"is_evicted": True, "is_done": True}, 0, "delete"),
        ({"is_done": True}, 1, "keep"),
        ({"is_done": True}, 0, "delete"),
        ({"is_deleted": True}, 0, "keep"),
        ({"is_deleted": True, "is_evicted": True, "is_done": True}, 1, "keep"),
    ],
)
def test_what_becomes_of_a_request(state: dict[str, bool], unhealthy: int, wanted: str) -> None:
    own = request(POD, **state)
    plan = plan_node_health(snapshot(nodes(A, 9, unhealthy), [POD], [own]), START)
    assert asked(plan) == []
    assert plan.withdrawals == ((own,) if wanted == "withdraw" else ())
    assert plan.deletions == ((own.key,) if wanted == "delete" else ())


def test_a_request_for_a_pod_that_is_gone_is_deleted() -> None:
    own = request(POD)
    assert plan_node_health(snapshot(nodes(A, 9, 1), [], [own]), START).deletions == (own.key,)


def test_a_node_that_is_gone_has_not_recovered() -> None:
    lost = pod("gone")
    plan = plan_node_health(snapshot(nodes(A, 9), [lost], [request(lost)]), START)
    assert (plan.withdrawals, plan.deletions) == ((), ())


def test_nothing_is_known_yet_and_nothing_is_taken_back() -> None:
    plan = plan_node_health(snapshot([], [POD], [request(POD)]), START)
    assert (plan.withdrawals, plan.deletions, plan.requeue_after) == ((), (), None)


@pytest.mark.parametrize(
    ("conditions", "wanted"),
    [
        ([], {"is_seen": True}),
        (
            [{"type": "TargetEvicted", "status": "True"}],
            {"is_seen": True, "is_evicted": True, "is_done": True},
        ),
        (
            [{"type": "Failed", "status": "True", "reason": "EvictionInvalid"}],
            {"is_seen": True, "is_done": True},
        ),
    ],
)
def test_requests_as_the_api_serves_them(conditions: list[Any], wanted: dict[str, bool]) -> None:
    target = {"pod": {"name": "p", "uid": objects.uid(1)}}
    document = objects.request("r", target, 2, "2026-07-01T12:00:00Z", REQUESTER, "Eviction")
    document["status"] = {"observedGeneration": 1, "conditions": conditions}
    found = OwnRequest.of(decode_model(EvictionRequest, document))
    assert found == OwnRequest(Key("default", "r"), objects.uid(1), "p", created=START, **wanted)


def test_every_write_is_admitted_by_our_own_rules() -> None:
    new = NodePod(Key("default", "web"), objects.uid(1), "a-000")
    old = NodePod(Key("default", "old"), objects.uid(2), "a-008")
    target = {"pod": {"name": "old", "uid": objects.uid(2)}}
    stored = objects.request(
        "node-health-" + objects.uid(2), target, 3, "2026-07-01T12:00:00Z", "a.io/b", "Eviction"
    )
    known = decode_model(Snapshot, {"evictionRequests": [stored]})
    own = OwnRequest.of(known.eviction_requests[0])
    plan = plan_node_health(snapshot(nodes(A, 9, 1), [new, old], [own]), START)
    withdrawal, creation = writes(plan, "a.io/b")
    for write in (withdrawal, creation):
        assert not evaluate(as_request(write, known, START)).denied
    assert withdrawal.apply["spec"] == {
        "target": target,
        "requester": "a.io/b",
        "intent": "Withdrawn",
    }
    assert creation.apply["spec"]["intent"] == "Eviction"
    assert creation.key == Key("default", f"node-health-{objects.uid(1)}")


def test_the_default_requester() -> None:
    (write,) = writes(plan_node_health(snapshot(nodes(A, 9, 1)), START))
    assert write.apply["spec"]["requester"] == "node-health.usher.dev/controller"


def test_a_refused_request_holds_up_nobody() -> None:
    """What is asked for the first node never comes to be; the second has its turn all the same."""
    seen, now, turns = snapshot(nodes(A, 9, 2)), START, []
    for _ in range(4):
        plan = plan_node_health(seen, now)
        turns += [turn.node.name for turn in plan.turns]
        seen, now = replace(seen, budgets=plan.budgets), now + 10 * SECOND
    assert turns == ["a-000", "a-001", "a-000", "a-001"]


def test_a_node_keeps_its_place_when_it_moves() -> None:
    late = nodes(B, 9, 2, since=START + MINUTE)
    (early,) = nodes(A, 1, 1)
    moved = replace(early, zone=B)
    plan = plan_node_health(snapshot([moved, *late]), START + 2 * MINUTE)
    assert asked(plan) == ["a-000-pod-0"]
    assert [item.node for item in plan.queues[B]] == ["b-000", "b-001"]


def test_a_new_zone_has_no_burst() -> None:
    plan = plan_node_health(snapshot([*nodes(A, 9), *nodes(B, 9, 1)], budgets={}), START)
    assert (asked(plan), plan.requeue_after) == ([], 10 * SECOND)


def test_a_zone_that_is_gone_is_forgotten() -> None:
    seen = snapshot(nodes(A, 9), budgets={B: Budget(START)})
    assert set(plan_node_health(seen, START).budgets) == {A}
