"""An EvictionRequest should name a pod that exists and that can be evicted.

That is: a pod which is not terminal, belongs to no PodGroup, mirrors no static pod and is not
controlled by a DaemonSet. A name and a UID of two pods are the matter of ``target-pair``.

Why: the controller declares a request for a pod that it cannot find, or that is in a PodGroup,
invalid; mirror pods and those of a DaemonSet come back at once.
Source: Usher's own guard.
Admitted: a request for a running pod, with its UID
Refused: a request for a pod that is gone
Example:
    # spec.target.pod.name: Invalid value: "db-0": should be a pod of namespace 'db', which has none
    # of that name
    apiVersion: lifecycle.k8s.io/v1alpha1
    kind: EvictionRequest
    metadata: {name: drain-db-0, namespace: db}
    spec:
      requester: nodes.acme.io/drain
      intent: Eviction
      target:
        pod:
          name: db-0 # kubectl get pods -n db
          uid: 9b0a7a5e-5f0c-4b52-9f0c-6f2a1f0e7d11
"""

from collections.abc import Iterator

from rules.api import EvictionRequest
from rules.facts import LivePod, Question, lawful_target
from rules.field import FieldError, Path, invalid
from rules.rule import Context, Enforcement, Rule

_NAME = Path("spec.target.pod.name")


def _asks(new: EvictionRequest, *, old: None, context: Context) -> Iterator[Question]:
    if (lookup := lawful_target(new.spec.target.pod, context.namespace)) is not None:
        yield lookup


def _check(new: EvictionRequest, *, old: None, context: Context) -> Iterator[FieldError]:
    if (lookup := lawful_target(new.spec.target.pod, context.namespace)) is None:
        return
    named, bearer = context.facts.target(lookup)
    if named is None and bearer is None:
        detail = f"should be a pod of namespace '{context.namespace}', which has none of that name"
        yield invalid(_NAME, lookup.name, detail)
    elif named is not None and named.uid == lookup.uid and (obstacle := _obstacle(named)):
        yield invalid(_NAME, lookup.name, f"should be a pod that {obstacle}")


def _obstacle(live: LivePod) -> str:
    """What the pod should be and is not; empty if nothing stands in the way."""
    if live.is_terminal:
        return "still runs; its phase is Succeeded or Failed"
    if live.is_grouped:
        return "belongs to no PodGroup; evict the group instead"
    if live.is_mirror:
        return "no kubelet made from a file; remove the file on its node instead"
    if live.is_daemon:
        return "no DaemonSet controls, which would replace it on the same node"
    return ""


RULE: Rule[EvictionRequest] = Rule(
    name="target-exists",
    doc=__doc__,
    reads=("spec.target",),
    create=_check,
    asks=_asks,
    guard=True,
    enforcement=Enforcement.WARN,
)
