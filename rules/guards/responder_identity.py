"""An entry of ``status.responders`` may be changed only by those who may respond under its name.

That is the permission ``respond`` on the resource ``evictionresponders`` of the group
``lifecycle.k8s.io``, for the responder's full name or for ``<domain>/*``, in the namespace of the
Eviction. Only the entries that change count. Controllers initialise entries and set ``startTime``
when they make a responder Active, and respond as the default evictor.

Why: natively anyone with ``evictions/status`` can finish other people's responders, or keep one
Active for ever.
Source: Usher's own guard, after ``signers`` in certificates.k8s.io.
Admitted: a heartbeat of db.acme.io/failover by an account that may respond under that name
Refused: a completionTime of db.acme.io/failover by anybody else
Example:
    # status.responders[0]: Forbidden: 'system:serviceaccount:db:operator' may not respond as
    # 'db.acme.io/failover' in namespace 'db'; a Role with this rule grants it: {apiGroups:
    # ["lifecycle.k8s.io"], resources: ["evictionresponders"], resourceNames:
    # ["db.acme.io/failover"], verbs: ["respond"]}
    apiVersion: rbac.authorization.k8s.io/v1
    kind: Role
    metadata: {name: failover-responder, namespace: db}
    rules:
      - apiGroups: [lifecycle.k8s.io]
        resources: [evictionresponders]
        resourceNames: [db.acme.io/failover] # or db.acme.io/*, for the whole domain
        verbs: [respond]
    ---
    apiVersion: rbac.authorization.k8s.io/v1
    kind: RoleBinding
    metadata: {name: failover-responder, namespace: db}
    roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: failover-responder}
    subjects:
      - {kind: ServiceAccount, name: operator, namespace: db}
"""

from collections.abc import Iterator

from msgspec.structs import replace

from rules.api import EVICTOR, Eviction
from rules.facts import Question, may_respond
from rules.field import FieldError, forbidden
from rules.reports import Report
from rules.rule import Context, Outcome, Rule


def _asks(new: Eviction, *, old: Eviction, context: Context) -> Iterator[Question]:
    for report in _foreign(context):
        yield may_respond(report.new.name, context.namespace)


def _check(new: Eviction, *, old: Eviction, context: Context) -> Iterator[FieldError]:
    for report in _foreign(context):
        permission = may_respond(report.new.name, context.namespace)
        if not context.facts.permits(permission):
            yield forbidden(
                report.path,
                f"'{context.user.name}' may not respond as '{report.new.name}' in namespace "
                f"'{context.namespace}'; a Role with this rule grants it: {permission.rule}",
            )


def _foreign(context: Context) -> Iterator[Report]:
    """The changed entries which the caller may not change for what it is."""
    if context.caller.is_superuser:
        return
    for report in context.reports:
        if not report.changed:
            continue
        is_evictors_own = report.new.name == EVICTOR and context.caller.is_evictor
        if not (is_evictors_own or (context.caller.is_controller and _only_starts(report))):
            yield report


def _only_starts(report: Report) -> bool:
    """Whether nothing changes but the ``startTime``, or the entry is new and has nothing else."""
    new = report.new
    return replace(report.stored, name=new.name, start_time=new.start_time) == new


RULE: Rule[Eviction] = Rule(
    name="responder-identity",
    doc=__doc__,
    reads=("status.responders", "status.targetResponders"),
    judges=("status.responders",),
    update_status=_check,
    asks=_asks,
    guard=True,
    outcome=Outcome.FORBIDDEN,
)
