"""Conditions must be well formed: a unique type, a status, a reason and a transition time.

Why: requesters wait for conditions, and generic tools read them. Unlike most rules this one judges
unchanged conditions too, as Kubernetes does.
Source: apimachinery pkg/apis/meta/v1/validation, ``ValidateConditions``.
Admitted: {type: TargetEvicted, status: "False", reason: AwaitingEviction, lastTransitionTime: …}
Refused: {type: TargetEvicted, status: "false", reason: "awaiting eviction"}
"""

from collections.abc import Iterator
from typing import Final

from rules import formats
from rules.api import Condition, ConditionStatus, Eviction, EvictionRequest
from rules.constraints import repeated
from rules.field import FieldError, Path, duplicate, invalid, not_supported, required, too_long
from rules.rule import Context, Rule
from rules.times import ZERO

_FIELD = Path("status.conditions")
_STATUSES: Final = tuple(status.value for status in ConditionStatus)
MAX_REASON: Final = 1024
"""In bytes (``maxReasonLen``)."""
MAX_MESSAGE_BYTES: Final = 32 * 1024
"""In bytes (``maxMessageLen``)."""


def _check(
    new: Eviction | EvictionRequest, *, old: Eviction | EvictionRequest, context: Context
) -> Iterator[FieldError]:
    conditions = new.status.conditions
    for position in repeated([condition.type for condition in conditions]):
        yield duplicate(_FIELD.at(position), conditions[position].type)
    for position, condition in enumerate(conditions):
        yield from _judge(position, condition)


def _judge(position: int, condition: Condition) -> Iterator[FieldError]:
    if not condition.type:
        yield required(_place(position, "type"))
    elif not formats.is_qualified_name(condition.type):
        yield invalid(_place(position, "type"), condition.type, formats.QUALIFIED_NAME_HELP)
    if not condition.status:
        yield required(_place(position, "status"))
    elif condition.status not in _STATUSES:
        yield not_supported(_place(position, "status"), condition.status, _STATUSES)
    if condition.observed_generation < 0:
        field = _place(position, "observedGeneration")
        yield invalid(field, condition.observed_generation, "must be greater than or equal to 0")
    if condition.last_transition_time in (None, ZERO):
        yield required(_place(position, "lastTransitionTime"))
    if not condition.reason:
        yield required(_place(position, "reason"))
    else:
        yield from _judge_reason(position, condition.reason)
    if not formats.fits(condition.message, MAX_MESSAGE_BYTES):
        yield too_long(_place(position, "message"), MAX_MESSAGE_BYTES, "bytes")


def _judge_reason(position: int, reason: str) -> Iterator[FieldError]:
    if not formats.is_condition_reason(reason):
        yield invalid(_place(position, "reason"), reason, formats.CONDITION_REASON_HELP)
    if not formats.fits(reason, MAX_REASON):
        yield too_long(_place(position, "reason"), MAX_REASON, "bytes")


def _place(position: int, field: str) -> Path:
    return _FIELD.at(position).child(field)


RULE: Rule[Eviction | EvictionRequest] = Rule(
    name="well-formed-conditions",
    doc=__doc__,
    reads=("status.conditions",),
    standing=True,
    update_status=_check,
)
