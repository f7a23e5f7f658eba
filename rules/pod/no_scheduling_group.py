"""A pod that belongs to a PodGroup (``spec.schedulingGroup``) may not have responders.

Why: the pods of a group live and die together; evicting one of them is not supported.
Source: core/v1 types.go, ``evictionResponders``.
Admitted: responders without schedulingGroup
Refused: both
"""

from collections.abc import Iterator

from rules.api import Pod
from rules.field import FieldError, Path, forbidden
from rules.pod.declaration import declarations
from rules.rule import Context, Rule


def _check(new: Pod, *, old: Pod | None, context: Context) -> Iterator[FieldError]:
    if _has_both(new, context.root) and not _has_both(old, context.root):
        yield forbidden(
            context.root.child("spec.schedulingGroup"),
            "may not be set when the pod has eviction responders",
        )


def _has_both(pod: Pod | None, root: Path) -> bool:
    return (
        pod is not None
        and pod.spec.scheduling_group is not None
        and any(declared.responders for declared in declarations(pod, root))
    )


RULE: Rule[Pod] = Rule(
    name="no-scheduling-group",
    doc=__doc__,
    reads=("spec.evictionResponders", "metadata.annotations", "spec.schedulingGroup"),
    create=_check,
    update=_check,
)
