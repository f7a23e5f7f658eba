"""Only those who may use its requester name may make, flip or delete an EvictionRequest.

That is the permission ``request`` on the resource ``evictionrequesters`` of the group
``lifecycle.k8s.io``, for the requester's full name or for ``<domain>/*``, in the namespace of the
EvictionRequest. Changing the owner references or the finalizers of a request is the same: they say
when it is deleted. Whoever collects garbage or empties a namespace may delete requests and change
these, and so may controllers. From a request that is being deleted anybody who may update it can
take finalizers away, and deleting it again changes nothing.

Why: a namespace editor could withdraw the request that drains a node, or ask in another's name. An
owner that does not exist would have the garbage collector do it.
Source: Usher's own guard, after ``signers`` in certificates.k8s.io.
Admitted: intent Withdrawn by the drainer whose name the request has
Refused: the same by anybody else; an owner reference added by anybody else
Example:
    # spec.requester: Forbidden: 'system:serviceaccount:ops:drainer' may not create a request of
    # 'nodes.acme.io/drain' in namespace 'db'; a Role with this rule grants it: {apiGroups:
    # ["lifecycle.k8s.io"], resources: ["evictionrequesters"], resourceNames:
    # ["nodes.acme.io/drain"], verbs: ["request"]}
    apiVersion: rbac.authorization.k8s.io/v1
    kind: Role
    metadata: {name: node-drainer, namespace: db}
    rules:
      - apiGroups: [lifecycle.k8s.io]
        resources: [evictionrequesters]
        resourceNames: [nodes.acme.io/drain] # or nodes.acme.io/*, for the whole domain
        verbs: [request]
    ---
    apiVersion: rbac.authorization.k8s.io/v1
    kind: RoleBinding
    metadata: {name: node-drainer, namespace: db}
    roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: node-drainer}
    subjects:
      - {kind: ServiceAccount, name: drainer, namespace: ops}
"""

from collections.abc import Iterator

from rules.api import EvictionRequest
from rules.facts import Question, may_request
from rules.field import FieldError, Path, forbidden
from rules.ownership import changed_ownership
from rules.request import Operation
from rules.rule import Context, Outcome, Rule

_FIELD = Path("spec.requester")
_VERBS = {
    Operation.CREATE: "create a request",
    Operation.UPDATE: "change intent, owner references or finalizers of a request",
    Operation.DELETE: "delete a request",
}


def _asks(
    new: EvictionRequest, *, old: EvictionRequest | None, context: Context
) -> Iterator[Question]:
    if _speaks(new, old, context):
        yield may_request(new.spec.requester, context.namespace)


def _check(
    new: EvictionRequest, *, old: EvictionRequest | None, context: Context
) -> Iterator[FieldError]:
    if not _speaks(new, old, context):
        return
    permission = may_request(new.spec.requester, context.namespace)
    if not context.facts.permits(permission):
        yield forbidden(
            _FIELD,
            f"'{context.user.name}' may not {_VERBS[context.operation]} of "
            f"'{new.spec.requester}' in namespace '{context.namespace}'; a Role with this rule "
            f"grants it: {permission.rule}",
        )


def _speaks(new: EvictionRequest, old: EvictionRequest | None, context: Context) -> bool:
    """Whether the write says something in the requester's name."""
    caller = context.caller
    if caller.is_superuser:
        return False
    if old is None or (
        context.operation == Operation.UPDATE and new.spec.intent != old.spec.intent
    ):
        return True
    if caller.is_collector or caller.is_controller:
        return False
    if context.operation == Operation.DELETE:
        return old.metadata.deletion_timestamp is None
    return any(changed_ownership(new.metadata, old.metadata))


RULE: Rule[EvictionRequest] = Rule(
    name="requester-identity",
    doc=__doc__,
    reads=(
        "spec.requester",
        "spec.intent",
        "metadata.ownerReferences",
        "metadata.finalizers",
        "metadata.deletionTimestamp",
    ),
    judges=("spec.intent", "metadata.ownerReferences", "metadata.finalizers"),
    create=_check,
    update=_check,
    delete=_check,
    asks=_asks,
    guard=True,
    outcome=Outcome.FORBIDDEN,
)
