"""``completionTime`` must be the present when set, and not before the start.

"Present" is less than 30 seconds away from now, to either side.

Why: it hands the eviction over to the next responder at once.
Source: pkg/apis/lifecycle/validation, ``ValidateEvictionStatusResponder``.
Admitted: completionTime now
Refused: completionTime without startTime, or of five minutes ago
"""

from collections.abc import Iterator

from rules import states
from rules.api import Eviction
from rules.field import FieldError, invalid
from rules.rule import Context, Rule


def _check(new: Eviction, *, old: Eviction, context: Context) -> Iterator[FieldError]:
    for report in context.changeable_reports:
        value, stored = report.new.completion_time, report.stored.completion_time
        start, field = report.new.start_time, report.path.child("completionTime")
        if value is None or stored not in (None, value):
            continue  # set-once-fields judges every change of it
        if start is None:
            yield invalid(field, value, "may not be set before startTime is set")
        elif value < start:
            yield invalid(field, value, "may not be before startTime")
        elif stored is None and not states.is_present(value, context.now):
            yield invalid(field, value, states.present_detail(context.now))


RULE: Rule[Eviction] = Rule(name="completion-times", doc=__doc__, update_status=_check)
