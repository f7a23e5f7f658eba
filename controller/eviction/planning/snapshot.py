"""What a plan may depend on: the objects that the controller can see, as frozen values.

Evictions and EvictionRequests have the shapes of :mod:`rules.api`; a pod is cut down to what
decides about its eviction. Source: ``k8s.io/api/core/v1/types.go``.
"""

from collections.abc import Iterable
from datetime import datetime
from typing import Any, TypeVar

from cluster.key import Key
from rules.api import (
    ApiType,
    Eviction,
    EvictionRequest,
    EvictionResponder,
    ObjectMeta,
    PodReference,
    Time,
)


class PodMeta(ApiType):
    """The fields of a pod's metadata that count."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    deletion_timestamp: Time | None = None
    """When the pod's grace ends; set as soon as somebody has deleted it."""
    annotations: dict[str, str] = {}


class InitContainer(ApiType):
    """An init container; a restartable one (``Always``) runs as long as the pod does."""

    name: str = ""
    restart_policy: str = ""


class PodSpec(ApiType):
    """The fields of a pod's spec that count."""

    eviction_responders: tuple[EvictionResponder, ...] = ()
    scheduling_group: Any = None
    """Anything but None: the pod belongs to a PodGroup."""
    init_containers: tuple[InitContainer, ...] = ()


class Terminated(ApiType):
    """How a container ended."""

    finished_at: Time | None = None


class ContainerState(ApiType):
    """Where a container stands."""

    terminated: Terminated | None = None


class ContainerStatus(ApiType):
    """What is known of a container."""

    name: str = ""
    state: ContainerState = ContainerState()


class PodStatus(ApiType):
    """The fields of a pod's status that count."""

    phase: str = ""
    container_statuses: tuple[ContainerStatus, ...] = ()
    init_container_statuses: tuple[ContainerStatus, ...] = ()


class Pod(ApiType):
    """A pod, as far as its eviction is concerned."""

    metadata: PodMeta = PodMeta()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


KnownT = TypeVar("KnownT", Pod, Eviction, EvictionRequest)


class Snapshot(ApiType):
    """Everything that a plan may depend on, besides the instant.

    For one key that is: the object itself, the pods that have the name or the UID of its target,
    every Eviction and EvictionRequest with the same target, and every Eviction in the namespace
    that is named after that pod. More does no harm; the lists are searched from front to back.
    """

    pods: tuple[Pod, ...] = ()
    evictions: tuple[Eviction, ...] = ()
    eviction_requests: tuple[EvictionRequest, ...] = ()
    terminal_times: dict[str, Time] = {}
    """Eviction UID → what ``terminal_time`` of its last plan said."""

    def pod(self, namespace: str, name: str) -> Pod | None:
        """The pod of that name, whatever its UID."""
        return _named(self.pods, Key(namespace, name))

    def pod_with(self, namespace: str, uid: str) -> Pod | None:
        """The pod with that UID, whatever its name."""
        for pod in self.pods:
            if pod.metadata.uid == uid and pod.metadata.namespace == namespace:
                return pod
        return None

    def eviction(self, key: Key) -> Eviction | None:
        """The Eviction ``key``, None if it does not exist (any more)."""
        return _named(self.evictions, key)

    def eviction_request(self, key: Key) -> EvictionRequest | None:
        """The EvictionRequest ``key``, None if it does not exist (any more)."""
        return _named(self.eviction_requests, key)

    def evictions_of(self, namespace: str, pod: PodReference) -> list[Eviction]:
        """All Evictions of that pod: of its name and its UID.

        A name and a UID that do not belong together are nobody's: whoever counted by one of both
        would let the right to evict one pod work on another.
        """
        return [
            eviction
            for eviction in self.evictions
            if _aims_at(eviction.metadata, eviction.spec.target.pod, namespace, pod)
        ]

    def requests_of(self, namespace: str, pod: PodReference) -> list[EvictionRequest]:
        """All EvictionRequests for that pod, by name and UID, those being deleted included."""
        return [
            request
            for request in self.eviction_requests
            if _aims_at(request.metadata, request.spec.target.pod, namespace, pod)
        ]

    def eviction_names(self, namespace: str) -> frozenset[str]:
        """The names that Evictions have in that namespace."""
        return frozenset(
            e.metadata.name for e in self.evictions if e.metadata.namespace == namespace
        )

    def terminal_time(self, eviction: Eviction) -> datetime | None:
        """What is remembered of when the target of ``eviction`` ended."""
        return self.terminal_times.get(eviction.metadata.uid)


def _named(objects: Iterable[KnownT], key: Key) -> KnownT | None:
    for known in objects:
        if known.metadata.name == key.name and known.metadata.namespace == key.namespace:
            return known
    return None


def _aims_at(
    metadata: ObjectMeta, aim: PodReference | None, namespace: str, pod: PodReference
) -> bool:
    return aim == pod and metadata.namespace == namespace
