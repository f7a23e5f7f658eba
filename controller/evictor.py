"""Runs the default evictor: plans, calls the eviction subresource, reports."""

import re
from collections.abc import Callable
from datetime import datetime, timedelta

import structlog

from cluster.failures import (
    Busy,
    ClusterFailure,
    Conflict,
    Denied,
    Missing,
    Refused,
    ServerFailure,
)
from cluster.key import Key
from controller.events import Tell
from controller.ownership import EVICTOR_MANAGER
from controller.planning.evictor import (
    Attempts,
    EvictorPlan,
    plan_evictor,
    remembered,
    report_request,
    report_write,
)
from controller.planning.occurrences import refused
from controller.planning.snapshot import Snapshot
from controller.routing import Item
from controller.verification import Verifier
from controller.view import View
from controller.writer import Writer
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
        tell: Tell,
        now: Callable[[], datetime],
    ) -> None:
        """``tell`` people what happens; ``now`` is the API server's time."""
        self._view = view
        self._writer = writer
        self._verifier = verifier
        self._tell_people = tell
        self._now = now
        self._attempts: dict[str, Attempts] = {}
        """By the Eviction's UID."""

    def forget(self, uid: str) -> None:
        """The Eviction with that UID is over."""
        self._attempts.pop(uid, None)

    async def run(self, item: Item) -> timedelta | None:
        """Do what is to be done about the Eviction of ``item``; returns when to look again.

        Raises LateViewError, and what :meth:`controller.writer.Writer.apply` raises.
        """
        key, entry = item.key, self._view.evictions.get(item.key)
        if entry is None:
            return None
        eviction = entry.value
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
        """Ask for the eviction, and remember what came of it."""
        refusal, retry_after = "", 0.0
        try:
            await self._writer.evict(Key(key.namespace, pod.name), pod.uid)
        except (Missing, Conflict):
            pass  # gone, or replaced: the watch is about to tell
        except (Busy, Denied, Refused, ServerFailure) as failure:
            refusal = _refusal(failure)
            if isinstance(failure, (Busy, ServerFailure)):
                retry_after = failure.retry_after or 0.0
        uid = eviction.metadata.uid
        attempts = self._attempts.get(uid) or remembered(eviction)
        attempts = attempts.after(self._now(), refusal, timedelta(seconds=retry_after))
        self._attempts[uid] = attempts
        if refusal:
            self._tell(key, eviction, attempts)

    def _tell(self, key: Key, eviction: Eviction, attempts: Attempts) -> None:
        pod = eviction.spec.target.pod
        found = _budget(attempts.refusal)
        _log.warning(
            "the API server refuses to evict a pod",
            namespace=key.namespace,
            pod=pod.name if pod else None,
            eviction=key.name,
            attempt=attempts.count,
            budget=found[1] if found else None,
            reason=attempts.refusal,
        )
        self._tell_people(eviction, refused(attempts.refusal))


def _refusal(failure: ClusterFailure) -> str:
    """What the API server said, with the names of the disruption budgets that refuse."""
    causes = failure.causes if isinstance(failure, Busy) else ()
    return " ".join((str(failure), *causes))
