"""Priorities 0 to 999 are Kubernetes' own; its evictor must have exactly 100.

Why: the default evictor must come last, after everybody who can help. A responder of yours needs a
priority of 1000 to 100000; the pod's own controller should use 10000.
Source: pkg/apis/lifecycle/validation, ``ValidateTargetResponder``.
Admitted: {name: db.acme.io/failover, priority: 10000}
Refused: {name: db.acme.io/failover, priority: 999}
"""

from collections.abc import Iterator

from rules.api import EVICTOR, EVICTOR_PRIORITY, Eviction
from rules.constraints import RESERVED_PRIORITY_END, reserved_priority_detail
from rules.field import FieldError, Path, invalid
from rules.rule import Context, Rule

_FIELD = Path("status.targetResponders")


def _check(new: Eviction, *, old: Eviction, context: Context) -> Iterator[FieldError]:
    if context.progress is None:
        return
    for step in context.progress.steps:
        priority = step.responder.priority
        if step.report is None or priority is None or priority < 0:
            continue
        field = _FIELD.at(step.place).child("priority")
        if step.responder.name == EVICTOR:
            if priority != EVICTOR_PRIORITY:
                yield invalid(field, priority, f"must be {EVICTOR_PRIORITY} for '{EVICTOR}'")
        elif priority < RESERVED_PRIORITY_END:
            yield invalid(field, priority, reserved_priority_detail())


RULE: Rule[Eviction] = Rule(name="responder-priorities", doc=__doc__, update_status=_check)
