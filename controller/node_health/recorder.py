"""Tells people what happens to nodes and zones: log lines, Events, and the count of turns."""

from collections import Counter
from collections.abc import Iterable

import structlog

from cluster.event import Occurrence
from cluster.leader_election import Lead
from cluster.recorder import Say
from controller.node_health.metrics import NodeMetrics
from controller.node_health.planning.occurrences import (
    asked_to_leave,
    may_stay,
    tainted,
    zone_changed,
)
from controller.node_health.planning.plan import NodeHealthPlan
from controller.node_health.planning.pods import OwnRequest
from controller.node_health.planning.zones import Zone, ZoneState
from controller.node_health.view import NodeView

_log = structlog.get_logger()


class NodeRecorder:
    """Says each thing when it begins. A dry run has log lines, and no Events."""

    def __init__(
        self, nodes: NodeView, lead: Lead, say: Say, metrics: NodeMetrics, *, dry_run: bool
    ) -> None:
        self._nodes = nodes
        self._lead = lead
        self._say = say
        self._metrics = metrics
        self._dry_run = dry_run
        metrics.dry_run.set(dry_run)
        self.clear()

    def clear(self) -> None:
        """Forget how the zones stood; what is normal then is no news."""
        self._seen: dict[Zone, tuple[ZoneState, float]] = {}

    def tell(self, plan: NodeHealthPlan, withdrawals: Iterable[OwnRequest]) -> None:
        """Tell of the zones and turns of ``plan``, and of these ``withdrawals``."""
        self._tell_of_zones(plan)
        for node, pods in plan.turns:
            self._metrics.turns.labels(*node.zone).inc()
            self._tell_of_node(node.name, asked_to_leave(node, len(pods)))
        for node, pods in plan.tainted:
            self._tell_of_node(node.name, tainted(node, len(pods)))
        found = (self._nodes.node_of(own.pod_uid) for own in withdrawals)
        withdrawn = Counter(node.name for node in found if node is not None)
        for name, number in withdrawn.items():
            self._tell_of_node(name, may_stay(number, is_down=plan.status.is_down))

    def _tell_of_zones(self, plan: NodeHealthPlan) -> None:
        before, self._seen = self._seen, {}
        for zone, status in plan.status.zones.items():
            self._seen[zone] = present = status.state, status.rate
            known = before.get(zone)
            if present == known or (known is None and status.state is ZoneState.NORMAL):
                continue
            occurrence = zone_changed(zone, status)
            self._log(occurrence, zone=str(zone))
            # Zones are no objects. The Lease is the controller's own, and stands for all of it.
            if self._lead.subject is not None and not self._dry_run:
                self._say(self._lead.subject, occurrence)

    def _tell_of_node(self, name: str, occurrence: Occurrence) -> None:
        self._log(occurrence, node=name)
        subject = self._nodes.subject(name)
        if subject is not None and not self._dry_run:
            self._say(subject, occurrence)

    def _log(self, occurrence: Occurrence, **about: str) -> None:
        log = _log.warning if occurrence.is_warning else _log.info
        log(occurrence.message, **about, **({"dry_run": True} if self._dry_run else {}))
