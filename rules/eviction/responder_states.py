"""Responders are processed one after another, and never more than one of them is Active.

The first write makes the first in order Active and leaves the rest Inactive. Later only the
Active one may move, to Interrupted, Canceled or Completed, and the next becomes Active in the same
write. What has been processed never changes. When the eviction ends (TargetEvicted or Failed True)
the Active one must leave Active and nobody follows.

Why: each responder must be able to rely on being the only one that acts on the pod.
Source: pkg/apis/lifecycle/validation, ``ValidateEvictionTargetResponders``.
Admitted: Active, Inactive → Completed, Active
Refused: Active, Inactive → Active, Active; Completed, Active → Active, Inactive
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
        if step.report is not None and not step.on_course:
            allowed = " or ".join(f"'{state}'" for state in sorted(step.expectation.states))
            detail = f"must be {allowed}, because {step.expectation.reason}"
            yield invalid(_FIELD.at(step.place).child("state"), step.responder.state, detail)


RULE: Rule[Eviction] = Rule(
    name="responder-states",
    doc=__doc__,
    reads=("status.conditions", "status.responders", "status.targetResponders"),
    standing=True,
    update_status=_check,
)
