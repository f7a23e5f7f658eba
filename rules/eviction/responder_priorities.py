"""Priorities 0 to 999 are Kubernetes' own; its evictor must have exactly 100.

Why: the default evictor must come last, after everybody who can help. A responder of yours needs a
priority of 1000 to 100000; the pod's own controller should use 10000.
Source: pkg/apis/lifecycle/validation, ``ValidateTargetResponder``.
Admitted: {name: db.acme.io/failover, priority: 10000}
Refused: {name: db.acme.io/failover, priority: 999}
"""

from collections.abc import Iterator

from rules.api import EVICTOR, EVICTOR_PRIORITY, Eviction
from rules.constraints import RESERVED_PRIORITY_DETAIL, RESERVED_PRIORITY_END
from rules.field import FieldError, Path, invalid
from rules.rule import Context, Rule

_FIELD = Path("status.targetResponders")
_EVICTOR_DETAIL = f"must be {EVICTOR_PRIORITY} for '{EVICTOR}'"


def _check(new: Eviction, *, old: Eviction, context: Context) -> Iterator[FieldError]:
    if context.progress is None:
        return
    for step in context.progress.steps:
        priority = step.responder.priority
        if step.report is None or priority is None or priority < 0:
            continue
        if step.responder.name == EVICTOR:
            lawful, detail = priority == EVICTOR_PRIORITY, _EVICTOR_DETAIL
        else:
            lawful, detail = priority >= RESERVED_PRIORITY_END, RESERVED_PRIORITY_DETAIL
        if not lawful:
            yield invalid(_FIELD.at(step.place).child("priority"), priority, detail)


RULE: Rule[Eviction] = Rule(
    name="responder-priorities",
    doc=__doc__,
    reads=("status.conditions", "status.responders", "status.targetResponders"),
    standing=True,
    update_status=_check,
)
