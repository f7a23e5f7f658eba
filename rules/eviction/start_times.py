"""An Active responder must have a ``startTime``, and it must be the present when set.

"Present" is less than 30 seconds away from now, to either side.

Why: the deadline of a responder that never shows life counts from its start.
Source: pkg/apis/lifecycle/validation, ``ValidateEvictionStatusResponder``.
Admitted: startTime now, in the write that makes the responder Active
Refused: an Active responder without startTime; startTime five minutes ago
"""

from collections.abc import Iterator

from rules import states
from rules.api import Eviction
from rules.field import FieldError, invalid, required
from rules.rule import Context, Rule


def _check(new: Eviction, *, old: Eviction, context: Context) -> Iterator[FieldError]:
    for report in context.changeable_reports:
        value, stored = report.new.start_time, report.stored.start_time
        if stored is not None:
            continue  # set-once-fields judges every change of it
        if value is None and report.active:
            yield required(report.path.child("startTime"), "must be set for an active responder")
        if value is not None and not states.is_present(value, context.now):
            problem = states.present_detail(context.now)
            yield invalid(report.path.child("startTime"), value, problem)


RULE: Rule[Eviction] = Rule(
    name="start-times",
    doc=__doc__,
    reads=("status.responders", "status.targetResponders"),
    standing=True,
    update_status=_check,
)
