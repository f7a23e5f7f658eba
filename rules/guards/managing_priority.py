"""A pod's own controller should register its responder with priority 10000.

The controller is recognised by its owner reference: its API group is the responder's domain.

Why: with 10000 others can register before it, to preempt it, or behind it, as a fallback.
Source: ``priority`` in core/v1 types.go, which recommends it; Usher's own guard.
Admitted: a pod owned by a Database of db.acme.io, {name: db.acme.io/failover, priority: 10000}
Refused: the same with priority 20000
"""

from collections.abc import Iterator

from rules.api import MANAGING_PRIORITY, Pod
from rules.field import FieldError, invalid
from rules.pod.declaration import declarations
from rules.rule import Context, Enforcement, Rule


def _check(new: Pod, *, old: Pod | None, context: Context) -> Iterator[FieldError]:
    groups = {
        owner.api_version.rpartition("/")[0]
        for owner in new.metadata.owner_references
        if owner.controller
    } - {""}
    for declared in declarations(new, context.root):
        for position, responder in enumerate(declared.responders):
            manages = responder.name.partition("/")[0] in groups
            if manages and responder.priority not in (None, MANAGING_PRIORITY):
                yield invalid(
                    declared.path.at(position).child("priority"),
                    responder.priority,
                    f"should be {MANAGING_PRIORITY} for the controller that manages the pod",
                )


RULE: Rule[Pod] = Rule(
    name="managing-priority",
    doc=__doc__,
    reads=("spec.evictionResponders", "metadata.annotations", "metadata.ownerReferences"),
    create=_check,
    guard=True,
    enforcement=Enforcement.WARN,
)
