"""Nodes, pods and snapshots of a cluster, short to write."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from cluster.key import Key
from controller.eviction.planning.writes import Write
from controller.node_health.planning.budget import CAPACITY, Budget
from controller.node_health.planning.plan import (
    REQUESTER,
    NodeHealthPlan,
    NodeHealthSnapshot,
    request_key,
    request_write,
)
from controller.node_health.planning.pods import NodePod, OwnRequest, Pods
from controller.node_health.planning.zones import EVICTION_RATE, Health, Node, Zone
from rules.api import Intent, PodReference

START: Final = datetime(2026, 7, 1, 12, tzinfo=UTC)
A, B, C = (Zone("eu-1", name) for name in "abc")
AT_ONCE: Final = timedelta()
SECOND: Final = timedelta(seconds=1)


def nodes(zone: Zone, total: int, unhealthy: int = 0, *, since: datetime = START) -> list[Node]:
    """``total`` nodes; the first ``unhealthy`` of them are unreachable."""
    return [
        Node(
            f"{zone.name or 'node'}-{number:03}",
            zone,
            Health.UNREACHABLE if number < unhealthy else Health.READY,
            since,
        )
        for number in range(total)
    ]


def pod(node: str, number: int = 0, grace: timedelta | None = AT_ONCE) -> NodePod:
    name = f"{node}-pod-{number}"
    return NodePod(Key("default", name), f"uid-of-{name}", node, grace, grace)


def request(of: NodePod, **state: Any) -> OwnRequest:
    return OwnRequest(Key("default", f"node-health-{of.uid}"), of.uid, of.key.name, **state)


def snapshot(
    nodes: Iterable[Node],
    pods: Iterable[NodePod] | None = None,
    requests: Iterable[OwnRequest] = (),
    budgets: Mapping[Zone, Budget] | None = None,
) -> NodeHealthSnapshot:
    """A pod on each node, and full budgets, unless told otherwise."""
    listed = list(nodes)
    full = Budget(START, CAPACITY, EVICTION_RATE)
    return NodeHealthSnapshot(
        {node.name: node for node in listed},
        Pods.of(pods if pods is not None else (pod(node.name) for node in listed)),
        {item.pod_uid: item for item in requests},
        budgets if budgets is not None else {node.zone: full for node in listed},
    )


def writes(plan: NodeHealthPlan, requester: str = REQUESTER) -> list[Write]:
    """All that is to be applied: withdrawals first, then what is asked for."""
    withdrawn = [
        request_write(
            own.key, PodReference(name=own.pod_name, uid=own.pod_uid), requester, Intent.WITHDRAWN
        )
        for own in plan.withdrawals
    ]
    pods = [pod for turn in plan.turns for pod in turn.pods]
    return withdrawn + [
        request_write(
            request_key(pod),
            PodReference(name=pod.key.name, uid=pod.uid),
            requester,
            Intent.EVICTION,
        )
        for pod in pods
    ]
