"""What is counted and shown of failed nodes. All labels are zones, of which there are few."""

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from controller.metrics import PREFIX
from controller.node_health.planning.plan import NodeHealthPlan
from controller.node_health.planning.zones import Zone, ZoneState

_NODE_HEALTH: Final = f"{PREFIX}node_health_"
_ZONE: Final = ("region", "zone")
"""Labels of what is counted zone by zone; "" where nodes have none."""


class NodeMetrics:
    """Counters of one process."""

    def __init__(self, registry: CollectorRegistry) -> None:
        """``registry`` shows them."""
        self.turns = Counter(
            f"{_NODE_HEALTH}turns",
            "Turns of failed nodes: times at which the pods of one were asked to leave.",
            _ZONE,
            registry=registry,
        )
        self.asked = Counter(
            f"{_NODE_HEALTH}evictions_requested",
            "Pods of failed nodes that were asked to leave.",
            _ZONE,
            registry=registry,
        )
        self.withdrawn = Counter(
            f"{_NODE_HEALTH}evictions_withdrawn",
            "Pods that were no longer asked to leave, because their node has recovered.",
            _ZONE,
            registry=registry,
        )
        self.overdue = Counter(
            f"{_NODE_HEALTH}pods_deleted",
            "Pods of failed nodes that were deleted, because they had not left in time.",
            _ZONE,
            registry=registry,
        )
        self.dry_run = Gauge(
            f"{_NODE_HEALTH}dry_run",
            "1 while evictions of failed nodes are counted, but not asked for.",
            registry=registry,
        )


class ZoneCollector(Collector):
    """How the zones stand, as the leader has planned with them; a standby shows none."""

    def __init__(
        self, plan: Callable[[], NodeHealthPlan | None], now: Callable[[], datetime]
    ) -> None:
        """``plan`` returns the last one, with the budgets of the present."""
        self._plan = plan
        self._now = now

    def collect(self) -> Iterator[Metric]:
        """Everything as of the last plan."""
        plan = self._plan()
        statuses = plan.status.zones if plan else {}
        states = GaugeMetricFamily(
            f"{_NODE_HEALTH}zone_state",
            "1 for the state that the zone is in, 0 for the others; from the leader.",
            labels=(*_ZONE, "state"),
        )
        for zone, status in statuses.items():
            for state in ZoneState:
                states.add_metric((*zone, state), float(status.state is state))
        yield states
        for name, text, values in (
            ("zone_nodes", "Nodes; from the leader.", {z: s.nodes for z, s in statuses.items()}),
            (
                "zone_unhealthy_fraction",
                "Unhealthy nodes, from 0 to 1; from the leader.",
                {z: s.unhealthy_fraction for z, s in statuses.items()},
            ),
            (
                "zone_eviction_rate",
                "Nodes per second that may be evicted, 0: none; from the leader.",
                {z: s.rate for z, s in statuses.items()},
            ),
            (
                "zone_budget",
                "What the zone has saved up for the next node, from 0 to 1; from the leader.",
                {z: b.tokens for z, b in plan.budgets.items()} if plan else {},
            ),
            (
                "zone_queue_length",
                "Nodes with pods that are due, and that wait for their turn; from the leader.",
                {z: len(q) for z, q in plan.queues.items()} if plan else {},
            ),
        ):
            yield _by_zone(name, text, values)
        down = GaugeMetricFamily(
            f"{_NODE_HEALTH}cluster_down",
            "1 while no node at all is healthy, and nothing is evicted; from the leader.",
        )
        if plan is not None:
            down.add_metric((), float(plan.status.is_down))
        yield down
        oldest = GaugeMetricFamily(
            f"{_NODE_HEALTH}oldest_request_seconds",
            "Since the oldest request was made for a pod that is there, and not being deleted; 0: "
            "there is none; from the leader.",
        )
        if plan is not None:
            since = plan.oldest
            age = max((self._now() - since).total_seconds(), 0.0) if since is not None else 0.0
            oldest.add_metric((), age)
        yield oldest


def _by_zone(name: str, text: str, values: Mapping[Zone, float]) -> Metric:
    family = GaugeMetricFamily(_NODE_HEALTH + name, text, labels=_ZONE)
    for zone, value in values.items():
        family.add_metric(tuple(zone), value)
    return family
