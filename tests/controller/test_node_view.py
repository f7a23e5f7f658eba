"""What plans about failed nodes see, change by change, and what of it is shown in metrics."""

from dataclasses import replace
from typing import Any, Final

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from cluster.key import Key
from cluster.store import Change, Entry
from controller.eviction.view import KnownPod, read_request
from controller.node_health.metrics import ZoneCollector
from controller.node_health.planning.plan import REQUESTER, plan_node_health, request_name
from controller.node_health.planning.zones import Health, Node, OtherTaint, Zone
from controller.node_health.view import NodeView, read_node, read_pod_on_node
from tests.controller import objects
from tests.controller.nodes import AT_ONCE, SECOND, START, A, B, nodes, pod, snapshot
from tests.controller.objects import NAMESPACE, Document, uid

POD: Final = replace(pod("a-000"), uid=uid(1))


def pod_entry(place: Any, version: int = 1) -> Entry[KnownPod]:
    return Entry(place.key, place.uid, version, KnownPod(b"", place))


def request_entry(name: str, *, namespace: str = NAMESPACE, requester: str = REQUESTER) -> Any:
    target = {"pod": {"name": POD.key.name, "uid": POD.uid}}
    document = objects.request(name, target, 9, "2026-07-01T12:00:00Z", requester, "Eviction")
    document["metadata"]["namespace"] = namespace
    return Entry(Key(namespace, name), uid(9), 1, read_request(document))


def seen(*, unhealthy: int = 0) -> NodeView:
    view = NodeView(REQUESTER)
    for node in nodes(A, 2, unhealthy):
        for change in view.store.put(Entry(Key("", node.name), uid(50), 1, node)):
            view.node(change, START)
    view.pod(Change(None, pod_entry(POD)))
    return view


def pods_on(view: NodeView, node: str) -> list[str]:
    pods = view.snapshot({}, {}, AT_ONCE).pods
    return [each.key.name for each in pods.by_node.get(node, ())]


def test_pods_are_found_by_their_nodes() -> None:
    view = seen()
    assert pods_on(view, "a-000") == [POD.key.name]
    moved = replace(POD, node="a-001")
    view.pod(Change(pod_entry(POD), pod_entry(moved)))
    assert (pods_on(view, "a-000"), pods_on(view, "a-001")) == ([], [POD.key.name])
    view.pod(Change(pod_entry(moved), None))
    assert pods_on(view, "a-001") == []
    assert view.node_of(POD.uid) is None


def test_only_what_concerns_failed_nodes_and_requests_calls_for_a_plan() -> None:
    changed = replace(POD, unreachable=None)
    change = Change(pod_entry(POD), pod_entry(changed))
    assert not seen().pod(change)
    assert seen(unhealthy=1).pod(change)
    view = seen()
    assert view.request(Change(None, request_entry(request_name(POD.uid))))
    assert view.pod(change)
    assert not view.pod(Change(pod_entry(changed), pod_entry(changed, 2)))


def test_own_requests_have_the_requester_and_the_name() -> None:
    view = seen()
    entry = request_entry(request_name(POD.uid))
    view.request(Change(None, entry))
    assert list(view.requests()) == [POD.uid]
    view.request(Change(entry, None))
    assert view.requests() == {}
    others = [request_entry("other"), request_entry(request_name(POD.uid), requester="a.io/b")]
    for other in others:
        assert not view.request(Change(None, other))
    assert view.requests() == {}


def test_a_request_in_another_namespace_stands_for_nobody() -> None:
    view = seen()
    view.request(Change(None, request_entry(request_name(POD.uid), namespace="elsewhere")))
    assert view.requests() == {}


def test_a_node_can_be_pointed_at_while_it_is_there() -> None:
    view = seen()
    assert view.subject("a-000") == {
        "apiVersion": "v1",
        "kind": "Node",
        "namespace": "",
        "name": "a-000",
        "uid": uid(50),
    }
    for change in view.store.delete(Key("", "a-000"), uid(50), 2):
        view.node(change, START)
    assert view.subject("a-000") is None
    assert list(view.nodes) == ["a-001"]


def test_nodes_are_cut_down() -> None:
    document: Document = {
        "metadata": {
            "name": "n",
            "labels": {"topology.kubernetes.io/region": "eu-1", "topology.kubernetes.io/zone": "a"},
            "annotations": {"long": "x" * 1000},
        },
        "spec": {"podCIDR": "10.0.0.0/24"},
        "status": {
            "conditions": [
                {
                    "type": "Ready",
                    "status": "Unknown",
                    "reason": "NodeStatusUnknown",
                    "lastHeartbeatTime": "2026-07-01T11:00:00Z",
                    "lastTransitionTime": "2026-07-01T12:00:00Z",
                }
            ],
            "images": [{"names": ["x"] * 100}],
        },
    }
    assert read_node(document) == Node("n", A, Health.UNREACHABLE, START)


def test_pods_keep_what_counts_for_both() -> None:
    document = objects.pod("p", 1)
    document["spec"]["nodeName"] = "n"
    known = read_pod_on_node(document)
    assert known.place is not None
    assert (known.place.node, known.place.unreachable) == ("n", AT_ONCE)
    assert b'"name":"p"' in known.kept


# --- metrics ------------------------------------------------------------------------------------


def shown(collector: ZoneCollector) -> list[str]:
    registry = CollectorRegistry()
    registry.register(collector)
    lines = generate_latest(registry).decode().splitlines()
    prefix = "usher_controller_node_health_"
    return [line.removeprefix(prefix) for line in lines if line.startswith(prefix)]


def test_zones_are_shown_as_of_the_last_plan() -> None:
    plan = plan_node_health(snapshot([*nodes(A, 20, 12), *nodes(Zone(), 20)]), START)
    lines = shown(ZoneCollector(lambda: plan, lambda: START))
    labels = '{region="eu-1",zone="a"}'
    for name, value in {
        "zone_nodes": 20.0,
        "zone_unhealthy_fraction": 0.6,
        "zone_eviction_rate": 0.0,
        "zone_budget": 0.0,
        "zone_queue_length": 12.0,
    }.items():
        assert f"{name}{labels} {value}" in lines
    assert 'zone_state{region="eu-1",state="partial disruption",zone="a"} 1.0' in lines
    assert 'zone_state{region="eu-1",state="normal",zone="a"} 0.0' in lines
    assert 'zone_state{region="",state="normal",zone=""} 1.0' in lines
    assert "cluster_down 0.0" in lines


def test_a_standby_shows_none() -> None:
    assert shown(ZoneCollector(lambda: None, lambda: START)) == []


@pytest.mark.parametrize("zones", [[A], [A, B]])
def test_a_cluster_that_is_down_is_shown(zones: list[Zone]) -> None:
    listed = [node for zone in zones for node in nodes(zone, 3, 3)]
    plan = plan_node_health(snapshot(listed), START)
    assert "cluster_down 1.0" in shown(ZoneCollector(lambda: plan, lambda: START))


# --- since when a node is down ------------------------------------------------------------------


def turned(view: NodeView, health: Health, seconds: int, identity: str = uid(50)) -> Node:
    """A node as the view knows it after it got into a state."""
    node = Node("flips", A, health, START + seconds * SECOND)
    entry = Entry(Key("", node.name), identity, 100 + seconds, node)
    for change in view.store.put(entry):
        view.node(change, START)
    return view.nodes[node.name]


def test_a_node_is_down_since_it_was_ready_last() -> None:
    view = NodeView(REQUESTER)
    states = [Health.READY, Health.UNREACHABLE, Health.NOT_READY, Health.UNREACHABLE]
    nodes = [turned(view, health, 240 * number) for number, health in enumerate(states)]
    assert {node.since for node in nodes[1:]} == {START + 240 * SECOND}
    assert turned(view, Health.READY, 960).since == START + 960 * SECOND
    assert turned(view, Health.NOT_READY, 1200).since == START + 1200 * SECOND


def test_a_node_that_was_not_seen_to_be_ready_may_have_been() -> None:
    """The same state, entered later: something was missed in between."""
    view = NodeView(REQUESTER)
    turned(view, Health.UNREACHABLE, 0)
    assert turned(view, Health.UNREACHABLE, 240).since == START + 240 * SECOND


def test_a_namesake_is_another_node() -> None:
    view = NodeView(REQUESTER)
    turned(view, Health.UNREACHABLE, 0)
    assert turned(view, Health.NOT_READY, 240, uid(51)).since == START + 240 * SECOND


def test_of_a_node_without_times_the_first_known_one_counts() -> None:
    unknown = Node("n", A, Health.UNREACHABLE)
    known = Node("n", A, Health.NOT_READY, START)
    assert known.after(unknown, START).since == START
    assert unknown.after(known, START).since == START


# --- other taints -------------------------------------------------------------------------------


def tainted(view: NodeView, seconds: int, *taints: OtherTaint) -> tuple[OtherTaint, ...]:
    """What the view knows of the taints of a healthy node that has them after so long."""
    now = START + seconds * SECOND
    node = Node("tainted", A, taints=taints)
    for change in view.store.put(Entry(Key("", node.name), uid(50), 100 + seconds, node)):
        view.node(change, now)
    return view.nodes[node.name].taints


def test_a_taint_without_a_time_counts_from_when_it_was_seen_first() -> None:
    view = NodeView(REQUESTER)
    dated = OtherTaint("a.io/dated", since=START)
    one, other = OtherTaint("a.io/b", "one"), OtherTaint("a.io/b", "other")
    first = one._replace(since=START + 5 * SECOND)
    assert tainted(view, 5, one) == (first,)
    assert tainted(view, 9, one, dated) == (first, dated)
    assert tainted(view, 10, other) == (other._replace(since=START + 10 * SECOND),)
    assert tainted(view, 11, one) == (one._replace(since=START + 11 * SECOND),)


def test_pods_on_tainted_nodes_call_for_a_plan() -> None:
    view = seen()
    change = Change(pod_entry(POD), pod_entry(replace(POD, unreachable=None)))
    assert not view.pod(change)
    node = replace(view.nodes["a-000"], taints=(OtherTaint("a.io/b"),))
    for each in view.store.put(Entry(Key("", node.name), uid(50), 2, node)):
        view.node(each, START)
    assert view.pod(Change(change.new, change.old))
