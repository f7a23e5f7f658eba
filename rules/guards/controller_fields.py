"""Only controllers may change conditions, requesters, targetResponders and observedGeneration.

Controllers are those of Kubernetes, Usher's own, and those that the configuration adds
(``controllers``). A responder writes its own entry of ``status.responders`` and nothing else; a
write that repeats what is stored, as server-side apply does, changes nothing.

Why: natively anyone with ``evictions/status`` can claim that a pod has been evicted, or move the
responders on.
Source: Usher's own guard.
Admitted: TargetEvicted turned True by system:kube-controller-manager
Refused: TargetEvicted turned True by a responder
Example:
    # status.conditions: Forbidden: may be changed by controllers only, and
    # 'system:serviceaccount:db:operator' is none; if it should be, list it under 'controllers' in
    # the configuration of usher serve
    controllers: ["system:serviceaccount:db:operator"] # in the file of usher serve --config
"""

from collections.abc import Iterator
from typing import Final

from rules.api import Eviction, EvictionRequest
from rules.facts import WHO, Question
from rules.field import FieldError, Path, forbidden
from rules.rule import Context, Outcome, Rule

_FIELDS: Final = (
    Path("status.conditions"),
    Path("status.observedGeneration"),
    Path("status.requesters"),
    Path("status.targetResponders"),
)
"""What is the controller's in either kind."""


def _asks(
    new: Eviction | EvictionRequest, *, old: Eviction | EvictionRequest, context: Context
) -> Iterator[Question]:
    if not context.changed.isdisjoint(_FIELDS):
        yield WHO


def _check(
    new: Eviction | EvictionRequest, *, old: Eviction | EvictionRequest, context: Context
) -> Iterator[FieldError]:
    if context.caller.is_superuser or context.caller.is_controller:
        return
    for field in _FIELDS:
        if field not in context.changed:
            continue
        yield forbidden(
            field,
            f"may be changed by controllers only, and '{context.user.name}' is none; if it "
            "should be, list it under 'controllers' in the configuration of usher serve",
        )


RULE: Rule[Eviction | EvictionRequest] = Rule(
    name="controller-fields",
    doc=__doc__,
    reads=_FIELDS,
    update_status=_check,
    asks=_asks,
    guard=True,
    outcome=Outcome.FORBIDDEN,
)
