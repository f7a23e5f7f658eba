"""``heartbeatTime`` must be the present when set, not before the start, and may not go back.

"Present" is less than 30 seconds away from now, to either side.

Why: the 20 minutes of allowed silence count from it.
Source: pkg/apis/lifecycle/validation, ``ValidateEvictionStatusResponder``.
Admitted: heartbeatTime now, later than the last one
Refused: heartbeatTime without startTime, an earlier one, or one of five minutes ago
"""

from collections.abc import Iterator

from rules import states
from rules.api import Eviction
from rules.field import FieldError, invalid, required
from rules.reports import Report
from rules.rule import Context, Rule


def _check(new: Eviction, *, old: Eviction, context: Context) -> Iterator[FieldError]:
    for report in context.changeable_reports:
        if report.new.heartbeat_time != report.stored.heartbeat_time:
            yield from _judge(report, context)


def _judge(report: Report, context: Context) -> Iterator[FieldError]:
    field = report.path.child("heartbeatTime")
    value, stored = report.new.heartbeat_time, report.stored.heartbeat_time
    start = report.new.start_time
    if value is None:
        yield required(field, "may not be removed once set")
    elif start is None:
        yield invalid(field, value, "may not be set before startTime is set")
    elif stored is not None and value < stored:
        yield invalid(field, value, "may not be decreased")
    elif value < start:
        yield invalid(field, value, "may not be before startTime")
    elif not states.is_present(value, context.now):
        yield invalid(field, value, states.present_detail(context.now))


RULE: Rule[Eviction] = Rule(
    name="heartbeat-times",
    doc=__doc__,
    reads=("status.responders", "status.targetResponders"),
    judges=("status.responders.heartbeatTime",),
    update_status=_check,
)
