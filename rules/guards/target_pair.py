"""The name and the UID of a target must belong to one pod, when an object is created with it.

A pod of that name that has another UID refuses the write, and so does a pod of another name that
has that UID. Where there is neither, nothing is known to be wrong: ``target-exists`` warns. A
controller may make an Eviction for a pod that has been replaced: its requesters are to be told that
it is gone.

Why: some look at the name, others at the UID. Whoever may evict one pod could have another one
evicted, and a pod that lives could be declared gone by looking for it under a name that no pod has.
Source: Usher's own guard.
Admitted: a target with the name and the UID of one pod
Refused: a target with the name of one pod and the UID of another; the UID of a pod under a name
  that no pod has
Example:
    # spec.target.pod.uid: Invalid value: "9b0a7a5e-5f0c-4b52-9f0c-6f2a1f0e7d11": must be
    # '4f8c2d1e-0b7a-4c39-8e55-3a6d9b1c7f02', the UID of the pod that has this name now
    apiVersion: lifecycle.k8s.io/v1alpha1
    kind: EvictionRequest
    metadata: {name: drain-db-0, namespace: db}
    spec:
      requester: nodes.acme.io/drain
      intent: Eviction
      target:
        pod:
          name: db-0
          uid: 4f8c2d1e-0b7a-4c39-8e55-3a6d9b1c7f02 # kubectl get pod db-0 -o yaml
"""

from collections.abc import Iterator

from rules.api import Eviction, EvictionRequest
from rules.facts import Question, lawful_target
from rules.field import FieldError, Path, invalid
from rules.rule import Context, Rule

_FIELD = Path("spec.target.pod")


def _asks(new: Eviction | EvictionRequest, *, old: None, context: Context) -> Iterator[Question]:
    if (lookup := lawful_target(new.spec.target.pod, context.namespace)) is not None:
        yield lookup


def _check(new: Eviction | EvictionRequest, *, old: None, context: Context) -> Iterator[FieldError]:
    if (lookup := lawful_target(new.spec.target.pod, context.namespace)) is None:
        return
    named, bearer = context.facts.target(lookup)
    if bearer is None and _is_controllers(new, context):
        return
    if named is not None and named.uid != lookup.uid:
        detail = f"must be '{named.uid}', the UID of the pod that has this name now"
        if bearer is not None:
            detail += f"; this one is that of pod '{bearer.name}'"
        yield invalid(_FIELD.child("uid"), lookup.uid, detail)
    elif named is None and bearer is not None:
        detail = f"must be '{bearer.name}', the name of the pod with this UID"
        yield invalid(_FIELD.child("name"), lookup.name, detail)


def _is_controllers(new: Eviction | EvictionRequest, context: Context) -> bool:
    """Whether a controller makes an Eviction.

    It may be for a pod that has been replaced: its requesters are to be told that it is gone.
    """
    return isinstance(new, Eviction) and context.caller.is_controller


RULE: Rule[Eviction | EvictionRequest] = Rule(
    name="target-pair", doc=__doc__, reads=("spec.target",), create=_check, asks=_asks, guard=True
)
