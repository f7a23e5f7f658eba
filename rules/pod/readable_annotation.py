"""The annotation usher.dev/eviction-responders must hold a JSON list of responders.

Why: where pods have no field ``spec.evictionResponders`` this annotation is what registers a
responder; one that cannot be read would silently protect nothing.
Source: docs/adr/0004-responders-annotation.md (Usher's own).
Admitted: usher.dev/eviction-responders: '[{"name": "db.acme.io/failover", "priority": 10000}]'
Refused: usher.dev/eviction-responders: 'db.acme.io/failover'
"""

from collections.abc import Iterator

from rules.api import RESPONDERS_ANNOTATION, Pod
from rules.field import FieldError, invalid
from rules.pod.declaration import declarations
from rules.rule import Context, Rule


def _check(new: Pod, *, old: Pod | None, context: Context) -> Iterator[FieldError]:
    _, annotated = declarations(new, context.root)
    _, stored = declarations(old, context.root)
    if annotated.problem is not None and annotated.problem != stored.problem:
        text = new.metadata.annotations[RESPONDERS_ANNOTATION]
        yield invalid(annotated.path, text, f"must be a JSON list: {annotated.problem}")


RULE: Rule[Pod] = Rule(
    name="readable-annotation",
    doc=__doc__,
    reads=("metadata.annotations",),
    create=_check,
    update=_check,
    update_status=_check,
)
