"""Kubernetes Events for what people should know when an eviction does not go by itself."""

import hashlib
from datetime import datetime
from time import monotonic
from typing import Final

import structlog

from controller import clock
from controller.cluster import Cluster, Document
from controller.failures import ClusterFailure, Denied
from controller.resources import EVENTS
from rules.api import API_VERSION, Eviction
from rules.times import format_time

REPEAT_SECONDS: Final = 600.0
"""For how long the same Event is not said again of the same object."""
MAX_NOTE: Final = 1024
"""Characters of an Event's message (``maxNote``, pkg/apis/core/validation/events.go)."""
_MAX_REMEMBERED: Final = 4096
_COMPONENT: Final = "usher-controller"

_log = structlog.get_logger()


class Recorder:
    """Says each thing once. A lost Event is no failure: nobody may rely on Events."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._said: dict[tuple[str, str, str], float] = {}
        self._is_denied = False

    async def warn(self, eviction: Eviction, reason: str, message: str) -> None:
        """Tell it of the Eviction, and of its pod."""
        metadata = eviction.metadata
        subjects = [
            {
                "apiVersion": API_VERSION,
                "kind": "Eviction",
                "namespace": metadata.namespace,
                "name": metadata.name,
                "uid": metadata.uid,
            }
        ]
        if pod := eviction.spec.target.pod:
            subjects.append(
                {
                    "apiVersion": "v1",
                    "kind": "Pod",
                    "namespace": metadata.namespace,
                    "name": pod.name,
                    "uid": pod.uid,
                }
            )
        for subject in subjects:
            if self._is_new((subject["uid"], reason, message)):
                await self._create(_event(subject, reason, message, clock.now()))

    def _is_new(self, said: tuple[str, str, str]) -> bool:
        now = monotonic()
        if now - self._said.get(said, -REPEAT_SECONDS) < REPEAT_SECONDS:
            return False
        self._said.pop(said, None)
        self._said[said] = now
        while len(self._said) > _MAX_REMEMBERED:
            del self._said[next(iter(self._said))]  # the one said longest ago
        return True

    async def _create(self, event: Document) -> None:
        try:
            await self._cluster.create(EVENTS, event["metadata"]["namespace"], event)
        except Denied as failure:
            if not self._is_denied:
                _log.warning(f"the permission to {failure.permission} is missing")
                self._is_denied = True
        except ClusterFailure as failure:
            _log.debug("an Event is lost", error=str(failure))


def _event(subject: Document, reason: str, message: str, now: datetime) -> Document:
    digest = hashlib.sha256(f"{reason} {message} {now.timestamp()}".encode()).hexdigest()[:16]
    stamp = format_time(now)
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {
            "name": f"{subject['name'][:200].rstrip('.-')}.{digest}",
            "namespace": subject["namespace"],
        },
        "involvedObject": subject,
        "reason": reason,
        "message": message[:MAX_NOTE],
        "type": "Warning",
        "source": {"component": _COMPONENT},
        "firstTimestamp": stamp,
        "lastTimestamp": stamp,
        "count": 1,
    }
