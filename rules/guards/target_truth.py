"""``TargetEvicted`` may turn True only when the target is gone, replaced, or terminal.

Looked up in the cluster in the moment of the write, by the UID of the target: under which name the
pod lives makes no difference. No user is exempt, nor are superusers: an honest controller has seen
what the API server will answer. Only Usher's own controller is not asked, where the chart registers
the webhook: before it writes this it looks the pod up by itself.

Why: requesters act on it. A node that is shut down because a live pod was declared gone takes that
pod's data with it.
Source: Usher's own guard.
Admitted: TargetEvicted True after the pod has been deleted
Refused: TargetEvicted True while a pod with that UID runs
Example:
    # status.conditions[0].status: Forbidden: may not be True while pod 'db-0' with UID
    # '9b0a7a5e-5f0c-4b52-9f0c-6f2a1f0e7d11' exists and its phase is neither Succeeded nor Failed
    status:
      conditions:
        - type: TargetEvicted
          status: "False" # until the pod is gone, replaced, Succeeded or Failed
          reason: AwaitingEviction
          message: ""
          lastTransitionTime: "2026-07-01T12:00:00Z"
"""

from collections.abc import Iterator

from rules import states
from rules.api import ConditionType, Eviction, EvictionRequest, PodReference
from rules.facts import Question, TargetLookup
from rules.field import FieldError, Path, forbidden
from rules.rule import Context, Outcome, Rule

_FIELD = Path("status.conditions")


def _asks(
    new: Eviction | EvictionRequest, *, old: Eviction | EvictionRequest, context: Context
) -> Iterator[Question]:
    if (pod := _declared_gone(new, old)) is not None:
        yield TargetLookup(context.namespace, pod.name, pod.uid)


def _check(
    new: Eviction | EvictionRequest, *, old: Eviction | EvictionRequest, context: Context
) -> Iterator[FieldError]:
    if (pod := _declared_gone(new, old)) is None:
        return
    bearer = context.facts.target(TargetLookup(context.namespace, pod.name, pod.uid)).bearer
    if bearer is not None and not bearer.pod.is_terminal:
        types = [condition.type for condition in new.status.conditions]
        place = types.index(ConditionType.TARGET_EVICTED)
        yield forbidden(
            _FIELD.at(place).child("status"),
            f"may not be True while pod '{bearer.name}' with UID '{pod.uid}' exists and its phase "
            "is neither Succeeded nor Failed",
        )


def _declared_gone(
    new: Eviction | EvictionRequest, old: Eviction | EvictionRequest
) -> PodReference | None:
    """The pod that the write newly claims to be evicted."""
    evicted = ConditionType.TARGET_EVICTED
    claims = states.is_true(new.status.conditions, evicted)
    if not claims or states.is_true(old.status.conditions, evicted):
        return None
    return old.spec.target.pod


RULE: Rule[Eviction | EvictionRequest] = Rule(
    name="target-truth",
    doc=__doc__,
    reads=("status.conditions", "spec.target"),
    judges=("status.conditions",),
    update_status=_check,
    asks=_asks,
    guard=True,
    outcome=Outcome.FORBIDDEN,
)
