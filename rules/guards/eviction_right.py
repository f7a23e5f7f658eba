"""Who asks for the eviction of a pod must have the right to evict it.

That is the permission to create ``pods/eviction`` for that pod, as ``kubectl drain`` needs it: for
the pod that has the UID of the target, whatever the name beside it; where no pod has it, for one of
that name. It is asked when a request is made, whatever its intent, and when a withdrawn one is made
good again. To withdraw a request takes no such right: who has lost it can still do that.

Why: an EvictionRequest ends a pod in the controller's name, which would lend the controller's right
to everybody who may create one. A withdrawn one costs every controller as much.
Source: Usher's own guard.
Admitted: an EvictionRequest by somebody who may create pods/eviction in the namespace
Refused: an EvictionRequest by somebody who may not; one with the name of a pod that the caller may
  evict, and the UID of another
Example:
    # spec.target.pod: Forbidden: 'system:serviceaccount:ops:drainer' may not evict pod 'db-0' in
    # namespace 'db'; a Role with this rule grants it: {apiGroups: [""], resources:
    # ["pods/eviction"], resourceNames: ["db-0"], verbs: ["create"]}
    apiVersion: rbac.authorization.k8s.io/v1
    kind: Role
    metadata: {name: pod-evictor, namespace: db}
    rules:
      - apiGroups: [""]
        resources: [pods/eviction] # every pod of the namespace, as drainers need it
        verbs: [create]
    ---
    apiVersion: rbac.authorization.k8s.io/v1
    kind: RoleBinding
    metadata: {name: pod-evictor, namespace: db}
    roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: pod-evictor}
    subjects:
      - {kind: ServiceAccount, name: drainer, namespace: ops}
"""

from collections.abc import Iterator

from rules.api import EvictionRequest, Intent
from rules.facts import EvictionRight, Question, TargetLookup, may_evict
from rules.field import FieldError, Path, forbidden
from rules.rule import Context, Outcome, Rule

_FIELD = Path("spec.target.pod")


def _asks(
    new: EvictionRequest, *, old: EvictionRequest | None, context: Context
) -> Iterator[Question]:
    if (question := _question(new, old, context)) is not None:
        yield question


def _check(
    new: EvictionRequest, *, old: EvictionRequest | None, context: Context
) -> Iterator[FieldError]:
    if (question := _question(new, old, context)) is None:
        return
    right = context.facts.right(question)
    if not right.is_granted:
        permission = may_evict(right.pod, context.namespace)
        whose = "" if right.pod == question.target.name else ", whose UID this is,"
        yield forbidden(
            _FIELD,
            f"'{context.user.name}' may not evict pod '{right.pod}'{whose} in namespace "
            f"'{context.namespace}'; a Role with this rule grants it: {permission.rule}",
        )


def _question(
    new: EvictionRequest, old: EvictionRequest | None, context: Context
) -> EvictionRight | None:
    """What to ask about the pod for which the write newly speaks; None if it says nothing new."""
    pod = new.spec.target.pod
    if context.caller.is_superuser or pod is None:
        return None
    is_renewed = (
        old is not None
        and old.spec.intent == Intent.WITHDRAWN
        and new.spec.intent != Intent.WITHDRAWN
    )
    if old is not None and not is_renewed:
        return None
    return EvictionRight(TargetLookup(context.namespace, pod.name, pod.uid))


RULE: Rule[EvictionRequest] = Rule(
    name="eviction-right",
    doc=__doc__,
    reads=("spec.target", "spec.intent"),
    judges=("spec.intent",),
    create=_check,
    update=_check,
    asks=_asks,
    guard=True,
    outcome=Outcome.FORBIDDEN,
)
