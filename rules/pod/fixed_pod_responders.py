"""The responders of a pod may be set on creation only.

That holds for writes of ``pods/status``, too, by which annotations can be changed.

Why: an eviction that is under way has copied the list already; a later change would be ignored by
some and seen by others. Change the pod template, so that new pods get the new list.
Source: core/v1 types.go, ``evictionResponders``. (Natively ``spec`` as a whole is refused.)
Admitted: a pod created with responders
Refused: a responder added to a pod that exists
"""

from collections.abc import Iterator

from rules.api import Pod
from rules.field import FieldError, invalid
from rules.pod.declaration import declarations
from rules.rule import Context, Rule


def _check(new: Pod, *, old: Pod, context: Context) -> Iterator[FieldError]:
    if context.root:
        return  # the template of a workload may change
    for declared, stored in zip(
        declarations(new, context.root), declarations(old, context.root), strict=True
    ):
        if declared.problem is None and declared.responders != stored.responders:
            yield invalid(declared.path, list(declared.responders), "field is immutable")


RULE: Rule[Pod] = Rule(
    name="fixed-pod-responders",
    doc=__doc__,
    reads=("spec.evictionResponders", "metadata.annotations"),
    update=_check,
    update_status=_check,
)
