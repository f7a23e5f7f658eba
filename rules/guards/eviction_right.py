"""Who asks for the eviction of a pod must have the right to evict it.

That is the permission to create ``pods/eviction`` for that pod, as ``kubectl drain`` needs it. It
is asked when a request is made, and when a withdrawn one is made good again.

Why: an EvictionRequest ends a pod in the controller's name, which would lend the controller's right
to everybody who may create one.
Source: docs/rules.md (Usher's own guard).
Admitted: an EvictionRequest by somebody who may create pods/eviction in the namespace
Refused: an EvictionRequest by somebody who may not
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
from rules.facts import Question, may_evict
from rules.field import FieldError, Path, forbidden
from rules.rule import Context, Outcome, Rule

_FIELD = Path("spec.target.pod")


def _asks(
    new: EvictionRequest, *, old: EvictionRequest | None, context: Context
) -> Iterator[Question]:
    if (name := _victim(new, old, context)) is not None:
        yield may_evict(name, context.namespace)


def _check(
    new: EvictionRequest, *, old: EvictionRequest | None, context: Context
) -> Iterator[FieldError]:
    if (name := _victim(new, old, context)) is None:
        return
    permission = may_evict(name, context.namespace)
    if not context.facts.permits(permission):
        yield forbidden(
            _FIELD,
            f"'{context.user.name}' may not evict pod '{name}' in namespace "
            f"'{context.namespace}'; a Role with this rule grants it: {permission.rule}",
        )


def _victim(new: EvictionRequest, old: EvictionRequest | None, context: Context) -> str | None:
    """The pod that the write newly asks to be evicted; None if it asks for none."""
    pod = new.spec.target.pod
    if context.caller.is_superuser or pod is None or new.spec.intent == Intent.WITHDRAWN:
        return None
    is_new = old is None or old.spec.intent == Intent.WITHDRAWN
    return pod.name if is_new else None


RULE: Rule[EvictionRequest] = Rule(
    name="eviction-right",
    doc=__doc__,
    create=_check,
    update=_check,
    asks=_asks,
    guard=True,
    outcome=Outcome.FORBIDDEN,
)
