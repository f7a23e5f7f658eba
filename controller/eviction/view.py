"""Everything that the controller sees: its three stores, and what a plan for one key needs of them.

Nothing is kept that nobody reads: pods are cut down to a few bytes, other objects lose their
``managedFields`` and foreign annotations. Pure.
"""

import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any, Final, NamedTuple

import msgspec

from cluster.key import Key
from cluster.store import Entry, Index, Store
from controller.eviction.ownership import without_foreign_requesters
from controller.eviction.packing import Compressed, pack_eviction, pack_request
from controller.eviction.planning.requesters import wants_eviction
from controller.eviction.planning.snapshot import Pod, Snapshot
from rules.api import MAX_REQUESTERS, RESPONDERS_ANNOTATION, Eviction, EvictionRequest
from rules.decode import decode_model, read
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


def read_eviction(document: Mapping[str, Any]) -> Eviction:
    """An Eviction without what nobody reads. Raises DecodeError."""
    metadata = without_foreign_requesters(document["metadata"])
    return decode_model(Eviction, _bare({**document, "metadata": metadata}))


def read_request(document: Mapping[str, Any]) -> EvictionRequest:
    """An EvictionRequest without what nobody reads. Raises DecodeError."""
    return decode_model(EvictionRequest, _bare(document))


def keep_eviction(document: Mapping[str, Any]) -> Eviction | Compressed[Eviction]:
    """What is kept of an Eviction. Raises DecodeError."""
    return pack_eviction(read_eviction(document))


def keep_request(document: Mapping[str, Any]) -> EvictionRequest | Compressed[EvictionRequest]:
    """What is kept of an EvictionRequest. Raises DecodeError."""
    return pack_request(read_request(document))


def _bare(document: Mapping[str, Any]) -> dict[str, Any]:
    metadata = {
        name: value
        for name, value in document["metadata"].items()
        if name not in ("managedFields", "annotations")
    }
    return {**document, "metadata": metadata}


def read_pod(document: Mapping[str, Any], mode: Mode = Mode.AUTO) -> KnownPod:
    """What counts of a pod, where its node does not."""
    return KnownPod(kept_of(document, mode), labels=_labels_of(document))


def _labels_of(document: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    return _shared(tuple(sorted((document["metadata"].get("labels") or {}).items())))


@lru_cache(maxsize=4096)
def _shared(labels: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
    """``labels``, once for the many pods that have the same."""
    return labels


def kept_of(document: Mapping[str, Any], mode: Mode) -> bytes:
    """What counts of a pod, as short JSON: most pods are never evicted, and need not be decoded.

    Two pods that differ in nothing that counts give the same bytes. Where responders are declared
    in a place that ``mode`` excludes, they do not count.
    """
    metadata, spec = document["metadata"], document.get("spec") or {}
    status = document.get("status") or {}
    annotations = metadata.get("annotations") or {}
    kept = {
        "metadata": _present(
            name=metadata["name"],
            namespace=metadata.get("namespace"),
            uid=metadata.get("uid"),
            deletionTimestamp=metadata.get("deletionTimestamp"),
            annotations=_only(annotations, RESPONDERS_ANNOTATION)
            if mode is not Mode.NATIVE
            else None,
        ),
        "spec": _present(
            evictionResponders=spec.get("evictionResponders") if mode is not Mode.CRD else None,
            schedulingGroup=spec.get("schedulingGroup"),
            initContainers=[
                {"name": container.get("name"), "restartPolicy": _RESTARTABLE}
                for container in spec.get("initContainers") or ()
                if container.get("restartPolicy") == _RESTARTABLE
            ],
        ),
        "status": _end(status) if status.get("phase") in _TERMINAL else {},
    }
    # What msgspec returns has room for 4 KB: a copy is as long as it needs to be.
    return bytes(memoryview(msgspec.json.encode(_present(**kept))))


def pod_of(kept: bytes) -> Pod:
    """The pod of which ``kept`` is what counts. Raises DecodeError."""
    return read(Pod, kept)


def _end(status: Mapping[str, Any]) -> dict[str, Any]:
    """When the containers of a pod ended. Before the end nobody asks."""
    return _present(
        phase=status["phase"],
        containerStatuses=_finishes(status.get("containerStatuses")),
        initContainerStatuses=_finishes(status.get("initContainerStatuses")),
    )


def _finishes(statuses: Iterable[Mapping[str, Any]] | None) -> list[dict[str, Any]]:
    return [
        {
            "name": status.get("name", ""),
            "state": {
                "terminated": _only((status.get("state") or {}).get("terminated"), "finishedAt")
            },
        }
        for status in statuses or ()
    ]


def _only(fields: Mapping[str, Any] | None, name: str) -> dict[str, Any] | None:
    return {name: fields[name]} if fields and name in fields else None


def _present(**fields: Any) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value}
