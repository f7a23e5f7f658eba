"""Everything that the controller sees: its three stores, and what a plan for one key needs of them.

Nothing is kept that nobody reads: pods are cut down to a few bytes, other objects lose their
``managedFields`` and foreign annotations. Pure.
"""

import re
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any, Final, NamedTuple

import msgspec
from msgspec.structs import replace

from cluster.key import Key
from cluster.store import Entry, Index, Store
from controller.eviction.ownership import ManagedFields, without_foreign_requesters
from controller.eviction.packing import Compressed, pack_eviction, pack_request
from controller.eviction.planning.requesters import wants_eviction
from controller.eviction.planning.snapshot import Pod, PodMeta, PodSpec, PodStatus, Snapshot
from rules.api import MAX_REQUESTERS, RESPONDERS_ANNOTATION, Eviction, EvictionRequest, ObjectMeta
from rules.decode import Encoded, decode, read
from rules.mutation import Mode
from rules.times import ZERO

_TERMINAL: Final = ("Failed", "Succeeded")
_RESTARTABLE: Final = "Always"
_STEM: Final = 200
"""Characters of a pod's name by which Evictions are found that are named after it. Their names are
cut to 253 characters, so that at least so many of a longer one are left."""
_named_after = re.compile(r"pod-[0-9]{1,18}-(.*)", re.ASCII | re.DOTALL).fullmatch


MAX_REQUESTS: Final = MAX_REQUESTERS
"""So many requests for one pod take part in its eviction: no more requesters fit into its status
(v1alpha1/types.go). What becomes of the pod the others are told, too."""


class KnownPod(NamedTuple):
    """What is kept of a pod."""

    kept: bytes
    """What counts for its eviction; see :func:`kept_of`."""
    place: Any = None
    """What counts of its place; None where nobody asks."""
    labels: tuple[tuple[str, str], ...] = ()
    """What policies select it by."""


class View:
    """The pods, Evictions and EvictionRequests that are known, each findable as plans need it."""

    def __init__(self) -> None:
        self.pods: Store[KnownPod] = Store(uid=Index(_uid_of))
        self.evictions: Store[Eviction] = Store(target=Index(_target_of), stem=Index(_stem_of))
        self.requests: Store[EvictionRequest] = Store(target=Index(_target_of, _rank_of))

    def evictions_of(self, namespace: str, uid: str) -> Sequence[Entry[Eviction]]:
        """The Evictions of the pod with that UID."""
        return self.evictions.find("target", (namespace, uid))

    def requests_of(
        self, namespace: str, uid: str, most: int | None = None
    ) -> Sequence[Entry[EvictionRequest]]:
        """The EvictionRequests for the pod with that UID, at most so many.

        Those that want it gone come first, and of these the oldest.
        """
        return self.requests.find("target", (namespace, uid), most)

    def snapshot(
        self, namespace: str, about: Eviction | EvictionRequest, terminal_times: dict[str, datetime]
    ) -> Snapshot:
        """What a plan for ``about`` may depend on.

        Of many requests for one pod the first :data:`MAX_REQUESTS` count, and ``about`` itself.
        ``terminal_times`` is what is remembered, see :class:`Snapshot`.
        """
        pod = about.spec.target.pod
        if pod is None:
            if isinstance(about, Eviction):
                return Snapshot(evictions=(about,))
            return Snapshot(eviction_requests=(about,))
        stem = (namespace, pod.name[:_STEM])
        requests = {e.key: e.value for e in self.requests_of(namespace, pod.uid, MAX_REQUESTS)}
        if isinstance(about, EvictionRequest):
            requests[Key(namespace, about.metadata.name)] = about
        known = {
            entry.key: entry.value
            for entry in (
                *self.evictions_of(namespace, pod.uid),
                *self.evictions.find("stem", stem),
            )
        }
        named = self.pods.get(Key(namespace, pod.name))
        found = {entry.key: entry for entry in self.pods.find("uid", (namespace, pod.uid))}
        found |= {named.key: named} if named else {}
        return Snapshot(
            pods=tuple(pod_of(entry.value.kept) for entry in found.values()),
            evictions=tuple(known.values()),
            eviction_requests=tuple(requests.values()),
            terminal_times={
                eviction.metadata.uid: terminal_times[eviction.metadata.uid]
                for eviction in known.values()
                if eviction.metadata.uid in terminal_times
            },
        )


def _uid_of(entry: Entry[KnownPod]) -> tuple[str, str]:
    return entry.key.namespace, entry.uid


def _target_of(entry: Entry[Eviction] | Entry[EvictionRequest]) -> tuple[str, str] | None:
    pod = entry.value.spec.target.pod
    # An Eviction and its requests share one text.
    return (entry.key.namespace, sys.intern(pod.uid)) if pod else None


def _rank_of(entry: Entry[EvictionRequest]) -> tuple[int, datetime, Key]:
    """Who wants the pod gone before who has been told the end, and these before the others."""
    kept = entry.kept
    if isinstance(kept, Compressed):
        return 1 if kept.summary.wants else 2, ZERO, entry.key
    created = kept.metadata.creation_timestamp or ZERO
    return 0 if wants_eviction(kept) else 2, created, entry.key


def _stem_of(entry: Entry[Eviction]) -> tuple[str, str] | None:
    found = _named_after(entry.key.name)
    return (entry.key.namespace, found[1][:_STEM]) if found else None


# --- what is kept of an object ------------------------------------------------------------------


class _WatchedMeta(ObjectMeta):
    managed_fields: tuple[ManagedFields, ...] = ()


class _WatchedEviction(Eviction):
    metadata: _WatchedMeta = _WatchedMeta()


def read_eviction(document: Encoded) -> Eviction:
    """An Eviction without what nobody reads. Raises DecodeError."""
    watched = decode(_WatchedEviction, document)
    metadata = watched.metadata
    labels = without_foreign_requesters(metadata.labels, metadata.managed_fields)
    return Eviction(
        api_version=watched.api_version,
        kind=watched.kind,
        metadata=_bare(metadata, labels),
        spec=watched.spec,
        status=watched.status,
    )


def read_request(document: Encoded) -> EvictionRequest:
    """An EvictionRequest without what nobody reads. Raises DecodeError."""
    request = decode(EvictionRequest, document)
    return replace(request, metadata=_bare(request.metadata, request.metadata.labels))


def keep_eviction(document: Encoded) -> Eviction | Compressed[Eviction]:
    """What is kept of an Eviction. Raises DecodeError."""
    return pack_eviction(read_eviction(document))


def keep_request(document: Encoded) -> EvictionRequest | Compressed[EvictionRequest]:
    """What is kept of an EvictionRequest. Raises DecodeError."""
    return pack_request(read_request(document))


def _bare(metadata: ObjectMeta, labels: dict[str, str]) -> ObjectMeta:
    """Metadata without annotations, which may be long."""
    kept = {name: getattr(metadata, name) for name in ObjectMeta.__struct_fields__}
    return ObjectMeta(**kept | {"labels": labels, "annotations": {}})


class _WatchedPodMeta(PodMeta):
    labels: dict[str, str] = {}


class _WatchedPod(Pod):
    metadata: _WatchedPodMeta = _WatchedPodMeta()


def read_pod(document: Encoded, mode: Mode = Mode.AUTO) -> KnownPod:
    """What counts of a pod, where its node does not. Raises DecodeError."""
    watched = decode(_WatchedPod, document)
    return KnownPod(kept_of(watched, mode), labels=_labels_of(watched.metadata.labels))


def _labels_of(labels: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    return _shared(tuple(sorted(labels.items())))


@lru_cache(maxsize=4096)
def _shared(labels: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
    """``labels``, once for the many pods that have the same."""
    return labels


def kept_of(pod: Pod, mode: Mode) -> bytes:
    """What counts of a pod, as short JSON: most pods are never evicted, and need not be decoded.

    Two pods that differ in nothing that counts give the same bytes. Where responders are declared
    in a place that ``mode`` excludes, they do not count.
    """
    metadata, spec, status = pod.metadata, pod.spec, pod.status
    annotations = {} if mode is Mode.NATIVE else metadata.annotations
    responders = annotations.get(RESPONDERS_ANNOTATION)
    kept = Pod(
        metadata=PodMeta(
            name=metadata.name,
            namespace=metadata.namespace,
            uid=metadata.uid,
            deletion_timestamp=metadata.deletion_timestamp,
            annotations={} if responders is None else {RESPONDERS_ANNOTATION: responders},
        ),
        spec=PodSpec(
            eviction_responders=() if mode is Mode.CRD else spec.eviction_responders,
            scheduling_group=spec.scheduling_group,
            init_containers=tuple(
                each for each in spec.init_containers if each.restart_policy == _RESTARTABLE
            ),
        ),
        # Before the end nobody asks when its containers ended.
        status=status if status.phase in _TERMINAL else PodStatus(),
    )
    # What msgspec returns may have room for more: a copy is as long as it needs to be.
    return bytes(memoryview(msgspec.json.encode(kept)))


def pod_of(kept: bytes) -> Pod:
    """The pod of which ``kept`` is what counts. Raises DecodeError."""
    return read(Pod, kept)
