"""Kubernetes Events: what people should know of an eviction without reading its status.

Nobody waits for them. They are sent one after the other beside the work, and one that can't be sent
is lost: nobody may rely on Events. Each is one request: it is created, and never changed, so that
"create" is the only permission that is needed.
"""

import asyncio
import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from time import monotonic
from typing import Final, TypeAlias

import structlog
from prometheus_client import Counter

from cluster import clock
from cluster.client import Cluster, Document
from cluster.event import Level, Occurrence
from cluster.failures import ClusterFailure, Denied
from cluster.resources import EVENTS
from rules.api import API_VERSION, Eviction
from rules.times import format_time

REPEAT_SECONDS: Final = 600.0
"""For how long the same thing is not said again of the same object; it is counted instead."""
MAX_NOTE: Final = 1024
"""Characters of an Event's message (``maxNote``, pkg/apis/core/validation/events.go)."""
MAX_WAITING: Final = 4096
"""Events that wait to be sent; more are lost. A few MB. Our own choice."""
_MAX_REMEMBERED: Final = 4096
_COMPONENT: Final = "usher-controller"
_NAMESPACE: Final = "default"
"""Of Events about what is in none (``legacyValidateEvent``, pkg/apis/core/validation/events.go)."""

_log = structlog.get_logger()

Tell: TypeAlias = Callable[[Eviction, Occurrence], None]
Say: TypeAlias = Callable[[Mapping[str, str], Occurrence], None]


@dataclass(slots=True)
class _Said:
    """What was said of an object, and how often it would have been said again."""

    since: float
    first: datetime
    repeated: int = 0


class Recorder:
    """Says each thing once, up to a level."""

    def __init__(self, cluster: Cluster, level: Level, counter: Counter) -> None:
        """``counter`` has one label: what became of an Event."""
        self._cluster = cluster
        self._level = level
        self._counter = counter
        self._said: dict[tuple[str, str, str], _Said] = {}
        self._waiting: asyncio.Queue[Document] = asyncio.Queue(MAX_WAITING)
        self._is_denied = False

    def tell(self, eviction: Eviction, occurrence: Occurrence) -> None:
        """Tell it of the Eviction, and of its pod. Never waits, never fails."""
        for subject in _subjects(eviction):
            self.say(subject, occurrence)

    def say(self, subject: Mapping[str, str], occurrence: Occurrence) -> None:
        """Tell it of one object; ``subject`` is a reference to it. Never waits, never fails."""
        if occurrence.level > self._level:
            return
        now = clock.now()
        if said := self._news(subject["uid"], occurrence, now):
            self._send_later(_event(subject, occurrence, said, now))

    async def run(self) -> None:
        """Send what is told; never returns."""
        while True:
            await self._send(await self._waiting.get())

    def _news(self, uid: str, occurrence: Occurrence, now: datetime) -> _Said | None:
        """What to say of the object with that UID; None if it was said a while ago."""
        key = (uid, occurrence.reason, occurrence.message)
        known = self._said.get(key)
        if known and monotonic() - known.since < REPEAT_SECONDS:
            known.first = known.first if known.repeated else now
            known.repeated += 1
            return None
        self._said.pop(key, None)
        self._said[key] = _Said(monotonic(), now)
        while len(self._said) > _MAX_REMEMBERED:
            del self._said[next(iter(self._said))]  # the one said longest ago
        return known if known and known.repeated else _Said(0.0, now)

    def _send_later(self, event: Document) -> None:
        try:
            self._waiting.put_nowait(event)
        except asyncio.QueueFull:
            self._counter.labels("dropped").inc()

    async def _send(self, event: Document) -> None:
        try:
            await self._cluster.create(EVENTS, event["metadata"]["namespace"], event)
        except ClusterFailure as failure:
            self._counter.labels("lost").inc()
            _log.debug("an Event is lost", error=str(failure))
            if isinstance(failure, Denied) and not failure.is_terminating and not self._is_denied:
                _log.warning(failure.explanation)
                self._is_denied = True
        else:
            self._counter.labels("ok").inc()


def _subjects(eviction: Eviction) -> Iterator[dict[str, str]]:
    """References to the Eviction and to its pod, which may be gone."""
    metadata, pod = eviction.metadata, eviction.spec.target.pod
    known = [(API_VERSION, "Eviction", metadata.name, metadata.uid)]
    known += [("v1", "Pod", pod.name, pod.uid)] if pod else []
    for version, kind, name, uid in known:
        place = {"namespace": metadata.namespace, "name": name, "uid": uid}
        yield {"apiVersion": version, "kind": kind, **place}


def _event(
    subject: Mapping[str, str], occurrence: Occurrence, said: _Said, now: datetime
) -> Document:
    text = f"{occurrence.reason} {occurrence.message} {now.timestamp()}"
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {
            "name": f"{subject['name'][:200].rstrip('.-')}.{digest}",
            "namespace": subject["namespace"] or _NAMESPACE,
        },
        "involvedObject": dict(subject),
        "reason": occurrence.reason,
        "message": occurrence.message[:MAX_NOTE],
        "type": "Warning" if occurrence.is_warning else "Normal",
        "source": {"component": _COMPONENT},
        "firstTimestamp": format_time(said.first),
        "lastTimestamp": format_time(now),
        "count": said.repeated + 1,
    }
