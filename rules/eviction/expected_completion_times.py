"""``expectedCompletionTime`` must lie ahead: after the start, not in the past, within 10 years.

30 seconds of the past are granted for clocks that differ.

Why: requesters plan with it; an estimate that has passed already tells them nothing.
Source: pkg/apis/lifecycle/validation, ``ValidateEvictionStatusResponder``.
Admitted: expectedCompletionTime in ten minutes
Refused: expectedCompletionTime an hour ago, or without startTime
"""

from collections.abc import Iterator

from rules import states
from rules.api import Eviction
from rules.field import FieldError, invalid
from rules.reports import Report
from rules.rule import Context, Rule
from rules.times import format_time


def _check(new: Eviction, *, old: Eviction, context: Context) -> Iterator[FieldError]:
    for report in context.changeable_reports:
        if report.new.expected_completion_time != report.stored.expected_completion_time:
            yield from _judge(report, context)


def _judge(report: Report, context: Context) -> Iterator[FieldError]:
    field = report.path.child("expectedCompletionTime")
    value, start = report.new.expected_completion_time, report.new.start_time
    latest = context.now + states.MAX_EXPECTED_COMPLETION
    if value is None:
        return
    if start is None:
        yield invalid(field, value, "may not be set before startTime is set")
    elif value < start:
        yield invalid(field, value, "may not be before startTime")
    elif value < context.now - states.CLOCK_SKEW:
        yield invalid(field, value, f"may not be in the past (now is {format_time(context.now)})")
    elif value > latest:
        yield invalid(field, value, f"must be within 10 years, before {format_time(latest)}")


RULE: Rule[Eviction] = Rule(
    name="expected-completion-times",
    doc=__doc__,
    reads=("status.responders", "status.targetResponders"),
    judges=("status.responders.expectedCompletionTime",),
    update_status=_check,
)
