"""The default evictor: the last responder, which calls ``pods/<name>/eviction``.

Pure, as every plan: what the API server said to the last call comes in as :class:`Attempts`. What a
restarted program has forgotten it reads from its last report.
Source: pkg/controller/imperativeevictionresponder of Kubernetes 1.38.0-beta.0.
"""

import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum, auto
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from cluster.key import Key
from controller.eviction.planning.claims import PodIsGone
from controller.eviction.planning.relevance import has_ended
from controller.eviction.planning.requesters import wants_eviction
from controller.eviction.planning.snapshot import Snapshot
from controller.eviction.planning.target import Target
from controller.eviction.planning.writes import EVICTIONS, Write
from rules.api import (
    API_VERSION,
    EVICTOR,
    MAX_MESSAGE,
    Eviction,
    PodReference,
    ResponderState,
    ResponderStatus,
)
from rules.request import STATUS, Operation, Request
from rules.states import CLOCK_SKEW, HEARTBEAT_SPACING
from rules.times import format_time

FIRST_BACKOFF: Final = timedelta(seconds=5)
LONGEST_BACKOFF: Final = timedelta(minutes=10)
"""Between two calls, doubling from the first to the longest; a longer Retry-After wins."""
NOT_YET_PAUSE: Final = timedelta(seconds=30)
"""Between two calls where admission says that it is at work itself. Our own choice: what it has
begun takes minutes, and it may ask for longer."""
HEARTBEAT_INTERVAL: Final = timedelta(minutes=3)
"""How often the evictor shows life while nothing changes."""
SWIFT: Final = timedelta(seconds=5)
"""A deletion that is over so soon after the evictor's start gets one report, at its end. Our own
choice: it saves a write for every pod that ends quickly."""
_MAX_DOUBLINGS: Final = 30
_REFUSED: Final = "Attempt {count} to evict the pod was refused: {words}"
_NOT_YET: Final = "Not yet, after attempt {count} to evict the pod: {words}"
_read_refused = re.compile(
    r"Attempt ([0-9]{1,9}) to evict the pod was refused: (.*)", re.ASCII | re.DOTALL
).fullmatch
_read_not_yet = re.compile(
    r"Not yet, after attempt ([0-9]{1,9}) to evict the pod: (.*)", re.ASCII | re.DOTALL
).fullmatch
_ACCEPTED: Final = "The API server has accepted the eviction of the pod."
_DELETING: Final = "The pod is being deleted; its grace period ends at {end}."
_DONE: Final = "The pod is gone."
_ENDED: Final = "The pod has ended."


class Answer(Enum):
    """What the API server has said to a call."""

    ACCEPTED = auto()
    """It deletes the pod."""
    REFUSED = auto()
    """A disruption budget, or somebody else, does not let the pod go."""
    NOT_YET = auto()
    """Admission takes care of the pod itself, as operators that move virtual machines do."""
    NONE = auto()
    """Nothing about the pod: it has too much to do, or the pod is gone or just being changed."""


_MESSAGES: Final = {
    Answer.ACCEPTED: _ACCEPTED,
    Answer.REFUSED: _REFUSED,
    Answer.NOT_YET: _NOT_YET,
}


@dataclass(frozen=True, slots=True)
class Attempts:
    """The calls so far."""

    count: int = 0
    last_time: datetime | None = None
    answer: Answer = Answer.ACCEPTED
    """What came of the last one."""
    words: str = ""
    """What the API server said to it, where it did not accept it."""
    retry_after: timedelta = timedelta()
    """For how long it does not want to be asked again."""

    def after(
        self, now: datetime, answer: Answer, words: str = "", retry_after: timedelta = timedelta()
    ) -> "Attempts":
        """What is known after a call at ``now``; one that came to nothing is no attempt."""
        count = self.count if answer is Answer.NONE else self.count + 1
        return Attempts(count, now, answer, words, retry_after)

    def left(self, now: datetime) -> timedelta:
        """How long to wait before the next one; zero or less: none.

        One that lies ahead was made by a clock that has been set back since, and says nothing.
        """
        if self.last_time is None or self.last_time > now + CLOCK_SKEW:
            return timedelta()
        doublings = min(max(self.count - 1, 0), _MAX_DOUBLINGS)
        backoff: timedelta = min(FIRST_BACKOFF * 2**doublings, LONGEST_BACKOFF)
        if self.answer is Answer.NOT_YET:
            backoff = min(backoff, NOT_YET_PAUSE)
        return max(backoff, self.retry_after) - (now - self.last_time)


class EvictorPlan(NamedTuple):
    """What to do, at most one of both, and when to look again."""

    calls: PodReference | None = None
    """The pod to evict; plan again with what came of it."""
    report: ResponderStatus | None = None
    """What to report."""
    requeue_after: timedelta | None = None
    claim: PodIsGone | None = None
    """What must be true if ``report`` is to be sent."""


def plan_evictor(
    key: Key, snapshot: Snapshot, now: datetime, attempts: Attempts | None
) -> EvictorPlan:
    """What the evictor does about the Eviction ``key`` at ``now``.

    ``attempts`` is what is remembered of this Eviction; None: nothing. Nothing is done unless it is
    the evictor's turn, and no pod is evicted that nobody wants gone any more.
    """
    eviction = snapshot.eviction(key)
    stored = evictor_turn(eviction)
    if eviction is None or stored is None or eviction.spec.target.pod is None:
        return EvictorPlan()
    reference = eviction.spec.target.pod
    target = Target.find(snapshot, key.namespace, reference)
    if target.pod is None or target.is_terminal:
        done = {"message": _DONE if target.pod is None else _ENDED, "completion_time": now}
        claim = PodIsGone(reference) if target.pod is None else None
        return EvictorPlan(report=_report(stored, now, **done), claim=claim)
    end = target.pod.metadata.deletion_timestamp
    if end is not None:
        return _wait_for_end(stored, end, now)
    if not any(map(wants_eviction, snapshot.requests_of(key.namespace, reference))):
        return EvictorPlan()
    attempts = attempts or remembered(eviction)
    left = attempts.left(now)
    if left <= timedelta():
        return EvictorPlan(calls=reference)
    return _wait_for_attempt(stored, attempts, left, now)


def evictor_turn(eviction: Eviction | None) -> ResponderStatus | None:
    """The evictor's entry, if it is Active and has work left."""
    if eviction is None or has_ended(eviction) or eviction.status.observed_generation is None:
        return None
    states = {r.name: r.state for r in eviction.status.target_responders}
    if states.get(EVICTOR) != ResponderState.ACTIVE:
        return None
    entries = (report for report in eviction.status.responders if report.name == EVICTOR)
    stored = next(entries, None)
    return stored if stored and stored.completion_time is None and stored.start_time else None


def remembered(eviction: Eviction) -> Attempts:
    """The attempts of an earlier run, as far as its last report shows them."""
    stored = next((r for r in eviction.status.responders if r.name == EVICTOR), None)
    if stored is None:
        return Attempts()
    for answer, read in ((Answer.REFUSED, _read_refused), (Answer.NOT_YET, _read_not_yet)):
        if found := read(stored.message or ""):
            return Attempts(int(found[1]), stored.heartbeat_time, answer, found[2])
    return Attempts()


def _wait_for_end(stored: ResponderStatus, end: datetime, now: datetime) -> EvictorPlan:
    """Somebody has deleted the pod; it has until ``end``."""
    swift = SWIFT - (now - (stored.start_time or now))
    if stored.heartbeat_time is None and swift > timedelta():
        return EvictorPlan(requeue_after=swift)
    # An end that has passed may not be announced any more.
    expected = end if end > now else stored.expected_completion_time
    message = _DELETING.format(end=format_time(end))
    report = _report(stored, now, message=message, expected_completion_time=expected)
    return _when_due(stored, report, now)


def _wait_for_attempt(
    stored: ResponderStatus, attempts: Attempts, left: timedelta, now: datetime
) -> EvictorPlan:
    if attempts.answer is Answer.NONE:
        return _show_life(stored, left, now)
    if not (attempts.words or stored.heartbeat_time):
        # Accepted just now; the watch is about to tell of the deletion.
        return EvictorPlan(requeue_after=left)
    message = _MESSAGES[attempts.answer].format(count=attempts.count, words=attempts.words)
    message = message[:MAX_MESSAGE]
    plan = _when_due(stored, _report(stored, now, message=message), now)
    return plan._replace(requeue_after=min(left, plan.requeue_after or left))


def _show_life(stored: ResponderStatus, left: timedelta, now: datetime) -> EvictorPlan:
    """There is nothing to tell; but who is silent for long is passed over."""
    heard = stored.heartbeat_time or stored.start_time or now
    until = HEARTBEAT_INTERVAL - (now - heard)
    if until > timedelta():
        return EvictorPlan(requeue_after=min(left, until))
    return EvictorPlan(report=_report(stored, now), requeue_after=left)


def _when_due(stored: ResponderStatus, report: ResponderStatus, now: datetime) -> EvictorPlan:
    """``report``, unless it says nothing new, or the last one was a moment ago."""
    since = now - stored.heartbeat_time if stored.heartbeat_time else HEARTBEAT_INTERVAL
    is_news = (report.message, report.expected_completion_time) != (
        stored.message,
        stored.expected_completion_time,
    )
    left = (HEARTBEAT_SPACING if is_news else HEARTBEAT_INTERVAL) - since
    if left > timedelta():
        return EvictorPlan(requeue_after=left)
    return EvictorPlan(report=report, requeue_after=HEARTBEAT_INTERVAL)


def _report(stored: ResponderStatus, now: datetime, **changes: Any) -> ResponderStatus:
    """``stored`` with ``changes`` and a sign of life."""
    start = stored.start_time or now
    present = max(now, start)  # the clock of who has set the start may be ahead
    if "completion_time" in changes:
        changes["completion_time"] = present
    heard = stored.heartbeat_time
    if heard is None or present - heard >= HEARTBEAT_SPACING:
        changes["heartbeat_time"] = present
    return replace(stored, **changes)


# --- the report, as it is sent and as it is judged ----------------------------------------------


def report_write(key: Key, report: ResponderStatus) -> Write:
    """Apply ``report``: everything that the evictor's field manager owns."""
    times = {
        "heartbeatTime": report.heartbeat_time,
        "expectedCompletionTime": report.expected_completion_time,
        "completionTime": report.completion_time,
    }
    entry: dict[str, Any] = {"name": report.name, "message": report.message}
    entry |= {name: format_time(time) for name, time in times.items() if time}
    document = {
        "apiVersion": API_VERSION,
        "kind": "Eviction",
        "metadata": {"name": key.name, "namespace": key.namespace},
        "status": {"responders": [entry]},
    }
    return Write(EVICTIONS, key, document, STATUS)


def report_request(
    key: Key, report: ResponderStatus, snapshot: Snapshot, now: datetime
) -> Request | None:
    """``report`` as the request that admission sees; None if there is no such Eviction."""
    stored = snapshot.eviction(key)
    if stored is None:
        return None
    responders = tuple(report if r.name == report.name else r for r in stored.status.responders)
    status = replace(stored.status, responders=responders)
    return Request(
        operation=Operation.UPDATE,
        subresource=STATUS,
        object=replace(stored, status=status),
        old_object=stored,
        name=key.name,
        namespace=key.namespace,
        now=now,
    )
