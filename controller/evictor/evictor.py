"""Runs the default evictor: plans, calls the eviction subresource, reports."""

import re
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final

import structlog

from cluster.failures import (
    Busy,
    BusySource,
    ClusterFailure,
    Conflict,
    Denied,
    Missing,
    Refused,
    ServerFailure,
    Unauthenticated,
)
from cluster.key import Key
from cluster.pauses import jittered
from cluster.recorder import Tell
from controller.eviction.ownership import EVICTOR_MANAGER
from controller.eviction.planning.occurrences import refused
from controller.eviction.planning.snapshot import Snapshot
from controller.eviction.routing import Item
from controller.eviction.verification import Verifier
from controller.eviction.view import View
from controller.eviction.writer import Writer
from controller.evictor.planning import (
    Answer,
    Attempts,
    EvictorPlan,
    evictor_turn,
    plan_evictor,
    remembered,
    report_request,
    report_write,
)
from controller.metrics import Metrics
from rules.api import Eviction, PodReference

_log = structlog.get_logger()
_budget = re.compile(r"[Tt]he disruption budget (\S+) ").search


class Evictor:
    """The responder ``imperative-eviction.k8s.io/evictor``."""

    def __init__(
        self,
        view: View,
        writer: Writer,
        verifier: Verifier,
        metrics: Metrics,
        tell: Tell,
        now: Callable[[], datetime],
    ) -> None:
        """``tell`` people what happens; ``now`` is the API server's time."""
        self._view = view
        self._writer = writer
        self._verifier = verifier
        self._metrics = metrics
        self._tell_people = tell
        self._now = now
        self._attempts: dict[str, Attempts] = {}
        """By the Eviction's UID."""

    def forget(self, uid: str) -> None:
        """The Eviction with that UID is over."""
        self._attempts.pop(uid, None)

    async def run(self, item: Item) -> timedelta | None:
        """Do what is to be done about the Eviction of ``item``; returns when to look again.

        Raises LateViewError, and what :meth:`controller.eviction.writer.Writer.apply` raises.
        """
        key, entry = item.key, self._view.evictions.get(item.key)
        if entry is None:
            return None
        eviction = entry.value
        if evictor_turn(eviction) is not None:
            # Once: later reports of the same attempt say nothing about when it was.
            self._attempts.setdefault(eviction.metadata.uid, remembered(eviction))
        snapshot = self._view.snapshot(key.namespace, eviction, {})
        plan = self._plan(key, eviction, snapshot)
        if plan.calls is not None:
            await self._call(key, eviction, plan.calls)
            plan = self._plan(key, eviction, snapshot)
        if plan.claim is not None:
            await self._verifier.prove(key.namespace, [plan.claim])
        if plan.report is not None:
            judged = report_request(key, plan.report, snapshot, self._now())
            await self._writer.apply(report_write(key, plan.report), judged, EVICTOR_MANAGER)
        return plan.requeue_after

    def _plan(self, key: Key, eviction: Eviction, snapshot: Snapshot) -> EvictorPlan:
        return plan_evictor(key, snapshot, self._now(), self._attempts.get(eviction.metadata.uid))

    async def _call(self, key: Key, eviction: Eviction, pod: PodReference) -> None:
        """Ask for the eviction, and remember what came of it.

        Raises ClusterFailure where there was no answer.
        """
        answer, words, retry_after = Answer.ACCEPTED, "", 0.0
        try:
            await self._writer.evict(Key(key.namespace, pod.name), pod.uid)
        except Unauthenticated:
            raise  # which says nothing about this pod
        except (Busy, Conflict, Denied, Missing, Refused, ServerFailure) as failure:
            answer, words = _answer(failure), _words(failure)
            if isinstance(failure, (Busy, ServerFailure)):
                retry_after = jittered(failure.retry_after or 0.0)
        uid = eviction.metadata.uid
        before = self._attempts.get(uid) or remembered(eviction)
        attempts = before.after(self._now(), answer, words, timedelta(seconds=retry_after))
        stored = self._view.evictions.get(key)
        if stored is not None and stored.uid == uid:  # else it was forgotten meanwhile
            self._attempts[uid] = attempts
        if answer is Answer.REFUSED:
            self._tell(key, eviction, attempts, is_first=before.answer is not Answer.REFUSED)

    def _tell(self, key: Key, eviction: Eviction, attempts: Attempts, *, is_first: bool) -> None:
        pod = eviction.spec.target.pod
        found = _budget(attempts.words)
        _log.warning(
            "the API server refuses to evict a pod",
            namespace=key.namespace,
            pod=pod.name if pod else None,
            eviction=key.name,
            attempt=attempts.count,
            budget=found[1] if found else None,
            reason=attempts.words,
        )
        if is_first:
            self._metrics.failed_evictions.inc()
        self._tell_people(eviction, refused(attempts.words))


def _answer(failure: ClusterFailure) -> Answer:
    """What a call that was not accepted means for the pod."""
    if isinstance(failure, Busy):
        return _BUSY[failure.source]
    return Answer.NONE if isinstance(failure, (Conflict, Missing)) else Answer.REFUSED


_BUSY: Final = {
    BusySource.BUDGET: Answer.REFUSED,
    BusySource.ADMISSION: Answer.NOT_YET,
    BusySource.SERVER: Answer.NONE,
}


def _words(failure: ClusterFailure) -> str:
    """What the API server said, with the names of the disruption budgets that refuse."""
    causes = failure.causes if isinstance(failure, Busy) else ()
    return " ".join((str(failure), *causes))
