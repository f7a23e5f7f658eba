"""Each sentence of Kubernetes' documentation of nodes about "Rate limits on eviction", tested."""

from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Final, TypeVar

import pytest

from controller.eviction.planning.writes import EVICTION_REQUESTS
from controller.node_health.planning.plan import plan_node_health
from controller.node_health.planning.pods import NodePod, PodObject
from controller.node_health.planning.simulation import Change, Course, simulate
from controller.node_health.planning.zones import (
    DEFAULTS,
    Health,
    Limits,
    Node,
    NodeObject,
    Zone,
    ZoneState,
    assess,
)
from rules.decode import decode_model
from rules.times import format_time
from tests.controller.nodes import SECOND, START, A, B, C, nodes, pod, snapshot, writes

TestT = TypeVar("TestT", bound=Callable[..., object])

SENTENCES: Final = (
    "one node in ten seconds",
    "unhealthy nodes of a zone change the rate",
    "the fraction of nodes whose Ready is Unknown or False, at the same time",
    "reduced from 55 percent on",
    "stopped in a cluster of at most 50 nodes",
    "else one node in a hundred seconds",
    "zone by zone, because one may be cut off while others are not",
    "without several zones there is only the cluster",
    "what a failed zone has run can move to healthy ones",
    "a zone without a healthy node: the normal rate",
    "the corner case: no zone has a healthy node",
    "then it is the connection, and nothing is evicted",
    "when some nodes reappear, those that have not are evicted",
    "pods leave for NoExecute taints that they do not tolerate",
    "the node controller sets the taints",
    "and so keeps the scheduler away",
)
"""The sentences in their order, each by its meaning."""
_TESTED: Final[dict[str, list[str]]] = {}
HOUR: Final = timedelta(hours=1)
NORMAL, PARTIAL, FULL = ZoneState.NORMAL, ZoneState.PARTIAL, ZoneState.FULL


def sentence(title: str) -> Callable[[TestT], TestT]:
    """Note which sentence a test is about."""

    def note(test: TestT) -> TestT:
        _TESTED.setdefault(title, []).append(test.__name__)
        return test

    return note


def test_each_sentence_has_its_tests() -> None:
    assert tuple(_TESTED) == SENTENCES


def cluster(*zones: tuple[int, int]) -> list[Node]:
    """The zones a, b, …: how many nodes, and how many of these are unhealthy."""
    return [
        node
        for zone, counts in zip((A, B, C), zones, strict=False)
        for node in nodes(zone, *counts)
    ]


def standing(*zones: tuple[int, int]) -> tuple[ZoneState, float]:
    """The state and the rate of the zone a."""
    status = assess(cluster(*zones)).zones[A]
    return status.state, status.rate


def course(listed: Iterable[Node], *happenings: Change, until: timedelta = HOUR) -> Course:
    return simulate(snapshot(listed), happenings, START, until)


def seconds(found: Course, zone: Zone = A) -> list[float]:
    """When the nodes of ``zone`` have their turns, from the start on."""
    return [(turn.time - START) / SECOND for turn in found.departures if turn.zone == zone]


# --- how fast -----------------------------------------------------------------------------------


@sentence("one node in ten seconds")
def test_the_rate_is_a_tenth_of_a_node_per_second_unless_it_is_set() -> None:
    assert DEFAULTS.eviction_rate == 0.1
    assert standing((20, 3), (20, 0)) == (NORMAL, 0.1)
    assert assess(cluster((20, 3)), Limits(eviction_rate=2)).zones[A].rate == 2


@sentence("one node in ten seconds")
def test_pods_leave_not_more_than_one_node_in_ten_seconds() -> None:
    assert seconds(course(cluster((20, 5)))) == [0, 10, 20, 30, 40]


@sentence("unhealthy nodes of a zone change the rate")
def test_the_rate_changes_when_nodes_of_a_zone_become_unhealthy() -> None:
    names = tuple(node.name for node in nodes(A, 60))
    found = course(cluster((100, 0), (100, 0)), Change(START, names, Health.NOT_READY))
    changes = [(change.status.state, change.status.rate) for change in found.zone_changes]
    assert changes == [(PARTIAL, 0.01), (NORMAL, 0.1)]
    later = course(cluster((100, 1), (100, 0)), Change(START + SECOND, names[1:], Health.NOT_READY))
    first, second = [change.status for change in later.zone_changes if change.zone == A]
    assert (first.rate, second.rate) == (0.1, 0.01)


# --- what is unhealthy --------------------------------------------------------------------------

THE_FRACTION: Final = "the fraction of nodes whose Ready is Unknown or False, at the same time"


@sentence(THE_FRACTION)
@pytest.mark.parametrize(
    ("ready", "is_healthy"), [("True", True), ("False", False), ("Unknown", False), (None, False)]
)
def test_a_node_is_unhealthy_while_its_ready_condition_is_unknown_or_false(
    ready: str | None, *, is_healthy: bool
) -> None:
    assert served(ready).is_healthy == is_healthy


@sentence(THE_FRACTION)
def test_the_fraction_is_of_the_nodes_of_the_zone_that_are_unhealthy_now() -> None:
    status = assess(cluster((20, 5), (40, 1)))
    assert [zone.unhealthy_fraction for zone in status.zones.values()] == [0.25, 0.025]
    one_after_another = [
        Change(START + 600 * number * SECOND, (f"a-{node:03}",), health)
        for number in range(20)
        for node, health in ((number, Health.NOT_READY), (number - 1, Health.READY))
        if node >= 0
    ]
    found = course(cluster((20, 0), (100, 0)), *one_after_another, until=4 * HOUR)
    assert {change.status.state for change in found.zone_changes} == {NORMAL}


def served(ready: str | None, *taints: object) -> Node:
    """A node as the API serves it, with that status of the condition Ready."""
    condition = {"type": "Ready", "status": ready, "lastTransitionTime": format_time(START)}
    document = {
        "metadata": {"name": "n"},
        "spec": {"taints": list(taints)},
        "status": {"conditions": [condition] if ready else []},
    }
    return Node.of(decode_model(NodeObject, document))


# --- a part of a zone ---------------------------------------------------------------------------


@sentence("reduced from 55 percent on")
@pytest.mark.parametrize(
    ("zone", "wanted"),
    [
        ((100, 54), (NORMAL, 0.1)),
        ((100, 55), (PARTIAL, 0.01)),
        ((20, 11), (PARTIAL, 0.01)),  # 0.55, which is no binary fraction
        ((20, 10), (NORMAL, 0.1)),
        ((40, 22), (PARTIAL, 0.01)),
        ((3, 2), (PARTIAL, 0.01)),
        ((2, 1), (NORMAL, 0.1)),
    ],
)
def test_a_zone_is_partially_disrupted_from_55_percent_on(
    zone: tuple[int, int], wanted: tuple[ZoneState, float]
) -> None:
    assert DEFAULTS.unhealthy_zone_threshold == 0.55
    assert standing(zone, (100, 0)) == wanted


@sentence("reduced from 55 percent on")
def test_the_threshold_can_be_set() -> None:
    limits = Limits(unhealthy_zone_threshold=0.3)
    listed = cluster((10, 3), (100, 29))
    assert [zone.state for zone in assess(listed, limits).zones.values()] == [PARTIAL, NORMAL]


@sentence("stopped in a cluster of at most 50 nodes")
@pytest.mark.parametrize("others", [0, 1, 30])
def test_a_partially_disrupted_zone_of_a_small_cluster_is_left_alone(others: int) -> None:
    assert DEFAULTS.large_cluster_size_threshold == 50
    assert standing((20, 12), (others, 0)) == (PARTIAL, 0)
    assert seconds(course(cluster((20, 12), (others, 0)))) == []


@sentence("stopped in a cluster of at most 50 nodes")
def test_other_zones_of_a_small_cluster_are_not_stopped() -> None:
    found = course(cluster((20, 12), (20, 2)))
    assert (seconds(found), seconds(found, B)) == ([], [0, 10])


@sentence("else one node in a hundred seconds")
def test_with_51_nodes_it_is_one_node_in_a_hundred_seconds() -> None:
    assert DEFAULTS.secondary_eviction_rate == 0.01
    assert standing((20, 12), (31, 0)) == (PARTIAL, 0.01)
    assert seconds(course(cluster((20, 12), (31, 0))))[:3] == [0, 100, 200]


@sentence("else one node in a hundred seconds")
def test_the_size_is_that_of_the_cluster_not_of_the_zone() -> None:
    assert standing((5, 3), (100, 0)) == (PARTIAL, 0.01)
    assert standing((5, 3), (100, 100)) == (PARTIAL, 0.01)


@sentence("else one node in a hundred seconds")
def test_size_and_secondary_rate_can_be_set() -> None:
    limits = Limits(secondary_eviction_rate=1, large_cluster_size_threshold=4)
    rates = [
        [zone.rate for zone in assess(cluster((3, 2), (others, 0)), limits).zones.values()]
        for others in (1, 2)
    ]
    assert rates == [[0, 0.1], [1, 0.1]]


# --- zones --------------------------------------------------------------------------------------


@sentence("zone by zone, because one may be cut off while others are not")
def test_a_zone_that_is_cut_off_does_not_slow_down_the_others() -> None:
    found = course(cluster((20, 2), (20, 20), (20, 15)))
    assert seconds(found) == [0, 10]
    assert seconds(found, B) == [10.0 * turn for turn in range(20)]
    assert seconds(found, C)[:2] == [0, 100]


@sentence("without several zones there is only the cluster")
@pytest.mark.parametrize("zone", [A, Zone(), Zone("eu-1")], ids=["one", "no-labels", "no-zone"])
def test_without_several_zones_the_fraction_of_the_cluster_counts(zone: Zone) -> None:
    status = {
        (total, unhealthy): assess(nodes(zone, total, unhealthy)).zones[zone]
        for total, unhealthy in ((100, 54), (100, 55), (50, 28), (100, 100))
    }
    assert [(each.state, each.rate) for each in status.values()] == [
        (NORMAL, 0.1),
        (PARTIAL, 0.01),
        (PARTIAL, 0),
        (FULL, 0),
    ]


@sentence("what a failed zone has run can move to healthy ones")
def test_all_nodes_of_a_failed_zone_have_their_turns_while_another_is_healthy() -> None:
    found = course(cluster((30, 30), (30, 0)))
    assert {turn.node for turn in found.departures} == {node.name for node in nodes(A, 30)}
    assert found.waiting == {A: 0, B: 0}


@sentence("a zone without a healthy node: the normal rate")
@pytest.mark.parametrize("others", [(20, 19), (100, 0), (1, 0)])
def test_a_zone_without_a_healthy_node_is_evicted_at_the_normal_rate(
    others: tuple[int, int],
) -> None:
    assert standing((20, 20), others) == (FULL, 0.1)
    assert seconds(course(cluster((20, 20), others))) == [10.0 * turn for turn in range(20)]


@sentence("the corner case: no zone has a healthy node")
@pytest.mark.parametrize("zones", [[(20, 20), (5, 5)], [(100, 100)], [(1, 1)], [(60, 60)] * 3])
def test_the_cluster_is_down_when_no_zone_has_a_healthy_node(zones: list[tuple[int, int]]) -> None:
    status = assess(cluster(*zones))
    assert status.is_down
    assert {(zone.state, zone.rate) for zone in status.zones.values()} == {(FULL, 0)}


@sentence("the corner case: no zone has a healthy node")
def test_one_healthy_node_anywhere_makes_the_difference() -> None:
    assert not assess(cluster((20, 20), (5, 4))).is_down


@sentence("then it is the connection, and nothing is evicted")
def test_nothing_is_evicted_while_no_node_is_healthy() -> None:
    assert course(cluster((20, 20), (20, 20), (20, 20))).departures == []


@sentence("then it is the connection, and nothing is evicted")
def test_evictions_end_when_the_last_node_fails() -> None:
    lost = Change(START + 25 * SECOND, tuple(node.name for node in nodes(B, 20)), Health.NOT_READY)
    found = course(cluster((20, 20), (20, 0)), lost)
    assert seconds(found) == [0, 10, 20]
    assert [gone.node for gone in found.withdrawals] == ["a-000", "a-001", "a-002"]


@sentence("when some nodes reappear, those that have not are evicted")
def test_when_some_nodes_reappear_the_others_are_evicted() -> None:
    back = Change(START + 600 * SECOND, ("b-000", "b-001"), Health.READY)
    found = course(cluster((20, 20), (4, 4)), back)
    assert seconds(found) == [610.0 + 10 * turn for turn in range(20)]
    assert [turn.node for turn in found.departures if turn.zone == B] == ["b-002", "b-003"]
    assert seconds(found, B) == [610, 620]


# --- taints -------------------------------------------------------------------------------------

_DEFAULT: Final = {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
UNREACHABLE: Final = "node.kubernetes.io/unreachable"
NOT_READY: Final = "node.kubernetes.io/not-ready"


@sentence("pods leave for NoExecute taints that they do not tolerate")
@pytest.mark.parametrize(
    ("tolerations", "wanted"),
    [
        ([], 0),
        ([{"key": UNREACHABLE} | _DEFAULT], 300),
        ([{"key": UNREACHABLE, "operator": "Exists"}], None),
        ([{"operator": "Exists"}], None),
        ([{"key": NOT_READY} | _DEFAULT], 0),
        ([{"key": UNREACHABLE} | _DEFAULT | {"effect": "NoSchedule"}], 0),
        ([{"key": "a.io/b", "operator": "Exists"}], 0),
    ],
)
def test_pods_leave_an_unreachable_node_unless_they_tolerate_that(
    tolerations: list[dict[str, object]], wanted: float | None
) -> None:
    document = {
        "metadata": {"name": "p", "namespace": "d", "uid": "u"},
        "spec": {"nodeName": "a-000", "tolerations": tolerations},
    }
    only = NodePod.of(decode_model(PodObject, document))
    found = simulate(snapshot(nodes(A, 9, 1), [only]), [], START, HOUR)
    assert seconds(found) == ([] if wanted is None else [wanted])


THE_TAINTS: Final = "the node controller sets the taints"


@sentence(THE_TAINTS)
@pytest.mark.parametrize(("ready", "key"), [("Unknown", UNREACHABLE), ("False", NOT_READY)])
def test_seconds_count_from_the_taint_that_goes_with_the_problem(ready: str, key: str) -> None:
    added = START + 7 * SECOND
    taint = {"key": key, "effect": "NoExecute", "timeAdded": format_time(added)}
    node = served(ready, taint)
    assert (node.health.taint, node.since) == (key, added)


SCHEDULER: Final = "and so keeps the scheduler away"


@sentence(SCHEDULER)
def test_nothing_but_requests_is_written_and_no_node_is_touched() -> None:
    """Taints, and with them the scheduler, stay with the node controller."""
    listed = [pod("a-000", number) for number in range(3)]
    plan = plan_node_health(snapshot(nodes(A, 9, 1), listed), START)
    made = writes(plan)
    assert {write.resource for write in made} == {EVICTION_REQUESTS}
    assert {write.apply["kind"] for write in made} == {"EvictionRequest"}
    assert len(made) == 3
