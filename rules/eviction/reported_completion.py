"""A responder may be Completed only if it has reported a ``completionTime``.

Why: only the responder itself knows that its work is done.
Source: pkg/apis/lifecycle/validation, ``ValidateTargetResponder``.
Admitted: state Completed, with completionTime in its entry of status.responders
Refused: state Completed without it
"""

from collections.abc import Iterator

from rules.api import Eviction, ResponderState
from rules.field import FieldError, Path, invalid
from rules.rule import Context, Rule

_FIELD = Path("status.targetResponders")


def _check(new: Eviction, *, old: Eviction, context: Context) -> Iterator[FieldError]:
    if context.progress is None:
        return
    for step in context.progress.steps:
        if (
            step.on_course
            and step.responder.state == ResponderState.COMPLETED
            and step.report is not None
            and step.report.completion_time is None
        ):
            yield invalid(
                _FIELD.at(step.place).child("state"),
                step.responder.state,
                f"must have a completionTime in the entry '{step.responder.name}' of "
                "status.responders first",
            )


RULE: Rule[Eviction] = Rule(
    name="reported-completion",
    doc=__doc__,
    reads=("status.conditions", "status.responders", "status.targetResponders"),
    standing=True,
    update_status=_check,
)
