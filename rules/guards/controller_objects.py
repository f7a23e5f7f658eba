"""Only controllers may make or delete Evictions, or change their owner references or finalizers.

Whoever wants a pod gone makes an EvictionRequest. Controllers are those of ``controller-fields``.
The garbage collector and the controller that empties a namespace may delete an Eviction, and change
its owner references and finalizers, as they do to collect it. Once an Eviction is being deleted,
anybody who may update it can take finalizers away: those who hold it are nobody's business here,
and nobody can begin a deletion that way.

Why: a deleted Eviction is begun anew, and with it every responder. One that somebody else has made
takes a name, or speaks for a pod that nobody has asked about. An owner that does not exist, or a
finalizer, makes the garbage collector delete it, or keeps it for ever.
Source: Usher's own guard.
Admitted: an Eviction created by system:kube-controller-manager; one deleted with its namespace
Refused: an Eviction created or deleted by an editor of the namespace
Example:
    # metadata.name: Forbidden: Evictions may be created by controllers only, and 'jane' is none; to
    # have a pod evicted, create an EvictionRequest
    apiVersion: lifecycle.k8s.io/v1alpha1
    kind: EvictionRequest
    metadata: {name: resize-db-0, namespace: db}
    spec:
      requester: jane.acme.io/resize
      intent: Eviction
      target:
        pod:
          name: db-0
          uid: 9b0a7a5e-5f0c-4b52-9f0c-6f2a1f0e7d11
"""

from collections.abc import Iterator

from rules.api import Eviction
from rules.facts import WHO, Question
from rules.field import FieldError, Path, forbidden
from rules.ownership import changed_ownership
from rules.request import Operation
from rules.rule import Context, Outcome, Rule

_NAME = Path("metadata.name")
_OTHERWISE = "if it should be, list it under 'controllers' in the configuration of usher serve"
_WAYS_OUT = {
    Operation.CREATE: "to have a pod evicted, create an EvictionRequest",
    Operation.DELETE: "to have an eviction canceled, withdraw every EvictionRequest for the pod",
}


def _asks(new: Eviction, *, old: Eviction | None, context: Context) -> Iterator[Question]:
    if any(_fields(new, old, context)):
        yield WHO


def _check(new: Eviction, *, old: Eviction | None, context: Context) -> Iterator[FieldError]:
    caller = context.caller
    if caller.is_superuser or caller.is_controller:
        return
    if caller.is_collector and context.operation != Operation.CREATE:
        return
    for field in _fields(new, old, context):
        if context.operation == Operation.UPDATE:
            what, way_out = "may be changed", _OTHERWISE
        else:
            what = f"Evictions may be {context.operation.lower()}d"
            way_out = _WAYS_OUT[context.operation]
        yield forbidden(
            field, f"{what} by controllers only, and '{context.user.name}' is none; {way_out}"
        )


def _fields(new: Eviction, old: Eviction | None, context: Context) -> Iterator[Path]:
    """What the write claims that is for controllers; a name stands for the whole object."""
    if old is None:
        yield _NAME
    elif context.operation == Operation.UPDATE:
        yield from changed_ownership(new.metadata, old.metadata)
    elif old.metadata.deletion_timestamp is None:
        yield _NAME


RULE: Rule[Eviction] = Rule(
    name="controller-objects",
    doc=__doc__,
    reads=("metadata.ownerReferences", "metadata.finalizers", "metadata.deletionTimestamp"),
    judges=("metadata.ownerReferences", "metadata.finalizers"),
    create=_check,
    update=_check,
    delete=_check,
    asks=_asks,
    guard=True,
    outcome=Outcome.FORBIDDEN,
)
