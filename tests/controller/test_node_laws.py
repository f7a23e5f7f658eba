"""What holds of node-health evictions whatever happens to nodes, to leaders and to clocks."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any, Final, NamedTuple

import pytest
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st

from controller.node_health.planning.budget import (
    CAPACITY,
    CLOCK_ERROR,
    Budget,
    StoredBudgets,
    Waiting,
    as_document,
    restored,
    stored,
)
from controller.node_health.planning.outage import Outage
from controller.node_health.planning.plan import (
    NodeHealthPlan,
    NodeHealthSnapshot,
    plan_node_health,
)
from controller.node_health.planning.pods import OwnRequest, Pods
from controller.node_health.planning.zones import Health, Limits, Node, Zone
from rules.decode import decode_model
from tests.controller.nodes import SECOND, START, A, B, C, nodes, pod, request

pytestmark = pytest.mark.slow

NAMES: Final = [f"n{number}" for number in range(8)]
ZONES: Final = (A, B)
NO_TIME: Final = timedelta()
_ROUNDING: Final = 1e-6
"""Nodes: sums of thousands of binary fractions differ by less."""

LIMITS: Final = st.sampled_from(
    [
        Limits(),
        Limits(0.1, 0.02, 0.55, 5),  # the 8 nodes are a large cluster
        Limits(0.5, 0.1, 0.3, 5),
        Limits(3, 0, 0.55, 5),
    ]
)


class Step(NamedTuple):
    """Some time goes by, nodes change, and something may befall the leader."""

    span: float
    """Seconds."""
    nodes: list[str]
    health: Health
    zone: Zone | None
    """None: where they are."""
    leader: str
    seconds: float
    """Of how much the clock is set, or from 0 to 1: how wrong the next leader's is."""


LEADERS: Final = ["stays"] * 6 + ["dies", "dies writing", "dies storing", "forgets", "sets clock"]
STEPS: Final = st.lists(
    st.builds(
        Step,
        st.one_of(st.floats(0, 15), st.floats(0, 300)),
        st.lists(st.sampled_from(NAMES), unique=True),
        st.sampled_from(Health),
        st.sampled_from(ZONES),
        st.sampled_from(LEADERS),
        st.floats(0, 1),
    ),
    max_size=60,
)


@dataclass
class World:
    """A small cluster whose nodes fail, recover and move, and leaders who come and go."""

    limits: Limits = field(default_factory=Limits)
    now: datetime = START
    """The API server's time."""
    error: timedelta = NO_TIME
    """How far the leader's idea of it is behind."""
    document: Any = field(default_factory=lambda: as_document(StoredBudgets()))
    """What is stored for the next leader."""
    plans: list[tuple[datetime, NodeHealthPlan]] = field(default_factory=list)
    turns: list[tuple[datetime, Zone]] = field(default_factory=list)
    """For which requests have been written."""
    requests: dict[str, OwnRequest] = field(default_factory=dict)
    budgets: dict[Zone, Budget] = field(default_factory=dict)
    outage: Outage | None = None
    last: datetime | None = None
    """When this leader has planned before."""

    def __post_init__(self) -> None:
        self.nodes = {
            name: Node(name, ZONES[number % 2], Health.READY, self.now)
            for number, name in enumerate(NAMES)
        }
        self.pods = Pods.of(
            pod(name, number, number * 7 * SECOND) for name in NAMES for number in range(3)
        )

    def change(self, names: Iterable[str], health: Health, zone: Zone | None) -> None:
        for name in names:
            old = self.nodes[name]
            since = old.since if old.health is health else self.now
            self.nodes[name] = Node(name, zone or old.zone, health, since)

    def lead(self, document: Any, error: float = 0) -> None:
        """Somebody else leads from now on, who knows what is stored."""
        state = decode_model(StoredBudgets, document)
        self.budgets, self.outage = restored(state), state.outage
        self.last, self.error = None, error * CLOCK_ERROR

    def plan(self) -> NodeHealthPlan:
        elapsed = timedelta.max if self.last is None else self.now - self.last
        seen = NodeHealthSnapshot(
            self.nodes, self.pods, self.requests, self.budgets, elapsed, self.outage
        )
        plan = plan_node_health(seen, self.now - self.error, self.limits)
        self.plans.append((self.now, plan))
        return plan

    def tick(self, *, until: str = "the end") -> NodeHealthPlan:
        """Plan, store what the next leader has to know, and write; or part of it."""
        plan = self.plan()
        if until == "storing":
            return plan
        document = as_document(stored(plan.budgets, plan.outage))
        changed = _rates(document) != _rates(self.document) or plan.outage != self.outage
        if plan.turns or changed:
            self.document = document
        if until == "writing":
            return plan
        self.budgets, self.outage, self.last = dict(plan.budgets), plan.outage, self.now
        self.turns += [(self.now, turn.node.zone) for turn in plan.turns]
        left = {uid: own for uid, own in self.requests.items() if own.key not in plan.deletions}
        withdrawn = {
            own.pod_uid: replace(own, wants_eviction=False, is_seen=True)
            for own in plan.withdrawals
        }
        created = {each.uid: request(each) for turn in plan.turns for each in turn.pods}
        self.requests = left | withdrawn | created
        return plan

    def follow(self, step: Step) -> NodeHealthPlan:
        """Whatever befalls the leader, there is one that does its work in the end."""
        self.now += timedelta(seconds=step.span)
        self.change(step.nodes, step.health, step.zone)
        match step.leader:
            case "dies":
                self.lead(self.document, step.seconds)
            case "dies writing" | "dies storing":
                self.tick(until=step.leader.removeprefix("dies "))
                self.lead(self.document, step.seconds)
            case "forgets":
                self.lead(as_document(StoredBudgets()), step.seconds)
            case "sets clock":
                # Until it has compared it with the API server's again.
                self.error = (step.seconds - 0.5) * 3600 * SECOND
                self.tick()
                self.error = NO_TIME
                plan = self.tick()
                self.document = as_document(stored(self.budgets, self.outage))
                return plan
        return self.tick()

    def is_healthy(self, own: OwnRequest) -> bool:
        return self.nodes[self.pods.by_uid[own.pod_uid].node].is_healthy

    @property
    def is_down(self) -> bool:
        return not any(node.is_healthy for node in self.nodes.values())


def _rates(document: Any) -> list[tuple[str, float]]:
    return [(zone.get("zone", ""), zone.get("rate", 0.0)) for zone in document["zones"]]


# --- the rate -----------------------------------------------------------------------------------


@settings(max_examples=500)
@given(STEPS, LIMITS)
def test_never_more_than_the_rate_in_any_window(steps: list[Step], limits: Limits) -> None:
    """One node, and as many as the rates in force have added up to between the first and the last.

    Leaders die before, between and after storing and writing; some know nothing, and the clocks of
    all of them are wrong, and are set.
    """
    world = World(limits)
    for step in steps:
        world.follow(step)
    for zone in ZONES:
        _check_windows(world, zone)


def _check_windows(world: World, zone: Zone) -> None:
    earned, before, rate = 0.0, START, 0.0
    earned_at = {}
    for time, plan in world.plans:
        earned += rate * (time - before).total_seconds()
        status = plan.status.zones.get(zone)
        before, rate, earned_at[time] = time, status.rate if status else 0.0, earned
    times = [time for time, of in world.turns if of == zone]
    for first, start in enumerate(times):
        for count, end in enumerate(times[first:], 1):
            assert count <= CAPACITY + earned_at[end] - earned_at[start] + _ROUNDING


@given(st.floats(0, 1), st.floats(0, 1), st.floats(0, 1), st.floats(0.01, 2), LIMITS)
def test_a_leader_whose_clock_is_ahead_of_the_last_one_s_keeps_the_rate(
    first: float, second: float, taken_over: float, looks: float, limits: Limits
) -> None:
    """Whenever it takes over after a turn, and however often it looks; as far ahead as can be."""
    world = World(limits)
    world.change(["n1", "n3"], Health.UNREACHABLE, A)
    world.change(["n0"], Health.READY, B)
    world.tick()
    world.lead(world.document, 1 - first / 100)
    rate = world.plans[-1][1].status.zones[A].rate
    for wait in (CLOCK_ERROR, 1.001 * SECOND / rate):
        world.now += wait
        world.tick()
    ((spent, _),) = world.turns
    world.now += taken_over * SECOND / rate
    world.lead(world.document, second / 100)
    for _ in range(math.ceil((1 / rate + 5) / looks)):
        world.tick()
        world.now += looks * SECOND
    assert (world.turns[1][0] - spent).total_seconds() * rate >= CAPACITY - _ROUNDING


@given(st.floats(0, 10**7), st.integers(2, 30), st.floats(0, 20), LIMITS)
def test_after_a_long_idle_time_one_node_and_then_the_rate(
    idle: float, failing: int, ticks: float, limits: Limits
) -> None:
    """However long nothing had to be done, and however often it is looked."""
    calm = [*nodes(A, 60), *nodes(C, 9)]
    failed = [
        replace(node, health=Health.NOT_READY) if number < failing else node
        for number, node in enumerate(calm)
    ]
    pods = Pods.of(pod(node.name) for node in calm)
    seen = NodeHealthSnapshot({node.name: node for node in calm}, pods)
    seen = replace(seen, budgets=plan_node_health(seen, START, limits).budgets)
    now = START + timedelta(seconds=idle)
    seen = replace(seen, nodes={node.name: node for node in failed})
    times, rate = [], 0.0
    for _ in range(60):
        plan = plan_node_health(seen, now, limits)
        rate = plan.status.zones[A].rate
        asked = {each.uid: request(each) for turn in plan.turns for each in turn.pods}
        seen = replace(seen, budgets=plan.budgets, requests={**seen.requests, **asked})
        times += [now] * len(plan.turns)
        now += timedelta(seconds=ticks)
    for first, later in pairwise(times):
        assert (later - first).total_seconds() * rate >= CAPACITY - _ROUNDING


@given(st.integers(1, 40), LIMITS, st.sampled_from([0.0, CAPACITY]))
def test_who_looks_when_the_plan_says_so_evicts_at_the_full_rate(
    failing: int, limits: Limits, budget: float
) -> None:
    """The limit is reached as well: no wait is longer than it has to be."""
    listed = [*nodes(A, 100, failing), *nodes(C, 9)]
    budgets = {A: Budget(START, budget, limits.eviction_rate)}
    seen = NodeHealthSnapshot(
        {node.name: node for node in listed},
        Pods.of(pod(node.name) for node in listed),
        budgets=budgets,
    )
    rate = plan_node_health(seen, START, limits).status.zones[A].rate
    now, times = START, []
    for _ in range(failing + 2):
        plan = plan_node_health(seen, now, limits)
        asked = {each.uid: request(each) for turn in plan.turns for each in turn.pods}
        seen = replace(seen, budgets=plan.budgets, requests={**seen.requests, **asked})
        times += [now] * len(plan.turns)
        now += plan.requeue_after or NO_TIME
    assert len(times) == (failing if rate else 0)
    for turn, time in enumerate(times, 1):
        late = (time - START).total_seconds() - (turn - budget) / rate
        assert -_ROUNDING <= late <= 0.001 * turn


# --- when nothing is evicted --------------------------------------------------------------------


@given(STEPS, LIMITS)
def test_never_an_eviction_when_all_zones_are_down(steps: list[Step], limits: Limits) -> None:
    world = World(limits)
    for step in steps:
        plan = world.follow(step)
        assert plan.status.is_down == world.is_down
        if world.is_down:
            assert not plan.turns
            assert not any(own.wants_eviction for own in world.requests.values())


@given(STEPS, LIMITS)
def test_turns_are_of_unhealthy_nodes_where_there_is_a_rate(
    steps: list[Step], limits: Limits
) -> None:
    world = World(limits)
    for step in steps:
        known = set(world.requests)
        plan = world.follow(step)
        assert len({turn.node.zone for turn in plan.turns}) == len(plan.turns)
        for turn in plan.turns:
            assert not turn.node.is_healthy
            assert plan.status.zones[turn.node.zone].rate > 0
            assert turn.pods
            assert not known & {each.uid for each in turn.pods}
        assert plan.requeue_after is None or plan.requeue_after > NO_TIME


@given(STEPS, LIMITS)
def test_requests_of_a_recovered_node_are_withdrawn(steps: list[Step], limits: Limits) -> None:
    world = World(limits)
    for step in steps:
        before = set(world.requests)
        plan = world.follow(step)
        # What is new is of this plan; what was there is withdrawn at once.
        for uid in before & set(world.requests):
            own = world.requests[uid]
            assert not (own.wants_eviction and world.is_healthy(own))
        for own in plan.withdrawals:
            assert world.is_down or world.is_healthy(own)


@given(STEPS)
def test_when_everything_is_healthy_again_nothing_is_left(steps: list[Step]) -> None:
    world = World()
    for step in steps:
        world.follow(step)
    world.change(NAMES, Health.READY, A)
    world.tick()
    assert not any(own.wants_eviction for own in world.requests.values())
    world.tick()
    assert world.requests == {}


# --- fairness -----------------------------------------------------------------------------------


@given(STEPS, st.sets(st.sampled_from(NAMES)), LIMITS)
def test_nobody_has_a_second_turn_while_another_waits_for_the_first(
    steps: list[Step], refused: set[str], limits: Limits
) -> None:
    """Not even nodes for which no request ever comes to be, because the API server refuses it.

    A node that moves to another zone and back may, and so may all when another leads.
    """
    world = World(limits)
    overtaken: dict[tuple[Zone, Waiting], list[str]] = {}
    for step in steps:
        plan = world.follow(step._replace(leader="stays", zone=None))
        for turn in plan.turns:
            if turn.node.name in refused:
                for each in turn.pods:
                    del world.requests[each.uid]
        # Who fails in another way has another place; and when all zones are down every turn is
        # taken back, so that the order begins anew.
        overtaken = {
            (zone, item): [] if world.is_down else overtaken.get((zone, item), [])
            for zone, queue in plan.queues.items()
            for item in queue
        }
        for turn in plan.turns:
            for (zone, _), others in overtaken.items():
                if zone == turn.node.zone:
                    assert turn.node.name not in others
                    others.append(turn.node.name)


@given(st.permutations(range(12)), st.integers(1, 11))
def test_the_order_is_that_of_the_failures(order: list[int], late: int) -> None:
    """Whatever the names are, and also for those that fail while others wait."""
    listed = {
        f"a-{name:03}": Node(f"a-{name:03}", A, Health.UNREACHABLE, START + place * SECOND)
        for place, name in enumerate(order)
    }
    others = {node.name: node for node in nodes(B, 60)}
    pods = Pods.of(pod(name) for name in listed)
    budgets: Any = {A: Budget(START, CAPACITY, 0.1)}
    requests: dict[str, OwnRequest] = {}
    turns = []
    for number in range(len(order)):
        failed = {
            name: node
            for name, node in listed.items()
            if number >= late or order.index(int(name[2:])) < late
        }
        seen = NodeHealthSnapshot({**failed, **others}, pods, requests, budgets)
        plan = plan_node_health(seen, START + (12 + 10 * number) * SECOND)
        budgets = plan.budgets
        requests |= {each.uid: request(each) for turn in plan.turns for each in turn.pods}
        turns += [turn.node.name for turn in plan.turns]
    assert turns == [f"a-{name:03}" for name in order][: len(turns)]
    assert len(turns) >= late


# --- time ---------------------------------------------------------------------------------------


@given(STEPS, LIMITS, st.integers(-(10**8), 10**8))
def test_only_spans_count(steps: list[Step], limits: Limits, seconds: int) -> None:
    world, later = World(limits), World(limits, now=START + seconds * SECOND)
    for step in steps:
        plan, shifted = world.follow(step), later.follow(step)
        assert plan.turns == tuple(
            turn._replace(node=world.nodes[turn.node.name]) for turn in shifted.turns
        )
        assert plan.requeue_after == shifted.requeue_after
        assert [own.key for own in plan.withdrawals] == [own.key for own in shifted.withdrawals]
        assert plan.deletions == shifted.deletions


SIGNS: Final[dict[str, Callable[[NodeHealthPlan, Limits], Any]]] = {
    "turns": lambda plan, _: plan.turns,
    "withdrawals": lambda plan, _: plan.withdrawals,
    "deletions": lambda plan, _: plan.deletions,
    "down": lambda plan, _: plan.status.is_down,
    "waiting": lambda plan, _: any(plan.queues.values()),
    "slow": lambda plan, limits: any(
        zone.rate == limits.secondary_eviction_rate for zone in plan.status.zones.values()
    ),
}


@pytest.mark.parametrize("sign", SIGNS)
def test_laws_are_about_something(sign: str) -> None:
    """The worlds above do evict, withdraw, go down and come back."""

    def shows(example: tuple[list[Step], Limits]) -> bool:
        steps, limits = example
        world = World(limits)
        return any(SIGNS[sign](world.follow(step), limits) for step in steps)

    # Some are rare: the first example that shows it is enough.
    rare = settings(max_examples=10_000, phases=[Phase.generate], database=None)
    find(st.tuples(STEPS, LIMITS), shows, settings=rare)
