"""What the server counts, and how Prometheus reads it.

No caller can make up a label value: whatever is not Usher's own is counted as ``other``.
"""

from importlib.metadata import version
from platform import python_version
from typing import Final

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
)

from rules.decode import SHAPES
from rules.evaluate import Verdict
from rules.mutate import Revision
from rules.request import STATUS
from webhook.bounds import Bounds
from webhook.review import Review, decision, plural
from webhook.tls import ServingCertificate

BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper bounds in seconds."""
VALIDATING: Final = "validating"
MUTATING: Final = "mutating"

_PREFIX: Final = "usher_webhook_"
_LABELS: Final = ("webhook", "operation", "resource", "subresource", "decision", "dry_run")
_FAILED: Final = ("", "", "", "", "error", "false")
_OTHER: Final = "other"
_RESOURCES: Final = frozenset(plural(kind) for _, _, kind in SHAPES)
_SUBRESOURCES: Final = ("", STATUS)


class Metrics:
    """Counters of one process, and the registry that shows them."""

    def __init__(self) -> None:
        # When a counter began says nothing that anybody asks.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = CollectorRegistry()
        self._requests = self._counter("requests", "Requests.", *_LABELS)
        self._durations = Histogram(
            f"{_PREFIX}request_duration_seconds",
            "From the complete header to the answer.",
            _LABELS,
            buckets=BUCKETS,
            registry=self.registry,
        )
        self._answers: dict[tuple[str, ...], tuple[Counter, Histogram]] = {}
        """Labels → what has them: to look these up takes longer than to count."""
        self._violations = self._counter("violations", "Broken rules.", "rule", "enforcement")
        self._mutations = self._counter("mutations", "Changes to objects.", "mutation")
        self._unanswered = self._counter(
            "guards_unanswered", "Guards and mutations left out, for want of an answer.", "rule"
        )
        facts = self._counter(
            "facts", "Answers to the questions of guards and mutations.", "source"
        )
        self._remembered, self._asked, self._unheard = (
            facts.labels(source) for source in ("memory", "cluster", "failed")
        )
        self._errors = self._counter("errors", "Requests without a verdict.", "code")
        self.shed = self._counter("shed", "Requests refused because too many were waiting.")
        self.reload_failures = self._counter(
            "certificate_reload_failures", "New certificates that could not be used."
        )
        self._add_gauges()

    def _add_gauges(self) -> None:
        self._in_flight = self._gauge(
            "in_flight", "Requests that wait for their bodies, or for an answer of the cluster."
        )
        self._connections = self._gauge("connections", "Open connections.")
        self.clock_ahead = self._gauge(
            "clock_ahead_seconds",
            "How far the machine's clock is ahead of the API server's, whose time is used.",
        )
        self._not_before = self._gauge(
            "certificate_not_before_timestamp_seconds",
            "From when on the certificate is valid that new connections get (seconds since 1970).",
        )
        self._not_after = self._gauge(
            "certificate_not_after_timestamp_seconds",
            "When the certificate expires that new connections get (seconds since 1970).",
        )
        build = Gauge(
            "usher_build_info", "1; what runs.", ("version", "python"), registry=self.registry
        )
        build.labels(version("usher"), python_version()).set(1)
        ProcessCollector(registry=self.registry)

    def watch(self, bounds: Bounds, certificate: ServingCertificate) -> None:
        """Look at ``bounds`` and ``certificate`` whenever somebody reads."""
        self._in_flight.set_function(lambda: bounds.waiting)
        self._connections.set_function(lambda: len(bounds.open))
        self._not_before.set_function(lambda: certificate.not_before.timestamp())  # noqa: PLW0108
        self._not_after.set_function(lambda: certificate.not_after.timestamp())  # noqa: PLW0108

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(_PREFIX + name, text, labels, registry=self.registry)

    def _gauge(self, name: str, text: str) -> Gauge:
        return Gauge(_PREFIX + name, text, registry=self.registry)

    def judged(self, review: Review, verdict: Verdict, seconds: float) -> None:
        """Count a request that got ``verdict`` after ``seconds``."""
        self._answered(VALIDATING, review, decision(verdict), seconds)
        for violation in verdict.violations:
            self._violations.labels(violation.rule, violation.enforcement).inc()
        for guard in verdict.unanswered:
            self._unanswered.labels(guard).inc()

    def revised(self, review: Review, revision: Revision, seconds: float) -> None:
        """Count a request that got ``revision`` after ``seconds``."""
        self._answered(MUTATING, review, "mutate" if revision.steps else "allow", seconds)
        for made in revision.made:
            self._mutations.labels(made.mutation).inc()
        for name in revision.unanswered:
            self._unanswered.labels(name).inc()

    def _answered(self, webhook: str, review: Review, decided: str, seconds: float) -> None:
        resource, subresource = review.resource, review.subresource
        labels = (
            webhook,
            review.operation.value,
            resource if resource in _RESOURCES else _OTHER,
            subresource if subresource in _SUBRESOURCES else _OTHER,
            decided,
            "true" if review.dry_run else "false",
        )
        counted = self._answers.get(labels)
        if counted is None:
            counted = self._requests.labels(*labels), self._durations.labels(*labels)
            self._answers[labels] = counted
        requests, durations = counted
        requests.inc()
        durations.observe(seconds)

    def failed(self, status: int) -> None:
        """Count a request that got the HTTP ``status`` instead of a verdict."""
        self._errors.labels(str(status)).inc()
        self._requests.labels(*_FAILED).inc()

    def recalled(self, count: int) -> None:
        """Count facts that were remembered."""
        self._remembered.inc(count)

    def asked(self, *, failed: bool) -> None:
        """Count a question to the cluster, and whether it ``failed``."""
        (self._unheard if failed else self._asked).inc()
