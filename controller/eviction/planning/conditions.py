"""The two conditions of an eviction, in every combination that the controller writes.

Source: pkg/controller/evictionrequest of Kubernetes 1.38.0-beta.0. The messages are part of what
the vectors judge.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from rules.api import Condition, ConditionStatus, ConditionType
from rules.states import condition_of
from rules.times import ZERO

EVICTION_INVALID: Final = "EvictionInvalid"
"""Why Failed is True where there is nothing to be done at all; final for an EvictionRequest too."""
DEADLINE_EXCEEDED: Final = "DeadlineExceeded"
"""Why Failed is True after an overall deadline. Our own: the reference has none."""


class Finding(NamedTuple):
    """A condition without its type and its time."""

    status: str
    reason: str
    message: str = ""


class Outcome(NamedTuple):
    """What both conditions say."""

    target_evicted: Finding
    failed: Finding


def awaiting(target_evicted: str = "", failed: str = "") -> Outcome:
    """The eviction is under way; the arguments are messages."""
    return Outcome(
        Finding(ConditionStatus.FALSE, "AwaitingEviction", target_evicted),
        Finding(ConditionStatus.FALSE, "AwaitingEviction", failed),
    )


def _succeeded(reason: str, message: str) -> Outcome:
    return Outcome(
        Finding(ConditionStatus.TRUE, reason, message),
        Finding(ConditionStatus.FALSE, "Succeeded"),
    )


def _failed(reason: str, message: str) -> Outcome:
    return Outcome(
        Finding(ConditionStatus.FALSE, "EvictionFailed"),
        Finding(ConditionStatus.TRUE, reason, message),
    )


def invalid(message: str) -> Outcome:
    """There is nothing to evict, or it can't be evicted."""
    return _failed(EVICTION_INVALID, message)


def overdue(deadline: timedelta) -> Outcome:
    """The eviction has not ended within ``deadline``."""
    seconds = f"{deadline.total_seconds():g}"
    return _failed(
        DEADLINE_EXCEEDED, f"The eviction has not ended within {seconds} s of its creation."
    )


POD_DELETED: Final = _succeeded("PodDeleted", "Target pod has been deleted.")
POD_TERMINAL: Final = _succeeded("PodTerminal", "Pod has reached terminal state.")
CANCELED: Final = _failed("CanceledDueToNoRequesters", "No active requesters with eviction intent.")
NO_FURTHER_RESPONDER: Final = _failed(
    "NoFurtherResponder", "All responders have completed without evicting the target."
)
AWAITING: Final = awaiting()
AWAITING_REPORT: Final = awaiting(
    "Target is evicted, but waiting for the last active responder update."
)
"""The pod is gone or terminal, and the Active responder has a little time left to say so."""
AWAITING_TARGET: Final = awaiting(*["Waiting for the target to appear."] * 2)
AWAITING_EVICTION: Final = awaiting(*["waiting for an Eviction to report on progress"] * 2)


def copied(conditions: Iterable[Condition]) -> Outcome:
    """What the ``conditions`` of an Eviction say; what it has not said yet is awaited."""
    conditions = tuple(conditions)
    return Outcome(
        _finding(conditions, ConditionType.TARGET_EVICTED) or AWAITING_EVICTION.target_evicted,
        _finding(conditions, ConditionType.FAILED) or AWAITING_EVICTION.failed,
    )


def _finding(conditions: Iterable[Condition], type_: ConditionType) -> Finding | None:
    condition = condition_of(conditions, type_)
    if condition is None:
        return None
    return Finding(condition.status, condition.reason, condition.message)


def settled(
    outcome: Outcome, stored: Iterable[Condition], now: datetime
) -> tuple[Condition, Condition]:
    """``outcome`` as conditions; their time moves only where the status differs from ``stored``."""
    stored = tuple(stored)
    return (
        _settle(ConditionType.FAILED, outcome.failed, stored, now),
        _settle(ConditionType.TARGET_EVICTED, outcome.target_evicted, stored, now),
    )


def _settle(
    type_: ConditionType, finding: Finding, stored: Iterable[Condition], now: datetime
) -> Condition:
    time: datetime | None = now
    before = condition_of(stored, type_)
    if before and before.status == finding.status and before.last_transition_time not in _UNSET:
        time = before.last_transition_time
    return Condition(
        type=type_,
        status=finding.status,
        last_transition_time=time,
        reason=finding.reason,
        message=finding.message,
    )


_UNSET: Final = (None, ZERO)


def are_changed(planned: Iterable[Condition], stored: Iterable[Condition]) -> bool:
    """Whether ``planned`` says anything that ``stored`` does not; a time alone says nothing."""
    stored = tuple(stored)
    return any(
        _finding((condition,), ConditionType(condition.type))
        != _finding(stored, ConditionType(condition.type))
        for condition in planned
    )
