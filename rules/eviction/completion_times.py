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
        if value is None or stored not in (None, value):
            continue  # set-once-fields judges every change of it
        start = report.new.start_time
        if start is None:
            problem = "may not be set before startTime is set"
        elif value < start:
            problem = "may not be before startTime"
        elif stored is None and not states.is_present(value, context.now):
            problem = states.present_detail(context.now)
        else:
            continue
        yield invalid(report.path.child("completionTime"), value, problem)


RULE: Rule[Eviction] = Rule(
    name="completion-times",
    doc=__doc__,
    reads=("status.responders", "status.targetResponders"),
    standing=True,
    update_status=_check,
)
