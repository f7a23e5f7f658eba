"""The pods of nodes: which of them have to leave a failed or tainted node, and after how long.

Source: ``core/v1 Toleration``, and Kubernetes' documentation of taints and tolerations.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from operator import attrgetter
from typing import Any, Final, NamedTuple

from cluster.key import Key
from controller.eviction.planning.request import is_done
from controller.node_health.planning.zones import HEALTH_TAINTS, NO_EXECUTE, Health, Node
from rules.api import (
    MIRROR_ANNOTATION,
    RESPONDERS_ANNOTATION,
    ApiType,
    ConditionType,
    EvictionRequest,
    Int64,
    Intent,
    OwnerReference,
    Time,
)
from rules.mutation import Mode
from rules.states import is_true

_EXISTS: Final = "Exists"
_EQUAL: Final = frozenset({"", "Equal"})
_COMPARISONS: Final = frozenset({"Gt", "Lt"})
"""Of whole numbers (alpha since 1.35)."""
_FINAL_PHASES: Final = frozenset({"Failed", "Succeeded"})
_DAEMON_SET: Final = "DaemonSet"
_AT_ONCE: Final = timedelta()
_LONGEST: Final = 100 * 365 * 24 * 3600
"""Seconds; whoever tolerates longer tolerates for ever, and a timedelta would not hold it."""


class Toleration(ApiType):
    """What a pod puts up with (``core/v1 Toleration``)."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    toleration_seconds: Int64 | None = None


class Tolerance(NamedTuple):
    """A toleration of NoExecute taints, cut down so that many pods can share it."""

    key: str
    operator: str
    value: str
    grace: timedelta | None
    """None: it tolerates for ever."""

    def matches(self, key: str, value: str = "") -> bool:
        """Whether it tolerates the taint of that key and value (``ToleratesTaint``)."""
        if self.key not in ("", key):
            return False
        if self.operator == _EXISTS:
            return True
        if self.operator in _COMPARISONS:
            return bool(self.key) and _compare(self.operator, value, self.value)
        return bool(self.key) and self.operator in _EQUAL and value == self.value


class PodMeta(ApiType):
    """The fields of a pod's metadata that count."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    deletion_timestamp: Time | None = None
    annotations: dict[str, str] = {}
    owner_references: tuple[OwnerReference, ...] = ()


class PodSpec(ApiType):
    """The fields of a pod's spec that count."""

    node_name: str = ""
    tolerations: tuple[Toleration, ...] = ()
    scheduling_group: Any = None
    eviction_responders: Any = None


class PodStatus(ApiType):
    """The fields of a pod's status that count."""

    phase: str = ""


class PodObject(ApiType):
    """A pod, as the API serves it."""

    metadata: PodMeta = PodMeta()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


@dataclass(frozen=True, slots=True)
class NodePod:
    """What is to be known of a pod. Made once for each change, because a tick reads very many."""

    key: Key
    uid: str
    node: str
    not_ready: timedelta | None = _AT_ONCE
    """For how long it stays on a node that is not ready; None: for ever."""
    unreachable: timedelta | None = _AT_ONCE
    """The same for a node that is unreachable."""
    stays: bool = False
    """Whether nobody needs to ask for it, see :func:`_stays`."""
    tolerances: tuple[Tolerance, ...] = ()
    """What it tolerates of other taints than those two."""
    has_responders: bool = False
    """Whether it has some of its own."""

    @classmethod
    def of(cls, pod: PodObject, mode: Mode = Mode.AUTO) -> "NodePod":
        """The pod that the API serves as ``pod``; ``mode``: where responders are listed."""
        stays = _stays(pod)
        tolerances = _tolerances(pod.spec.tolerations)
        grace = {
            health: None if stays else grace_for(tolerances, health.taint)
            for health in (Health.NOT_READY, Health.UNREACHABLE)
        }
        return cls(
            Key(pod.metadata.namespace, pod.metadata.name),
            pod.metadata.uid,
            pod.spec.node_name,
            grace[Health.NOT_READY],
            grace[Health.UNREACHABLE],
            stays,
            _shared(tuple(each for each in tolerances if each.key not in HEALTH_TAINTS)),
            _has_responders(pod, mode),
        )


@dataclass(frozen=True, slots=True)
class Pods:
    """All pods, to be found by what plans ask for."""

    by_uid: Mapping[str, NodePod]
    by_node: Mapping[str, Iterable[NodePod]]

    @classmethod
    def of(cls, pods: Iterable[NodePod]) -> "Pods":
        """The index of ``pods``."""
        by_node = defaultdict(list)
        by_uid = {}
        for pod in pods:
            by_uid[pod.uid] = pod
            by_node[pod.node].append(pod)
        return cls(by_uid, dict(by_node))


@dataclass(frozen=True, slots=True)
class OwnRequest:
    """What is to be known of an EvictionRequest that is ours."""

    key: Key
    pod_uid: str
    pod_name: str
    wants_eviction: bool = True
    is_seen: bool = False
    """Whether the controller of requests has judged the spec as it is now."""
    is_evicted: bool = False
    """Whether it is done because nothing is left to be evicted."""
    is_done: bool = False
    """Whether nothing more will come of it."""
    is_deleted: bool = False
    """Whether it is only waiting for finalizers."""
    created: datetime | None = None

    @classmethod
    def of(cls, request: EvictionRequest) -> "OwnRequest":
        """The EvictionRequest ``request``, which has our requester."""
        metadata, status, pod = request.metadata, request.status, request.spec.target.pod
        is_over = is_done(request)
        return cls(
            Key(metadata.namespace, metadata.name),
            pod.uid if pod is not None else "",
            pod.name if pod is not None else "",
            wants_eviction=request.spec.intent == Intent.EVICTION,
            is_seen=status.observed_generation == metadata.generation,
            is_evicted=is_over and is_true(status.conditions, ConditionType.TARGET_EVICTED),
            is_done=is_over,
            is_deleted=metadata.deletion_timestamp is not None,
            created=metadata.creation_timestamp,
        )


GRACE: Final[Mapping[Health, Callable[[NodePod], timedelta | None]]] = {
    Health.READY: lambda _: None,
    Health.NOT_READY: attrgetter("not_ready"),
    Health.UNREACHABLE: attrgetter("unreachable"),
}
"""State of a node → how long a pod stays on it; None: for ever. No method: a tick asks for each pod
of thousands of nodes."""


def grace_for(tolerances: Iterable[Tolerance], key: str, value: str = "") -> timedelta | None:
    """How long the NoExecute taint of that key and value is tolerated; None: for ever.

    The first toleration that matches decides.
    """
    for tolerance in tolerances:
        if tolerance.matches(key, value):
            return tolerance.grace
    return _AT_ONCE


def tainted_at(pod: NodePod, node: Node, lead: timedelta = _AT_ONCE) -> datetime | None:
    """When ``pod`` is due because of the other taints of its ``node``; None: never.

    ``lead``: for how long it is asked earlier, if it has responders.
    """
    if pod.stays:
        return None
    graces = [(each.since, grace_for(pod.tolerances, each.key, each.value)) for each in node.taints]
    head_start = lead if pod.has_responders else _AT_ONCE
    times = [
        since + max(grace - head_start, _AT_ONCE)
        for since, grace in graces
        if since is not None and grace is not None
    ]
    return min(times, default=None)


def has_to_leave(pod: NodePod, node: Node) -> bool:
    """Whether ``node`` is such that ``pod`` can't stay on it for ever.

    What is leaving already has to leave for the reason for which it once was asked.
    """
    if not node.is_healthy and (pod.stays or GRACE[node.health](pod) is not None):
        return True
    return any(grace_for(pod.tolerances, each.key, each.value) is not None for each in node.taints)


def _has_responders(pod: PodObject, mode: Mode) -> bool:
    annotation = pod.metadata.annotations.get(RESPONDERS_ANNOTATION, "")
    in_field = bool(pod.spec.eviction_responders) and mode is not Mode.CRD
    return in_field or (annotation not in ("", "[]") and mode is not Mode.NATIVE)


def _tolerances(tolerations: Iterable[Toleration]) -> list[Tolerance]:
    return [
        Tolerance(each.key, each.operator, each.value, _grace(each.toleration_seconds))
        for each in tolerations
        if each.effect in ("", NO_EXECUTE)
    ]


def _grace(seconds: int | None) -> timedelta | None:
    if seconds is None or seconds > _LONGEST:
        return None
    return timedelta(seconds=max(seconds, 0))


@lru_cache(maxsize=1024)
def _shared(tolerances: tuple[Tolerance, ...]) -> tuple[Tolerance, ...]:
    """``tolerances``, once for the many pods that have the same."""
    return tolerances


def _compare(operator: str, taint: str, toleration: str) -> bool:
    """Whether the value of a taint is greater or less than that of a toleration."""
    try:
        left, right = int(taint), int(toleration)
    except ValueError:
        return False
    return left > right if operator == "Gt" else left < right


def _stays(pod: PodObject) -> bool:
    """Whether the pod is none that anybody needs to ask for.

    Mirror pods and those of a DaemonSet belong to their node. Pods of a PodGroup cannot be evicted
    by requests yet. The others are leaving or have ended.
    """
    metadata = pod.metadata
    return (
        metadata.deletion_timestamp is not None
        or pod.status.phase in _FINAL_PHASES
        or MIRROR_ANNOTATION in metadata.annotations
        or pod.spec.scheduling_group is not None
        or any(
            owner.controller and owner.kind == _DAEMON_SET for owner in metadata.owner_references
        )
    )
