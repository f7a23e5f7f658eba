"""An EvictionRequest should name a pod that exists and that can be evicted.

That is: a pod of that name and UID, which is not terminal, belongs to no PodGroup, mirrors no
static pod and is not controlled by a DaemonSet.

Why: the controller declares a request for a pod that it cannot find, or that is in a PodGroup,
invalid; mirror pods and those of a DaemonSet come back at once.
Source: docs/rules.md (Usher's own guard).
Admitted: a request for a running pod, with its UID
Refused: a request for a pod that was replaced by another of the same name
Example:
    # spec.target.pod.uid: Invalid value: "9b0a7a5e-5f0c-4b52-9f0c-6f2a1f0e7d11": should be
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

from rules import formats
from rules.api import EvictionRequest, PodReference
from rules.facts import LivePod, PodLookup, Question
from rules.field import FieldError, Path, invalid
from rules.rule import Context, Enforcement, Rule

_FIELD = Path("spec.target.pod")


def _asks(new: EvictionRequest, *, old: None, context: Context) -> Iterator[Question]:
    if (pod := _named(new)) is not None:
        yield PodLookup(context.namespace, pod.name)


def _check(new: EvictionRequest, *, old: None, context: Context) -> Iterator[FieldError]:
    if (pod := _named(new)) is None:
        return
    live = context.facts.pod(PodLookup(context.namespace, pod.name))
    if live is None:
        detail = f"should be a pod of namespace '{context.namespace}', which has none of that name"
        yield invalid(_FIELD.child("name"), pod.name, detail)
    elif live.uid != pod.uid:
        detail = f"should be '{live.uid}', the UID of the pod that has this name now"
        yield invalid(_FIELD.child("uid"), pod.uid, detail)
    elif obstacle := _obstacle(live):
        yield invalid(_FIELD.child("name"), pod.name, f"should be a pod that {obstacle}")


def _named(new: EvictionRequest) -> PodReference | None:
    """The pod that the request names; None where ``long-names`` refuses the name anyway."""
    pod = new.spec.target.pod
    return pod if pod is not None and formats.is_long_name(pod.name) else None


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
    create=_check,
    asks=_asks,
    guard=True,
    enforcement=Enforcement.WARN,
)
