"""The reconciler of nodes among failures, crashes and clocks: what arrives at the API server."""

import asyncio
from dataclasses import replace
from datetime import timedelta
from itertools import cycle, pairwise
from typing import Any, Final

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from cluster.failures import (
    Busy,
    ClusterFailure,
    Conflict,
    Denied,
    Missing,
    Refused,
    ServerFailure,
    Unreachable,
)
from controller.eviction.routing import NODE_REQUEST, PLANNING
from controller.node_health.planning.zones import EVICTION_RATE, Health, Limits, assess
from controller.node_health.reconciler import TICK, NodeHealth
from controller.node_health.requests import REFUSED_SECONDS
from tests.controller import objects
from tests.controller.node_world import (
    NODES,
    PODS_OF_A_NODE,
    TAKEOVER,
    Killed,
    Leader,
    World,
    virtual,
)
from tests.controller.nodes import AT_ONCE, A, B
from tests.controller.objects import uid

SETTINGS: Final = NodeHealth()
FAILURES: Final[tuple[ClusterFailure, ...]] = (
    Conflict("changed"),
    Missing("gone"),
    Denied("no", "patch evictionrequests"),
    Denied("ending", "patch evictionrequests", is_terminating=True),
    Busy("later", 1),
    Refused("no"),
    ServerFailure("broken"),
    Unreachable("no answer"),
)
RATES: Final = (EVICTION_RATE, 0.02)
"""Of the second one a takeover is shorter than the wait between two nodes."""
GRACE: Final = timedelta(seconds=300)
TOLERANCE: Final = 1e-6
"""Seconds; instants have microseconds."""


def lead(world: World, *spans: float) -> Leader:
    """A leader that works for so long, without a crash."""
    with virtual(world):
        leader = Leader(world, SETTINGS)
        for span in spans:
            asyncio.run(leader.run(span))
            world.settle()
    return leader


def check_rate(world: World, rate: float) -> None:
    """From the last request of a node to the first of the next one in its zone: 1/rate."""
    for zone in (A, B):
        found = sorted(each for each in world.arrivals if each.zone == zone)
        for first, second in pairwise(found):
            if first.node != second.node:
                span = (second.time - first.time).total_seconds()
                assert span >= 1 / rate - TOLERANCE


# --- one thing at a time ------------------------------------------------------------------------


def test_the_first_node_has_its_turn_after_10_seconds() -> None:
    world = World()
    world.turn(Health.UNREACHABLE, "n0")
    lead(world, 9.5)
    assert world.arrivals == []
    world = World()
    world.turn(Health.UNREACHABLE, "n0")
    leader = lead(world, 11)
    assert [each.node for each in world.arrivals] == ["n0"] * PODS_OF_A_NODE
    assert leader.told == ["EvictingPods"]
    assert leader.reconciler.counters.asked.labels(*A)._value.get() == PODS_OF_A_NODE
    assert leader.reconciler.counters.turns.labels(*A)._value.get() == 1


def test_a_recovered_node_takes_its_requests_back() -> None:
    world = World()
    world.turn(Health.UNREACHABLE, "n0")
    with virtual(world):
        leader = Leader(world, SETTINGS)
        asyncio.run(leader.run(11))
        world.turn(Health.READY, "n0")
        asyncio.run(leader.run(1))
        assert world.wanted() == set()
        assert len(world.requests) == PODS_OF_A_NODE
        world.settle()
        asyncio.run(leader.run(1))
    assert world.requests == {}
    assert leader.told == ["EvictingPods", "EvictionsWithdrawn"]
    assert leader.reconciler.counters.withdrawn.labels(*A)._value.get() == PODS_OF_A_NODE


def test_nothing_is_written_when_nothing_has_changed() -> None:
    world = World()
    world.turn(Health.UNREACHABLE, "n0", "n2")
    leader = lead(world, 40)
    writes = _writes(leader)
    with virtual(world):
        asyncio.run(leader.run(600))
    assert _writes(leader) == writes


def _writes(leader: Leader) -> float:
    samples = [s for family in leader.metrics.writes.collect() for s in family.samples]
    return sum(sample.value for sample in samples)


def test_a_dry_run_only_tells() -> None:
    world = World()
    world.turn(Health.UNREACHABLE, "n0")
    with virtual(world):
        leader = Leader(world, NodeHealth(dry_run=True))
        asyncio.run(leader.run(60))
        world.turn(Health.READY, "n0")
        asyncio.run(leader.run(1))
    assert (world.arrivals, world.requests, world.note, leader.told) == ([], {}, "", [])
    assert leader.reconciler.counters.turns.labels(*A)._value.get() == 1
    assert leader.reconciler.counters.asked.labels(*A)._value.get() == PODS_OF_A_NODE
    assert leader.reconciler.counters.withdrawn.labels(*A)._value.get() == PODS_OF_A_NODE


@pytest.mark.parametrize("leaders", [1, 2, 3])
def test_after_a_total_outage_everybodys_grace_starts_anew(leaders: int) -> None:
    """Whoever leads then: one that saw it end, one that did not, one that saw nothing of it."""
    world = World()
    world.pods = {uid: replace(each, unreachable=GRACE) for uid, each in world.pods.items()}
    world.turn(Health.UNREACHABLE, *NODES)
    lead(world, 600)
    if leaders == 1:
        world.turn(Health.READY, "n1", "n2", "n3")
        back = world.now
        lead(world, 0.0, 280)
    else:
        world.pass_by(100)
        world.turn(Health.READY, "n1", "n2", "n3")
        back = world.now
        for _ in range(leaders - 1):
            lead(world, 50)
        lead(world, 280 - 50 * (leaders - 1))
    assert world.arrivals == []
    lead(world, 60)
    assert len({each.node for each in world.arrivals}) > 1
    assert min(each.time for each in world.arrivals) >= back + GRACE


def test_no_turn_on_old_news() -> None:
    world = World()
    world.turn(Health.UNREACHABLE, "n0")
    with virtual(world):
        leader = Leader(world, SETTINGS)
        leader.reconciler.informer.trouble = "nodes can't be read"
        asyncio.run(leader.run(60))
        assert world.arrivals == []
        leader.reconciler.informer.trouble = None
        asyncio.run(leader.run(16))
    assert {each.node for each in world.arrivals} == {"n0"}


def test_no_turn_of_a_node_that_has_recovered_unseen() -> None:
    """The watch is silent, and nobody has noticed."""
    world = World()
    world.turn(Health.UNREACHABLE, "n0", "n2")
    with virtual(world):
        leader = Leader(world, SETTINGS)
        leader.is_watching = False
        world.turn(Health.READY, "n0")
        asyncio.run(leader.run(30))
    assert {each.node for each in world.arrivals} == {"n2"}
    assert leader.reconciler.counters.turns.labels(*A)._value.get() == 1


def test_no_turn_of_a_node_that_is_gone_unseen() -> None:
    world = World()
    world.turn(Health.UNREACHABLE, "n0", "n1")
    with virtual(world):
        leader = Leader(world, SETTINGS)
        leader.is_watching = False
        gone = world.nodes.pop("n0")
        asyncio.run(leader.run(30))
        assert {each.node for each in world.arrivals} == {"n1"}
        world.nodes["n0"] = gone
        asyncio.run(leader.run(30))
    assert {each.node for each in world.arrivals} == {"n0", "n1"}


def test_no_turn_while_nodes_can_not_be_looked_at() -> None:
    world = World()
    world.turn(Health.UNREACHABLE, "n0")
    with virtual(world):
        leader = Leader(world, SETTINGS)
        get, looks = leader.get, 0

        async def away(*_: Any) -> Any:
            nonlocal looks
            looks += 1
            raise Unreachable("no answer")

        leader.get = away  # type: ignore[method-assign]
        asyncio.run(leader.run(30))
        assert (world.arrivals, looks > 0) == ([], True)
        leader.get = get  # type: ignore[method-assign]
        asyncio.run(leader.run(60))
    assert {each.node for each in world.arrivals} == {"n0"}


def test_a_dry_run_looks_as_well() -> None:
    world = World()
    world.turn(Health.UNREACHABLE, "n0")
    with virtual(world):
        leader = Leader(world, NodeHealth(dry_run=True))
        leader.is_watching = False
        world.turn(Health.READY, "n0")
        asyncio.run(leader.run(30))
    assert leader.reconciler.counters.turns.labels(*A)._value.get() == 0


def test_no_turn_without_the_lease() -> None:
    """The token must be known to be spent before the first request is sent."""
    world = World()
    world.turn(Health.UNREACHABLE, "n0")
    with virtual(world):
        leader = Leader(world, SETTINGS)
        world.fate = lambda: Busy("later")
        asyncio.run(leader.run(9))
        world.fate = lambda: Unreachable("no answer")
        leader.lead.until += TAKEOVER * 10
        asyncio.run(leader.run(20))
        assert world.arrivals == []
        world.fate = lambda: None
        asyncio.run(leader.run(60))
    assert {each.node for each in world.arrivals} == {"n0"}


@pytest.mark.parametrize(
    "failure", [each for each in FAILURES if isinstance(each, Refused | Denied)], ids=repr
)
def test_a_refused_request_holds_up_nobody_and_is_left_alone(failure: ClusterFailure) -> None:
    world = World()
    world.turn(Health.UNREACHABLE, "n0", "n2")
    attempts: list[float] = []
    with virtual(world):
        leader = Leader(world, SETTINGS)
        apply = leader.apply

        async def refusing(resource: Any, key: Any, document: Any, **more: Any) -> Any:
            if document["spec"]["target"]["pod"]["name"] == "n0-pod-1":
                attempts.append(world.steady())
                raise failure
            return await apply(resource, key, document, **more)

        leader.apply = refusing  # type: ignore[method-assign]
        asyncio.run(leader.run(290))
        assert len(world.requests) == 2 * PODS_OF_A_NODE - 1
        assert len(attempts) == 1
        asyncio.run(leader.run(60))
        assert len(attempts) == 2
        leader.apply = apply  # type: ignore[method-assign]
        asyncio.run(leader.run(330))
    assert len(world.requests) == 2 * PODS_OF_A_NODE


def test_what_could_not_be_sent_is_tried_again_in_the_same_turn() -> None:
    world = World()
    world.turn(Health.UNREACHABLE, "n0")
    fates = iter([None] * 2 + [Busy("later")] * 4)
    with virtual(world):
        leader = Leader(world, SETTINGS)
        asyncio.run(leader.run(9.5))
        world.fate = lambda: next(fates, None)
        asyncio.run(leader.run(9))
    assert len(world.requests) == PODS_OF_A_NODE
    assert leader.reconciler.counters.turns.labels(*A)._value.get() == 1


def test_what_is_left_over_of_a_turn_does_not_come_with_the_next_one() -> None:
    world = World()
    world.turn(Health.UNREACHABLE, "n0", "n2")
    with virtual(world):
        leader = Leader(world, SETTINGS)
        apply = leader.apply

        async def busy(resource: Any, key: Any, document: Any, **more: Any) -> Any:
            if document["spec"]["target"]["pod"]["name"] == "n0-pod-1" and world.steady() < 24:
                raise Busy("later")
            return await apply(resource, key, document, **more)

        leader.apply = busy  # type: ignore[method-assign]
        asyncio.run(leader.run(60))
    assert len(world.requests) == 2 * PODS_OF_A_NODE
    check_rate(world, EVICTION_RATE)


@pytest.mark.parametrize("failure", [Unreachable("no answer"), ServerFailure("broken")], ids=repr)
def test_a_request_that_may_have_arrived_counts(failure: ClusterFailure) -> None:
    """It takes long to arrive, and its answer is lost."""
    world = World()
    world.pods = {
        uid: pod for uid, pod in world.pods.items() if pod.key.name in ("n0-pod-0", "n2-pod-0")
    }
    world.turn(Health.UNREACHABLE, "n0", "n2")
    lost = iter([failure])
    with virtual(world):
        leader = Leader(world, SETTINGS)
        world.latency = lambda: 0.01 if leader.in_flight is None or world.arrivals else 8
        world.fate = lambda: next(lost, None) if world.arrivals else None
        asyncio.run(leader.run(40))
    assert [each.node for each in world.arrivals] == ["n0", "n2"]
    check_rate(world, EVICTION_RATE)


def test_a_name_that_is_taken_holds_up_nobody() -> None:
    """Somebody else's request stands where ours should: it is left alone, and so is the pod."""
    world = World()
    taken = f"node-health-{uid(0)}"
    target = {"pod": {"name": "n0-pod-0", "uid": uid(0)}}
    theirs = objects.request(taken, target, 99, "2026-07-01T12:00:00Z", "a.io/b", "Eviction")
    world.requests[taken] = theirs
    theirs["metadata"]["resourceVersion"] = "1"
    world.turn(Health.UNREACHABLE, "n0", "n2")
    leader = lead(world, 40)
    assert len(world.requests) == 2 * PODS_OF_A_NODE
    assert world.requests[taken]["spec"]["requester"] == "a.io/b"
    assert leader.reconciler.counters.turns.labels(*A)._value.get() == 2


def test_a_node_that_recovers_while_requests_wait_is_left_alone() -> None:
    world = World()
    world.turn(Health.UNREACHABLE, "n0")
    with virtual(world):
        leader = Leader(world, SETTINGS)
        plan_now, send = (leader.reconciler.handlers[work] for work in (PLANNING, NODE_REQUEST))
        asyncio.run(plan_now(TICK))
        world.pass_by(10)
        asyncio.run(plan_now(TICK))
        items = [entry[2] for entry in leader._queue if entry[2].work == NODE_REQUEST]
        assert len(items) == PODS_OF_A_NODE
        leader._queue.clear()
        world.turn(Health.READY, "n0")
        leader.watch()
        for item in items:
            asyncio.run(send(item))
    assert world.arrivals == []


def test_a_zone_saves_up_nothing_while_requests_wait_to_be_sent() -> None:
    world = World()
    world.turn(Health.UNREACHABLE, "n0")
    with virtual(world):
        leader = Leader(world, SETTINGS)
        plan_now, send = (leader.reconciler.handlers[work] for work in (PLANNING, NODE_REQUEST))
        asyncio.run(plan_now(TICK))
        world.pass_by(10)
        asyncio.run(plan_now(TICK))
        items = [entry[2] for entry in leader._queue if entry[2].work == NODE_REQUEST]
        world.pass_by(30)
        plan = leader.reconciler.plan
        assert plan is not None
        assert (len(items), plan.budgets[A].tokens) == (PODS_OF_A_NODE, 0)
        asyncio.run(leader.lead.keep())
        leader._queue.clear()
        for item in items:
            asyncio.run(send(item))
        world.pass_by(5)
        plan = leader.reconciler.plan
        assert plan is not None
        assert plan.budgets[A].tokens == pytest.approx(0.5)


def test_a_broken_note_is_no_note() -> None:
    world = World()
    world.note = "{"
    world.turn(Health.UNREACHABLE, "n0")
    lead(world, 9.5)
    assert world.arrivals == []


def test_a_new_leader_goes_on_where_the_last_one_stopped() -> None:
    """It does not wait anew, which matters where leaders change often."""
    world = World()
    world.turn(Health.UNREACHABLE, "n0")
    lead(world, 8)
    lead(world, 5)
    assert {each.node for each in world.arrivals} == {"n0"}


def test_what_a_killed_leader_has_spent_is_spent() -> None:
    """It dies with the first answer; the next one does not begin with another node."""
    world = World()
    world.turn(Health.UNREACHABLE, "n0", "n2")
    slow = NodeHealth(Limits(RATES[1]))
    with virtual(world):
        leader = Leader(world, slow)
        world.fate = lambda: Killed if world.arrivals else None
        with pytest.raises(Killed):
            asyncio.run(leader.run(60))
        (arrival,) = world.arrivals
        world.fate = lambda: None
        world.now = max(world.now, world.noted + TAKEOVER)
        asyncio.run(Leader(world, slow).run(200))
    check_rate(world, RATES[1])
    assert {each.node for each in world.arrivals if each.time > arrival.time} == {"n0", "n2"}


# --- laws ---------------------------------------------------------------------------------------

OUTAGES: Final = st.lists(st.sampled_from(list(NODES)), min_size=2, unique=True)
STEPS: Final = st.lists(
    st.fixed_dictionaries(
        {
            "span": st.sampled_from([1.0, 5.0, 12.0, 35.0, 70.0]),
            "names": st.lists(st.sampled_from(list(NODES)), unique=True),
            "health": st.sampled_from(list(Health)),
            "end": st.sampled_from(["", "", "released", "killed"]),
            "clock": st.sampled_from([0.0, 0.0, 3600.0, -3600.0]),
            "misjudged": st.floats(0, 0.99),
            "late": st.floats(0, 1),
        }
    ),
    max_size=12,
)
FATES: Final = st.lists(
    st.one_of(st.none(), st.none(), st.none(), st.just(Killed), st.sampled_from(FAILURES)),
    max_size=80,
)
LATENCIES: Final = st.lists(st.floats(0, 3), min_size=1, max_size=5)


class Course:
    """Leaders one after the other, as the steps have it."""

    def __init__(
        self, world: World, how: NodeHealth, fates: list[Any], latencies: list[float]
    ) -> None:
        self.world = world
        self._settings = how
        left, spans = iter(fates), cycle(latencies)
        world.fate = lambda: next(left, None)
        world.latency = lambda: next(spans)
        self.leader = Leader(world, how)

    def go(self, step: dict[str, Any]) -> None:
        world = self.world
        world.clock_set, world.misjudged = step["clock"], step["misjudged"]
        world.turn(step["health"], *step["names"])
        try:
            asyncio.run(self.leader.run(step["span"]))
        except Killed:
            self._replace(step["late"])
        else:
            if step["end"] == "released":
                self.leader.reconciler.end()
                world.note = self.leader.reconciler.note() or ""
                self.leader = Leader(world, self._settings)
            elif step["end"] == "killed":
                self._replace(step["late"])
        world.settle()

    def calm_down(self) -> None:
        """From now on all goes well, and long enough for everything that waits."""
        self.world.fate, self.world.latency = (lambda: None), (lambda: 0.01)
        if not self.leader.lead.leads():
            self._replace(0)
        for span in (REFUSED_SECONDS + 30, 30, 30):
            asyncio.run(self.leader.run(span, 9))
            self.world.settle()

    def _replace(self, late: float) -> None:
        """The leader is gone; what it has sent may arrive as long as it was allowed to send."""
        world, last = self.world, self.leader
        if last.in_flight is not None:
            world.pass_by(max(last.lead.until - world.now, AT_ONCE).total_seconds() * late)
            world.apply(last.in_flight)
        world.now = max(world.now, world.noted + TAKEOVER)
        self.leader = Leader(world, self._settings)


@pytest.mark.slow
@settings(max_examples=300)
@given(st.sampled_from(RATES), OUTAGES, STEPS, FATES, LATENCIES)
def test_laws(
    rate: float,
    failed: list[str],
    steps: list[dict[str, Any]],
    fates: list[Any],
    latencies: list[float],
) -> None:
    world = World()
    world.turn(Health.UNREACHABLE, *failed)
    with virtual(world):
        course = Course(world, NodeHealth(Limits(rate)), fates, latencies)
        for step in steps:
            course.go(step)
            event(f"{len(world.arrivals) // 10 * 10}+ requests")
        check_rate(world, rate)
        course.calm_down()
        check_rate(world, rate)
        assert not {name for name in world.wanted() if world.nodes[name].is_healthy}
        rates = assess(world.nodes.values()).zones
        stay = {pod.node for pod in world.pods.values() if pod.uid not in world.asked()}
        assert not {n for n in stay if not world.nodes[n].is_healthy and rates[NODES[n]].rate > 0}
        world.turn(Health.READY, *NODES)
        course.calm_down()
        assert world.requests == {}
