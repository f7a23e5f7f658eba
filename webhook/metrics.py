"""What the server counts, in memory that all of its processes share, and how Prometheus reads it.

Why not prometheus_client's own counters: across processes they need a directory of files that must
exist before the library is imported, and they are slower. Every label value is known beforehand, so
each worker has a fixed row of doubles in one anonymous shared mapping. Only that worker writes the
row (a store of eight aligned bytes is never torn), whoever answers /metrics adds the rows up, and
the successor of a crashed worker goes on counting where it stopped.
"""

import mmap
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from itertools import accumulate, chain, product
from typing import Final, TypeAlias

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from rules.catalog import GUARDS, RULES
from rules.decode import SHAPES
from rules.evaluate import Verdict
from rules.mutate import MUTATIONS, Revision
from rules.request import STATUS, Operation
from rules.rule import Enforcement
from webhook.review import Review, decision, plural

BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper bounds in seconds."""
STATUSES: Final = (400, 404, 405, 408, 413, 415, 500)
"""The HTTP statuses of requests that got no verdict."""

VALIDATING: Final = "validating"
MUTATING: Final = "mutating"
Labels: TypeAlias = tuple[str, str, str, str, str, str]

_LABELS: Final = ("webhook", "operation", "resource", "subresource", "decision", "dry_run")
# Stands for everything that isn't ours: no caller can make up label values.
_OTHER: Final = "other"
_RESOURCES: Final = frozenset(plural(kind) for _, _, kind in SHAPES)
_SUBRESOURCES: Final = ("", STATUS)
_WRITES: Final = (
    tuple(operation.value for operation in Operation),
    (*sorted(_RESOURCES), _OTHER),
    (*_SUBRESOURCES, _OTHER),
)
_DRY_RUN: Final = ("false", "true")
_VALIDATED: Final = product((VALIDATING,), *_WRITES, ("allow", "warn", "deny"), _DRY_RUN)
_MUTATED: Final = product((MUTATING,), *_WRITES, ("allow", "mutate"), _DRY_RUN)
_FAILED: Final[Labels] = ("", "", "", "", "error", "false")
_FACT_SOURCES: Final = ("memory", "cluster", "failed")
_VIOLATIONS: Final = tuple(product(RULES, (Enforcement.DENY, Enforcement.WARN, Enforcement.AUDIT)))


# For each combination of labels: requests, seconds in sum, and the requests of each bucket.
_COUNT: Final = 0
_SUM: Final = 1
_FIRST_BUCKET: Final = 2
_PER_REQUEST: Final = _FIRST_BUCKET + len(BUCKETS) + 1
_BOUNDS: Final = (*map(str, BUCKETS), "+Inf")


class _Layout:
    """Where each number stands in a row, counted in doubles."""

    def __init__(self) -> None:
        self.size = 0
        self.requests: dict[Labels, int] = {
            labels: self._take(_PER_REQUEST) for labels in chain(_VALIDATED, _MUTATED)
        }
        self.violations = {labels: self._take() for labels in _VIOLATIONS}
        self.mutations = {name: self._take() for name in MUTATIONS}
        self.errors = {status: self._take() for status in STATUSES}
        self.shed = self._take()
        self.reload_failures = self._take()
        self.facts = {source: self._take() for source in _FACT_SOURCES}
        self.unanswered = {name: self._take() for name in (*GUARDS, *MUTATIONS)}
        self.starts = self._take()
        self.waiting = self._take()
        self.connections = self._take()
        self.not_before = self._take()
        self.not_after = self._take()
        self.leaf = self._take()
        self.alive = self._take()
        self.knows_time = self._take()
        self.clock_ahead = self._take()

    def _take(self, count: int = 1) -> int:
        start = self.size
        self.size += count
        return start


_AT: Final = _Layout()
_OF_A_PROCESS: Final = (
    *(_AT.waiting, _AT.connections, _AT.alive),
    *(_AT.not_before, _AT.not_after, _AT.leaf),
    *(_AT.knows_time, _AT.clock_ahead),
)
"""What ends with the process; the rest is counted on by its successor."""
_BYTES: Final = 8


class Row:
    """The numbers of one worker, for the worker itself to write."""

    def __init__(self, cells: "memoryview[float]") -> None:
        self._cells = cells

    def start(self) -> None:
        """A process takes this row over."""
        self._cells[_AT.starts] += 1

    def stop(self) -> None:
        """Show that no process has this row."""
        for place in _OF_A_PROCESS:
            self._cells[place] = 0

    def judged(self, review: Review, verdict: Verdict, seconds: float) -> None:
        """Count a request that got ``verdict`` after ``seconds``."""
        self._answered(VALIDATING, review, decision(verdict), seconds)
        for violation in verdict.violations:
            self._cells[_AT.violations[violation.rule, violation.enforcement]] += 1
        for guard in verdict.unanswered:
            self._cells[_AT.unanswered[guard]] += 1

    def revised(self, review: Review, revision: Revision, seconds: float) -> None:
        """Count a request that got ``revision`` after ``seconds``."""
        self._answered(MUTATING, review, "mutate" if revision.steps else "allow", seconds)
        for made in revision.made:
            self._cells[_AT.mutations[made.mutation]] += 1
        for name in revision.unanswered:
            self._cells[_AT.unanswered[name]] += 1

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
        start = _AT.requests[labels]
        cells = self._cells
        cells[start + _COUNT] += 1
        cells[start + _SUM] += seconds
        cells[start + _FIRST_BUCKET + bisect_left(BUCKETS, seconds)] += 1

    def failed(self, status: int) -> None:
        """Count a request that got the HTTP ``status`` instead of a verdict."""
        self._cells[_AT.errors[status]] += 1

    def shed(self) -> None:
        """Count a request that was refused because too many were waiting; it failed, too."""
        self._cells[_AT.shed] += 1

    def recalled(self, count: int) -> None:
        """Count facts that were remembered."""
        self._cells[_AT.facts["memory"]] += count

    def asked(self, *, failed: bool) -> None:
        """Count a question to the cluster, and whether it ``failed``."""
        self._cells[_AT.facts["failed" if failed else "cluster"]] += 1

    def reload_failed(self) -> None:
        """Count a new certificate that could not be used."""
        self._cells[_AT.reload_failures] += 1

    def serves(self, leaf: int, not_before: datetime, not_after: datetime) -> None:
        """Show which certificate new connections get (a number of its), and its validity."""
        self._cells[_AT.leaf] = leaf
        self._cells[_AT.not_before] = not_before.timestamp()
        self._cells[_AT.not_after] = not_after.timestamp()

    def knows_time(self, ahead: timedelta = timedelta()) -> None:
        """Show that the time to judge by is known, and how far the machine's clock is ahead."""
        self._cells[_AT.knows_time] = 1
        self._cells[_AT.clock_ahead] = ahead.total_seconds()

    def show(self, *, alive: float, waiting: int, connections: int) -> None:
        """Show what the worker is doing, at the instant ``alive`` of the monotonic clock."""
        self._cells[_AT.alive] = alive
        self._cells[_AT.waiting] = waiting
        self._cells[_AT.connections] = connections


class Board(Collector):
    """Every worker's row, and whether the server as a whole is going down.

    Create it before the workers are forked: they inherit the memory.
    """

    def __init__(self, workers: int) -> None:
        self.workers = workers
        memory = mmap.mmap(-1, (workers * _AT.size + 1) * _BYTES)
        self._cells = memoryview(memory).cast("d")

    def row(self, worker: int) -> Row:
        """The row of ``worker``, counted from 0."""
        return Row(self._cells[worker * _AT.size : (worker + 1) * _AT.size])

    @property
    def draining(self) -> bool:
        """Whether the server has been told to end."""
        return bool(self._cells[-1])

    def drain(self) -> None:
        """Tell every process that the server is going down."""
        self._cells[-1] = 1

    def alive(self) -> list[float]:
        """When each worker last showed itself alive (monotonic clock); 0 for never."""
        return self._each(_AT.alive)

    def knowing(self) -> list[bool]:
        """Whether each worker knows the time to judge by."""
        return [bool(known) for known in self._each(_AT.knows_time)]

    def validity(self) -> list[tuple[float, float]]:
        """From when to when each worker's certificate is valid (seconds since 1970); 0 for none."""
        return list(zip(self._each(_AT.not_before), self._each(_AT.not_after), strict=True))

    def leaves(self) -> set[float]:
        """The numbers of the certificates that workers hand out."""
        return set(filter(None, self._each(_AT.leaf)))

    def collect(self) -> Iterator[Metric]:
        """The numbers of all workers together, for Prometheus."""
        yield from self._requests()
        yield self._labelled(
            "violations", "Broken rules.", ("rule", "enforcement"), _AT.violations.items()
        )
        mutations = (((name,), place) for name, place in _AT.mutations.items())
        yield self._labelled("mutations", "Changes to objects.", ("mutation",), mutations)
        unanswered = (((name,), place) for name, place in _AT.unanswered.items())
        yield self._labelled(
            "guards_unanswered",
            "Guards and mutations left out, for want of an answer.",
            ("rule",),
            unanswered,
        )
        facts = (((source,), place) for source, place in _AT.facts.items())
        yield self._labelled(
            "facts", "Answers to the questions of guards and mutations.", ("source",), facts
        )
        errors = (((str(status),), place) for status, place in _AT.errors.items())
        yield self._labelled("errors", "Requests without a verdict.", ("code",), errors)
        for name, text, value in (
            (
                "shed",
                "Requests refused because too many were waiting.",
                self._sum(_AT.shed),
            ),
            ("worker_starts", "Started worker processes.", self._sum(_AT.starts)),
            (
                # Every worker meets the same files.
                "certificate_reload_failures",
                "New certificates that could not be used.",
                max(self._each(_AT.reload_failures)),
            ),
        ):
            yield CounterMetricFamily(_PREFIX + name, text, value=value)
        for name, text, place in (
            (
                "in_flight",
                "Requests that wait for their bodies, or for an answer of the cluster.",
                _AT.waiting,
            ),
            ("connections", "Open connections.", _AT.connections),
        ):
            yield GaugeMetricFamily(_PREFIX + name, text, value=self._sum(place))
        yield GaugeMetricFamily(
            f"{_PREFIX}clock_ahead_seconds",
            "How far the machine's clock is ahead of the API server's, whose time is used.",
            value=max(self._each(_AT.clock_ahead), key=abs),
        )
        # Workers have different ones for a moment; the worst that a client can meet counts.
        begins, ends = (
            list(filter(None, self._each(at))) for at in (_AT.not_before, _AT.not_after)
        )
        for name, text, value in (
            ("before", "From when on the certificate is valid", max(begins, default=0)),
            ("after", "When the certificate expires", min(ends, default=0)),
        ):
            yield GaugeMetricFamily(
                f"{_PREFIX}certificate_not_{name}_timestamp_seconds",
                f"{text} that new connections get (seconds since 1970).",
                value=value,
            )

    def _requests(self) -> Iterator[Metric]:
        requests = CounterMetricFamily(f"{_PREFIX}requests", "Requests.", labels=_LABELS)
        durations = HistogramMetricFamily(
            f"{_PREFIX}request_duration_seconds",
            "From the complete header to the answer.",
            labels=_LABELS,
        )
        for labels, start in _AT.requests.items():
            if total := self._sum(start + _COUNT):
                requests.add_metric(labels, total)
                first = start + _FIRST_BUCKET
                counts = (self._sum(first + place) for place in range(len(_BOUNDS)))
                buckets = list(zip(_BOUNDS, accumulate(counts), strict=True))
                durations.add_metric(labels, buckets, self._sum(start + _SUM))
        requests.add_metric(_FAILED, sum(map(self._sum, _AT.errors.values())))
        yield requests
        yield durations

    def _labelled(
        self,
        name: str,
        text: str,
        names: tuple[str, ...],
        places: Iterable[tuple[tuple[str, ...], int]],
    ) -> Metric:
        family = CounterMetricFamily(_PREFIX + name, text, labels=names)
        for labels, place in places:
            if total := self._sum(place):
                family.add_metric(labels, total)
        return family

    def _each(self, place: int) -> list[float]:
        return [self._cells[worker * _AT.size + place] for worker in range(self.workers)]

    def _sum(self, place: int) -> float:
        return sum(self._each(place))


_PREFIX: Final = "usher_webhook_"
