"""Pods with responders are asked before others, and pods that stay are deleted in the end."""

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import Any, Final

import pytest

from cluster.failures import Denied, Unreachable
from controller.node_health.planning.plan import NodeHealthPlan, Timing, plan_node_health
from controller.node_health.planning.pods import NodePod, OwnRequest, PodObject
from controller.node_health.planning.zones import Health, Node, OtherTaint
from controller.node_health.reconciler import NodeHealth
from rules.api import RESPONDERS_ANNOTATION
from rules.decode import decode_model
from rules.mutation import Mode
from tests.controller.node_world import PODS_OF_A_NODE, Leader, World, virtual
from tests.controller.nodes import AT_ONCE, SECOND, START, A, B, nodes, pod, request, snapshot

GRACE: Final = 300 * SECOND
LEAD: Final = Timing(lead=240 * SECOND)
HOUR: Final = timedelta(hours=1)
DEADLINE: Final = Timing(deadline=HOUR)
NAME: Final = "a-000"


def plan(pods: list[NodePod], after: timedelta, timing: Timing, **more: Any) -> NodeHealthPlan:
    listed = more.pop("listed", nodes(A, 9, 1))
    return plan_node_health(snapshot(listed, pods, **more), START + after, timing=timing)


# --- the lead -----------------------------------------------------------------------------------


@pytest.mark.parametrize("has_responders", [False, True])
@pytest.mark.parametrize("grace", [AT_ONCE, 100 * SECOND, GRACE])
def test_only_pods_with_responders_are_asked_earlier(
    grace: timedelta, *, has_responders: bool
) -> None:
    only = replace(pod(NAME, 0, grace), has_responders=has_responders)
    lead = LEAD.lead if has_responders else AT_ONCE
    wanted = max(grace - lead, AT_ONCE)
    if wanted:
        early = plan([only], wanted - SECOND, LEAD)
        assert (early.turns, early.requeue_after) == ((), SECOND)
    (turn,) = plan([only], wanted, LEAD).turns
    assert turn.pods == (only,)


def test_who_tolerates_for_ever_is_not_asked() -> None:
    only = replace(pod(NAME, 0, None), has_responders=True)
    assert plan([only], GRACE, LEAD).turns == ()


def test_others_on_the_node_wait_for_their_own_time() -> None:
    early, late = replace(pod(NAME, 0, GRACE), has_responders=True), pod(NAME, 1, GRACE)
    (turn,) = plan([early, late], 60 * SECOND, LEAD).turns
    assert turn.pods == (early,)


def test_the_lead_counts_for_other_taints() -> None:
    tolerations = [{"operator": "Exists", "tolerationSeconds": 300}]
    document = {
        "metadata": {"name": "p", "namespace": "d", "uid": "u"},
        "spec": {
            "nodeName": NAME,
            "tolerations": tolerations,
            "evictionResponders": [{"name": "a.io/b", "priority": 1}],
        },
    }
    only = NodePod.of(decode_model(PodObject, document))
    first, *others = nodes(A, 9)
    listed = [replace(first, taints=(OtherTaint("a.io/b", "", START),)), *others]
    assert plan([only], 59 * SECOND, LEAD, listed=listed).tainted == ()
    assert len(plan([only], 60 * SECOND, LEAD, listed=listed).tainted) == 1


@pytest.mark.parametrize(
    ("mode", "field", "annotation"),
    [(Mode.AUTO, True, True), (Mode.NATIVE, True, False), (Mode.CRD, False, True)],
)
def test_responders_count_where_they_are_listed(
    mode: Mode, *, field: bool, annotation: bool
) -> None:
    responders = [{"name": "a.io/b", "priority": 1}]
    for spec, annotations, wanted in (
        ({"evictionResponders": responders}, {}, field),
        ({}, {RESPONDERS_ANNOTATION: '[{"name": "a.io/b"}]'}, annotation),
        ({"evictionResponders": []}, {RESPONDERS_ANNOTATION: "[]"}, False),
    ):
        document = {"metadata": {"annotations": annotations}, "spec": spec}
        found = NodePod.of(decode_model(PodObject, document), mode)
        assert found.has_responders == wanted


# --- the deadline -------------------------------------------------------------------------------

POD: Final = pod(NAME, 0)


def asked(**state: Any) -> OwnRequest:
    return request(POD, created=START, **state)


def overdue(own: OwnRequest, after: timedelta = HOUR, only: NodePod = POD, **more: Any) -> bool:
    return bool(plan([only], after, DEADLINE, requests=[own], **more).overdue)


def test_a_pod_that_has_not_gone_in_time_is_overdue() -> None:
    early = plan([POD], HOUR - SECOND, DEADLINE, requests=[asked()])
    assert (early.overdue, early.requeue_after) == ((), SECOND)
    assert overdue(asked())
    assert overdue(asked(is_done=True))  # its eviction has failed


def test_without_a_deadline_nothing_is_overdue() -> None:
    found = plan([POD], 1000 * HOUR, Timing(), requests=[asked()])
    assert (found.overdue, found.oldest) == ((), START)


@pytest.mark.parametrize(
    "own",
    [asked(wants_eviction=False), asked(is_deleted=True), asked(is_evicted=True, is_done=True)],
)
def test_nobody_asks_for_it_any_more(own: OwnRequest) -> None:
    assert not overdue(own)


def test_what_is_being_deleted_is_left_alone() -> None:
    leaving = replace(POD, not_ready=None, unreachable=None, stays=True)
    found = plan([leaving], HOUR, DEADLINE, requests=[asked()])
    assert (found.overdue, found.oldest) == ((), None)


@pytest.mark.parametrize(
    "listed",
    [
        nodes(A, 9),
        nodes(A, 9, 9),
        nodes(A, 9, 6),
        [replace(nodes(A, 9)[0], taints=(OtherTaint("a.io/b", "", START),)), *nodes(A, 9)[1:]],
        nodes(B, 9),
    ],
    ids=["healthy", "outage", "stopped", "tainted", "gone"],
)
def test_only_nodes_that_are_down_where_evictions_are_not_stopped(listed: list[Node]) -> None:
    assert not overdue(asked(), listed=listed)


def test_the_oldest_counts_whose_pod_is_there() -> None:
    others = [pod(NAME, 1), pod(NAME, 2)]
    gone = replace(request(pod(NAME, 3)), created=START - HOUR)
    requests = [asked(), *(replace(request(each), created=START + HOUR) for each in others), gone]
    assert plan([POD, *others], HOUR, Timing(), requests=requests).oldest == START


# --- carried out --------------------------------------------------------------------------------

SETTINGS: Final = NodeHealth(timing=Timing(deadline=60 * SECOND))


def names(node: str) -> list[str]:
    return [f"{node}-pod-{place}" for place in range(PODS_OF_A_NODE)]


def test_overdue_pods_are_deleted_once() -> None:
    world = World()
    world.turn(Health.UNREACHABLE, "n0")
    with virtual(world):
        leader = Leader(world, SETTINGS)
        asyncio.run(leader.run(69))
        assert leader.deleted == []
        asyncio.run(leader.run(60))
    assert set(leader.deleted) == set(names("n0"))
    assert leader.reconciler.counters.overdue.labels(*A)._value.get() == len(leader.deleted)
    assert leader.told.count("DeletedOverdue") == len(leader.deleted)


def test_no_pod_is_deleted_whose_node_has_recovered_unseen() -> None:
    world = World()
    world.turn(Health.UNREACHABLE, "n0")
    with virtual(world):
        leader = Leader(world, SETTINGS)
        asyncio.run(leader.run(30))
        leader.is_watching = False
        world.turn(Health.READY, "n0")
        asyncio.run(leader.run(60))
    assert leader.deleted == []
    assert world.wanted() == set()


def test_no_pod_is_deleted_while_nodes_can_not_be_looked_at() -> None:
    world = World()
    world.turn(Health.UNREACHABLE, "n0")
    with virtual(world):
        leader = Leader(world, SETTINGS)
        asyncio.run(leader.run(30))

        async def away(*_: Any) -> Any:
            raise Unreachable("no answer")

        get, leader.get = leader.get, away  # type: ignore[method-assign]
        asyncio.run(leader.run(60))
        assert leader.deleted == []
        leader.get = get  # type: ignore[method-assign]
        asyncio.run(leader.run(120))
    assert set(leader.deleted) == set(names("n0"))


def test_a_missing_right_holds_up_nothing_else() -> None:
    world = World()
    world.turn(Health.UNREACHABLE, "n0")
    with virtual(world):
        leader = Leader(world, SETTINGS)
        delete = leader.delete

        async def refusing(resource: Any, *more: Any) -> None:
            if resource.name == "pods":
                raise Denied("no", "delete pods")
            await delete(resource, *more)

        leader.delete = refusing  # type: ignore[method-assign]
        asyncio.run(leader.run(90))
        world.turn(Health.UNREACHABLE, "n2")
        asyncio.run(leader.run(30))
    assert (leader.deleted, world.wanted()) == ([], {"n0", "n2"})


def test_a_dry_run_deletes_nothing() -> None:
    world = World()
    world.turn(Health.UNREACHABLE, "n0")
    with virtual(world):
        leader = Leader(world, replace(SETTINGS, dry_run=True))
        asyncio.run(leader.run(200))
    assert leader.deleted == []
