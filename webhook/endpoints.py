"""What is served: one endpoint for verdicts, one for changes. Both take reviews, and never wait.

An endpoint reads a review once, says what has to be known, and decides when it is. Who gets the
answers, and when to give up, is the business of :mod:`webhook.handler`.
"""

from collections.abc import Callable, Mapping
from time import perf_counter
from typing import Any, Final, NamedTuple, TypeAlias

import structlog

from rules.evaluate import ADMITTED, Inquiry, Policy, Verdict
from rules.facts import Facts, Question
from rules.mutate import UNCHANGED, Draft, MutationPolicy, Revision
from webhook.metrics import Metrics
from webhook.review import Review, decision, encode, encode_revision, outcome

_log = structlog.get_logger()

_MAX_LOGGED: Final = 10
"""Violations in a log line; the answer has them all. Our own choice."""


class Pending(NamedTuple):
    """A request on the way to its answer."""

    questions: Mapping[Question, bool]
    """What has to be known; True marks what must be had."""
    decide: Callable[[Facts], bytes]
    """Gives the body of the answer."""


class Validating:
    """Answers with verdicts."""

    def __init__(self, policy: Policy, metrics: Metrics) -> None:
        self._policy = policy
        self._metrics = metrics

    def take(self, review: Review, began: float) -> Pending:
        """Read ``review``, whose header was complete at ``began`` (``perf_counter``)."""
        if review.request is None:
            return Pending({}, lambda _: self._decide(review, ADMITTED, began))
        inquiry = Inquiry(review.request, self._policy)
        return Pending(
            inquiry.questions(), lambda facts: self._decide(review, inquiry.verdict(facts), began)
        )

    def _decide(self, review: Review, verdict: Verdict, began: float) -> bytes:
        answer = encode(review, verdict)
        self._metrics.judged(review, verdict, perf_counter() - began)
        if verdict.violations:
            _log.info(**_verdict_line(review, verdict))
        elif review.request is None:
            _log.debug("not ours", uid=review.uid, kind=review.kind, group=review.group)
        return answer


class Mutating:
    """Answers with changes; refuses nothing."""

    def __init__(self, policy: MutationPolicy, metrics: Metrics) -> None:
        self._policy = policy
        self._metrics = metrics

    def take(self, review: Review, began: float) -> Pending:
        """Read ``review``, whose header was complete at ``began`` (``perf_counter``)."""
        if review.request is None:
            return Pending({}, lambda _: self._decide(review, UNCHANGED, began))
        draft = Draft(review.request, review.document(), self._policy)
        return Pending(
            draft.questions(), lambda facts: self._decide(review, draft.revision(facts), began)
        )

    def _decide(self, review: Review, revision: Revision, began: float) -> bytes:
        answer = encode_revision(review, revision)
        self._metrics.revised(review, revision, perf_counter() - began)
        if revision.made:
            _log.info(
                "mutated",
                mutations=[made.mutation for made in revision.made],
                changes=[made.note for made in revision.made],
                **_about(review),
            )
        return answer


Endpoint: TypeAlias = Validating | Mutating


def _about(review: Review) -> dict[str, Any]:
    """Whose write it is, and of which object."""
    return {
        "uid": review.uid,
        "user": review.user.name,
        "operation": review.operation.value,
        "group": review.group,
        "resource": review.resource,
        "subresource": review.subresource,
        "namespace": review.namespace,
        "name": review.name,
        "dry_run": review.dry_run,
    }


def _verdict_line(review: Review, verdict: Verdict) -> dict[str, Any]:
    """The log line of a request that broke rules."""
    decided = decision(verdict)
    shown = verdict.denied or verdict.violations
    return {
        "event": {"deny": "denied", "warn": "warned"}.get(decided, "audited"),
        "rules": list(dict.fromkeys(violation.rule for violation in shown)),
        **_about(review),
        "reason": outcome(shown).value,
        "violations": len(shown),
        "causes": [
            {"rule": each.rule, "field": each.error.field, "message": each.error.message}
            for each in shown[:_MAX_LOGGED]
        ],
    }
