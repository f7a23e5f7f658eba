"""A responder that has not completed may be passed over only after 20 minutes of silence.

Silence counts from ``heartbeatTime``, or from ``startTime`` where there was no heartbeat, and 30
seconds are granted for clocks that differ. A write that ends the eviction is exempt.

Why: a responder which shows life is still working; evicting the pod under it would break the very
thing it protects.
Source: pkg/apis/lifecycle/validation, ``ValidateTargetResponder``.
Admitted: Active → Interrupted, heartbeatTime 20 minutes ago
Refused: Active → Interrupted, heartbeatTime 5 minutes ago and no completionTime
"""

from collections.abc import Iterator

from rules import states
from rules.api import Eviction, ResponderState
from rules.field import FieldError, Path, forbidden
from rules.rule import Context, Rule
from rules.times import format_time

_FIELD = Path("status.targetResponders")


def _check(new: Eviction, *, old: Eviction, context: Context) -> Iterator[FieldError]:
    if context.progress is None or context.progress.final:
        return
    for step in context.progress.steps:
        report = step.report
        if report is None or not step.on_course or step.responder.state == ResponderState.ACTIVE:
            continue
        if report.start_time is None or report.completion_time is not None:
            continue
        heard = states.heard_from(report)
        if heard is not None and context.now < states.silent_until(heard):
            yield forbidden(
                _FIELD.at(step.place).child("state"),
                f"may not leave 'Active' before {format_time(states.silent_until(heard))} unless "
                "its entry in status.responders reports a completionTime",
            )


RULE: Rule[Eviction] = Rule(
    name="silence-before-handover",
    doc=__doc__,
    reads=("status.conditions", "status.responders", "status.targetResponders"),
    standing=True,
    update_status=_check,
)
