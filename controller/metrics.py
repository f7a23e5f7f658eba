"""What the controller counts, and what can be read off when Prometheus asks.

No label has the name of a user or an object in it, but for namespaces and zones: the number of
series is bounded. What describes the cluster is told by the leader alone, so that sums over all
replicas are right; what describes the process by each. See ADR 85.
"""

from collections import Counter as Tally
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timedelta
from heapq import nlargest
from importlib.metadata import version
from platform import python_version
from time import monotonic
from typing import Final

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
)
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from cluster.resources import EVICTION_REQUESTS, EVICTIONS, PODS
from controller.eviction.packing import Compressed, summary_of
from controller.eviction.planning import measurements
from controller.eviction.planning.measurements import REASONS, Kind, Outcome, Waiting, waiting
from controller.eviction.view import View
from rules.api import ConditionType, Eviction, Intent, ResponderState
from rules.states import PROCESSED

PREFIX: Final = "usher_controller_"
_SECONDS: Final = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 60.0)
_LONG_SECONDS: Final = (
    *(1.0, 5.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1200.0),
    *(2400.0, 3600.0, 7200.0, 14400.0, 28800.0, 86400.0),
)
"""Bounds for evictions and turns, HEARTBEAT_DEADLINE (20 min) among them. Our own choice."""
MAX_OLDEST: Final = 100
"""So many ages are shown, each of a namespace and of what is waited for there. Our own choice: more
than anybody looks at, and few series in a cluster with thousands of namespaces."""


class Metrics:
    """Counters of one process, and the registry that shows them."""

    def __init__(self) -> None:
        # When a counter began says nothing that anybody asks.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = registry = CollectorRegistry()
        self.writes = Counter(
            f"{PREFIX}writes",
            "Writes to the API server.",
            ("resource", "subresource", "result"),
            registry=registry,
        )
        self.failures = Counter(
            f"{PREFIX}failures",
            "Work that did not succeed and is tried again.",
            ("work", "kind"),
            registry=registry,
        )
        self.reading_failures = Counter(
            f"{PREFIX}reading_failures",
            "Lists and watches that failed, by resource and kind; Silent: a watch told nothing.",
            ("resource", "kind"),
            registry=registry,
        )
        self.requests = Counter(
            f"{PREFIX}api_requests",
            "Requests to API servers, by HTTP status; <error>: no answer.",
            ("verb", "resource", "code"),
            registry=registry,
        )
        self.request_seconds = Histogram(
            f"{PREFIX}api_request_seconds",
            "Until an API server's answer began, or there was none; of watches, until they stood.",
            ("verb", "resource"),
            buckets=_SECONDS,
            registry=registry,
        )
        self.ended = Counter(
            f"{PREFIX}evictions_ended",
            "Evictions that this process has ended, by the reason of the condition that is True.",
            ("reason",),
            registry=registry,
        )
        self.eviction_seconds = Histogram(
            f"{PREFIX}eviction_duration_seconds",
            "From the creation of an Eviction to its end, by the API server's time.",
            ("outcome",),
            buckets=_LONG_SECONDS,
            registry=registry,
        )
        self.turn_seconds = Histogram(
            f"{PREFIX}responder_turn_seconds",
            "From the start of a responder to the end of its turn, by the API server's time.",
            ("responder", "outcome"),
            buckets=_LONG_SECONDS,
            registry=registry,
        )
        self.waits = Histogram(
            f"{PREFIX}queue_wait_seconds",
            "From being due to being worked on.",
            ("work",),
            buckets=_SECONDS,
            registry=registry,
        )
        self.works = Histogram(
            f"{PREFIX}work_seconds",
            "Working on an item.",
            ("work",),
            buckets=_SECONDS,
            registry=registry,
        )
        self.refused_writes = Counter(
            f"{PREFIX}planned_writes_refused",
            "Planned writes that the rules refuse: each is a bug.",
            registry=registry,
        )
        self.failed_evictions = Counter(
            "imperative_eviction_responder_controller_failed_evictions",
            "Evictions whose pod the API server has refused to evict at least once.",
            registry=registry,
        )
        self.events = Counter(
            f"{PREFIX}events",
            "Kubernetes Events by what became of them; writes do not count them.",
            ("result",),
            registry=registry,
        )
        self.clock_ahead = Gauge(
            f"{PREFIX}clock_ahead_seconds",
            "How far the clock is ahead of the API server's, to about a second.",
            registry=registry,
        )
        self.lease_held = Gauge(
            f"{PREFIX}lease_held",
            "1 while this process leads; 0: it stands by.",
            registry=registry,
        )
        self.stood_down = Gauge(
            f"{PREFIX}stood_down",
            "1 while this process leaves the work to the cluster's own controller.",
            registry=registry,
        )
        self._begin()

    def _begin(self) -> None:
        """Show what can be foreseen as 0: from nothing to 1 is no increase."""
        for reason in REASONS:
            self.ended.labels(reason)
        for outcome in Outcome:
            self.eviction_seconds.labels(outcome)
        for kind in Kind:
            for state in sorted(PROCESSED):
                self.turn_seconds.labels(kind, state.lower())
        build = Gauge(
            "usher_build_info", "1; what runs.", ("version", "python"), registry=self.registry
        )
        build.labels(version("usher"), python_version()).set(1)
        ProcessCollector(registry=self.registry)

    def observe(self, verb: str, resource: str, code: str, seconds: float) -> None:
        """Count a request, see :data:`cluster.client.Observe`."""
        self.requests.labels(verb, resource, code).inc()
        self.request_seconds.labels(verb, resource).observe(seconds)

    def measure(self, before: Eviction, after: Eviction, now: datetime) -> None:
        """Count what a write at ``now`` has made of an Eviction that was ``before``."""
        for turn in measurements.turns(before.status, after.status, now):
            if turn.took is not None:
                series = self.turn_seconds.labels(turn.kind, turn.state.lower())
                series.observe(turn.took.total_seconds())
        if (end := measurements.end(before, after)) is not None:
            self.ended.labels(end.reason).inc()
            if end.took is not None:
                self.eviction_seconds.labels(end.outcome).observe(end.took.total_seconds())


class StateCollector(Collector):
    """What can be read off when somebody asks: watches, queues, and the state of every eviction."""

    def __init__(
        self,
        view: View,
        queue: Callable[[], tuple[int, int]],
        heard: Callable[[], dict[str, float]],
        now: Callable[[], datetime],
        leads: Callable[[], bool],
    ) -> None:
        """Read from ``view``, and from functions.

        ``queue`` returns how many items are ready and delayed, ``heard`` for each resource when the
        API server last said something of it (monotonic clock), ``now`` the API server's time;
        ``leads``: whether to tell more than the watches.
        """
        self._view = view
        self._queue = queue
        self._heard = heard
        self._now = now
        self._leads = leads

    def collect(self) -> Iterator[Metric]:
        """Everything as it is now."""
        yield self._watches()
        if self._leads():
            yield from self._queues()
            yield self._stored()
            yield from self._evictions()
            yield from self._ages()
            yield self._intents()

    def _watches(self) -> Metric:
        ages = GaugeMetricFamily(
            f"{PREFIX}watch_age_seconds",
            "Since the API server last said anything of the resource.",
            labels=("resource",),
        )
        now = monotonic()
        for resource, heard in self._heard().items():
            ages.add_metric((resource,), now - heard)
        return ages

    def _queues(self) -> Iterator[Metric]:
        ready, delayed = self._queue()
        yield _family("queue_depth", "Items that are due; the leader's.", ready)
        yield _family("queue_delayed", "Items whose time has not come; the leader's.", delayed)

    def _stored(self) -> Metric:
        view = self._view
        sizes = {
            PODS.name: len(view.pods),
            EVICTIONS.name: len(view.evictions),
            EVICTION_REQUESTS.name: len(view.requests),
        }
        text = "Objects of the cluster that each replica keeps in memory; from the leader."
        return _tallied(f"{PREFIX}stored_objects", text, "resource", Tally(sizes))

    def _evictions(self) -> Iterator[Metric]:
        outcomes: Tally[str] = Tally()
        states: Tally[str] = Tally(dict.fromkeys(ResponderState, 0))
        responders = 0
        for entry in self._view.evictions:
            summary = summary_of(entry.kept)
            outcomes[_OUTCOMES[summary.outcome]] += 1
            states.update(summary.states)
            responders += len(summary.states)
        yield _tallied(
            f"{PREFIX}evictions", "Evictions by state; from the leader.", "state", outcomes
        )
        yield _tallied(
            "evictionrequest_controller_responder_state",
            "Target responders of all Evictions by state; from the leader.",
            "state",
            states,
        )
        yield GaugeMetricFamily(
            "evictionrequest_controller_target_responders",
            "Target responders of all Evictions; from the leader.",
            value=responders,
        )

    def _ages(self) -> Iterator[Metric]:
        """How long it takes, for alerts; nothing where nothing is under way."""
        entries = self._view.evictions
        active = [
            (entry.key.namespace, entry.kept)
            for entry in entries
            if not isinstance(entry.kept, Compressed)
        ]
        oldest = GaugeMetricFamily(
            f"{PREFIX}oldest_active_eviction_seconds",
            "Age of the oldest Eviction that has not ended, by the namespace of its pod and what it"
            f" waits for; of the {MAX_OLDEST} oldest; from the leader.",
            labels=("target_namespace", "reason"),
        )
        for (namespace, reason), age in self._oldest(active):
            oldest.add_metric((namespace, reason), age.total_seconds())
        yield oldest
        now = self._now()
        starts = filter(None, (_active_since(eviction) for _, eviction in active))
        yield _family(
            "oldest_active_responder_seconds",
            "Since the responder started that has been Active for longest; from the leader.",
            max(((now - start).total_seconds() for start in starts), default=0.0),
        )

    def _oldest(
        self, active: Iterable[tuple[str, Eviction]]
    ) -> Iterable[tuple[tuple[str, Waiting], timedelta]]:
        """Namespace and what is waited for → the age of the oldest Eviction that does so."""
        now = self._now()
        ages: dict[tuple[str, Waiting], timedelta] = {}
        for namespace, eviction in active:
            created = eviction.metadata.creation_timestamp
            if created is not None:
                place = namespace, waiting(eviction)
                ages[place] = max(now - created, ages.get(place, timedelta()))
        return nlargest(MAX_OLDEST, ages.items(), key=lambda each: each[1])

    def _intents(self) -> Metric:
        intents: Tally[str] = Tally(dict.fromkeys(Intent, 0))
        intents.update(
            intent if (intent := summary_of(entry.kept).intent) in tuple(Intent) else "other"
            for entry in self._view.requests
        )
        name = "evictionrequest_controller_requester_intent"
        return _tallied(name, "EvictionRequests by intent; from the leader.", "intent", intents)


def _active_since(eviction: Eviction) -> datetime | None:
    states = {r.name: r.state for r in eviction.status.target_responders}
    starts = (
        report.start_time
        for report in eviction.status.responders
        if states.get(report.name) == ResponderState.ACTIVE
    )
    return next(starts, None)


_OUTCOMES: Final = {
    "": "active",
    str(ConditionType.TARGET_EVICTED): "evicted",
    str(ConditionType.FAILED): "failed",
}
"""How an Eviction has ended → its state."""


def _family(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(PREFIX + name, text, value=value)


def _tallied(name: str, text: str, label: str, tally: Tally[str]) -> Metric:
    family = GaugeMetricFamily(name, text, labels=(label,))
    for value, count in tally.items():
        family.add_metric((str(value),), count)
    return family
