"""How badly each zone is hit, and how fast its failed nodes may be evicted.

Source: Kubernetes' documentation of nodes, "Rate limits on eviction". Pure: the nodes as they are
seen now say it all; what was before counts only in the budgets. See ADR 60.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Final, NamedTuple

from rules.api import ApiType, Condition, ConditionStatus, Time
from rules.states import condition_of

EVICTION_RATE: Final = 0.1
"""Nodes per second, in a zone where most nodes are healthy (``--node-eviction-rate``)."""
SECONDARY_EVICTION_RATE: Final = 0.01
"""Nodes per second, in a partly disrupted zone of a large cluster
(``--secondary-node-eviction-rate``)."""
UNHEALTHY_ZONE_THRESHOLD: Final = 0.55
"""The fraction of unhealthy nodes from which on a zone is partly disrupted
(``--unhealthy-zone-threshold``)."""
LARGE_CLUSTER_SIZE_THRESHOLD: Final = 50
"""Nodes, up to which a cluster is small (``--large-cluster-size-threshold``)."""

REGION_LABEL: Final = "topology.kubernetes.io/region"
ZONE_LABEL: Final = "topology.kubernetes.io/zone"
EXCLUDED_LABEL: Final = "node.kubernetes.io/exclude-disruption"
"""Whatever its value: the node does not count for the state of its zone, as in the node controller
(node_lifecycle_controller.go, ``labelNodeDisruptionExclusion``). It is for control planes, which
reach their own API server when nobody else does."""
READY: Final = "Ready"
NO_EXECUTE: Final = "NoExecute"


class Health(StrEnum):
    """What the Ready condition says of a node; the values are those of the taints' names."""

    READY = "ready"
    NOT_READY = "not-ready"
    """Ready is False: the kubelet says so."""
    UNREACHABLE = "unreachable"
    """Ready is Unknown: the kubelet says nothing; or it never has said anything."""

    @property
    def taint(self) -> str:
        """The key of the NoExecute taint that goes with it (core/v1, well_known_taints.go)."""
        return f"node.kubernetes.io/{self}"


HEALTH_TAINTS: Final = frozenset({Health.NOT_READY.taint, Health.UNREACHABLE.taint})
"""Keys of the taints that go with the Ready condition, which says more about it than they do."""


class OtherTaint(NamedTuple):
    """A NoExecute taint that somebody has put on a node for another reason than its health."""

    key: str
    value: str = ""
    since: datetime | None = None
    """From when on tolerationSeconds count. None: nobody has told; see :meth:`Node.after`."""


class Zone(NamedTuple):
    """A failure domain; all nodes without labels make up one, too."""

    region: str = ""
    name: str = ""

    def __str__(self) -> str:
        return "/".join(filter(None, self)) or "(no zone)"


class NodeMeta(ApiType):
    """The fields of a node's metadata that count."""

    name: str = ""
    labels: dict[str, str] = {}


class Taint(ApiType):
    """Keeps pods away (``core/v1 Taint``)."""

    key: str = ""
    value: str = ""
    effect: str = ""
    time_added: Time | None = None


class NodeSpec(ApiType):
    """The fields of a node's spec that count."""

    taints: tuple[Taint, ...] = ()


class NodeStatus(ApiType):
    """The fields of a node's status that count."""

    conditions: tuple[Condition, ...] = ()


class NodeObject(ApiType):
    """A node, as the API serves it."""

    metadata: NodeMeta = NodeMeta()
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


@dataclass(frozen=True, slots=True)
class Node:
    """What is to be known of a node. Made once for each change, because every tick reads all."""

    name: str
    zone: Zone
    health: Health = Health.READY
    since: datetime | None = None
    """From when on tolerationSeconds count; None: unknown, so that no pod is ever due."""
    is_excluded: bool = False
    """Whether it does not count for the state of its zone, see :data:`EXCLUDED_LABEL`."""
    down_since: datetime | None = None
    """When it failed in another way than now, without having been ready since; None: it did not.
    The node controller keeps that time as well when it changes the taint (taint_eviction.go,
    ``scheduledEviction.CreatedAt``)."""
    taints: tuple[OtherTaint, ...] = ()
    """Those that pods have to tolerate however healthy the node is."""

    @classmethod
    def of(cls, node: NodeObject) -> "Node":
        """The node that the API serves as ``node``."""
        labels = node.metadata.labels
        zone = Zone(labels.get(REGION_LABEL, ""), labels.get(ZONE_LABEL, ""))
        ready = condition_of(node.status.conditions, READY)
        health = _health(ready)
        times = [
            taint.time_added
            for taint in node.spec.taints
            if (taint.key, taint.effect) == (health.taint, NO_EXECUTE)
        ]
        # A taint comes after the change that it goes with. An older one is of an outage before.
        known = [time for time in (*times, ready and ready.last_transition_time) if time]
        others = tuple(
            OtherTaint(taint.key, taint.value, taint.time_added)
            for taint in node.spec.taints
            if taint.effect == NO_EXECUTE and taint.key not in HEALTH_TAINTS
        )
        return cls(
            node.metadata.name,
            zone,
            health,
            max(known, default=None),
            is_excluded=EXCLUDED_LABEL in labels,
            taints=others,
        )

    def after(self, before: "Node | None", now: datetime) -> "Node":
        """This node, which was ``before`` until ``now``, or was not known.

        Taints without a time count from when they were seen first, as in Kubernetes.
        """
        node = self if before is None else self._down_after(before)
        if all(taint.since for taint in node.taints):
            return node
        seen = {taint[:2]: taint.since for taint in before.taints} if before else {}
        taints = tuple(
            taint if taint.since else taint._replace(since=seen.get(taint[:2]) or now)
            for taint in node.taints
        )
        return replace(node, taints=taints)

    def _down_after(self, before: "Node") -> "Node":
        """Only being ready ends being down."""
        if self.is_healthy or before.is_healthy:
            return self
        down_since = before.down_since
        if down_since is None and self.health is not before.health:
            down_since = before.since
        if down_since is None:
            return self
        since = min(self.since or down_since, down_since)
        return replace(self, since=since, down_since=down_since)

    @property
    def is_healthy(self) -> bool:
        """Whether its pods may stay."""
        return self.health is Health.READY


class ZoneState(StrEnum):
    """How many nodes of a zone are unhealthy."""

    NORMAL = "normal"
    PARTIAL = "partial disruption"
    FULL = "full disruption"


@dataclass(frozen=True, slots=True)
class Limits:
    """What decides about rates; the defaults are those of the node controller."""

    eviction_rate: float = EVICTION_RATE
    secondary_eviction_rate: float = SECONDARY_EVICTION_RATE
    unhealthy_zone_threshold: float = UNHEALTHY_ZONE_THRESHOLD
    large_cluster_size_threshold: int = LARGE_CLUSTER_SIZE_THRESHOLD


DEFAULTS: Final = Limits()


@dataclass(frozen=True, slots=True)
class ZoneStatus:
    """How a zone stands."""

    nodes: int
    """Those that count."""
    unhealthy: int
    state: ZoneState
    rate: float
    """How many nodes per second may be evicted; 0: none."""

    @property
    def unhealthy_fraction(self) -> float:
        """From 0 to 1."""
        return self.unhealthy / self.nodes if self.nodes else 0.0


@dataclass(frozen=True, slots=True)
class ClusterStatus:
    """How the cluster stands."""

    zones: dict[Zone, ZoneStatus]
    """Every zone that has a node, in the order of their names."""
    is_down: bool
    """Whether there are nodes, and none is healthy: it is the control plane that is cut off."""


def assess(nodes: Iterable[Node], limits: Limits = DEFAULTS) -> ClusterStatus:
    """The states of all zones, and the rates in force.

    Source: as above. A cluster of one zone, labelled or not, is judged as a whole: it is down where
    a zone among others would be evicted at the normal rate. Nodes that are excluded have their
    turns, and count for nothing else; where all are, they do count.
    """
    listed = list(nodes)
    counted = [node for node in listed if not node.is_excluded] or listed
    seen = Counter({node.zone: 0 for node in listed})
    unhealthy: Counter[Zone] = Counter()
    for node in counted:
        seen[node.zone] += 1
        if not node.is_healthy:
            unhealthy[node.zone] += 1
    size = seen.total()
    down = 0 < size == unhealthy.total()
    zones = {}
    for zone in sorted(seen):
        state = _state(unhealthy[zone], seen[zone], limits)
        rate = 0.0 if down else _rate(state, size, limits)
        zones[zone] = ZoneStatus(seen[zone], unhealthy[zone], state, rate)
    return ClusterStatus(zones, down)


def _health(ready: Condition | None) -> Health:
    if ready is not None and ready.status == ConditionStatus.TRUE:
        return Health.READY
    if ready is not None and ready.status == ConditionStatus.FALSE:
        return Health.NOT_READY
    return Health.UNREACHABLE


def _state(unhealthy: int, nodes: int, limits: Limits) -> ZoneState:
    if not nodes:
        return ZoneState.NORMAL
    if unhealthy == nodes:
        return ZoneState.FULL
    if unhealthy / nodes >= limits.unhealthy_zone_threshold:
        return ZoneState.PARTIAL
    return ZoneState.NORMAL


def _rate(state: ZoneState, cluster_size: int, limits: Limits) -> float:
    """The rate in a zone of a cluster that is not down."""
    if state is not ZoneState.PARTIAL:
        return limits.eviction_rate
    is_large = cluster_size > limits.large_cluster_size_threshold
    return limits.secondary_eviction_rate if is_large else 0.0
