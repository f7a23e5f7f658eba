"""Every target responder must have an entry in ``responders``, initialised in the same write.

Why: a responder reports in its own entry; without one it could neither start nor complete.
Source: pkg/apis/lifecycle/validation, ``ValidateTargetResponder``.
Admitted: targetResponders [a.io/x] together with responders [a.io/x]
Refused: targetResponders [a.io/x] alone
"""

from collections.abc import Iterator

from rules.api import Eviction
from rules.field import FieldError, Path, invalid
from rules.rule import Context, Rule

_FIELD = Path("status.targetResponders")


def _check(new: Eviction, *, old: Eviction, context: Context) -> Iterator[FieldError]:
    if context.progress is None:
        return
    for step in context.progress.steps:
        if step.report is None:
            name = step.responder.name
            yield invalid(
                _FIELD.at(step.place), name, f"must have an entry '{name}' in status.responders"
            )


RULE: Rule[Eviction] = Rule(
    name="tracked-responders",
    doc=__doc__,
    reads=("status.conditions", "status.responders", "status.targetResponders"),
    standing=True,
    update_status=_check,
)
