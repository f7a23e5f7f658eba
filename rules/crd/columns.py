"""What ``kubectl get`` shows."""

from typing import Final

from rules.api import (
    ConditionStatus,
    Intent,
    ResponderState,
)
from rules.crd.annotations import Schema


def _column(
    name: str, path: str, description: str, *, type_: str = "string", wide: bool = False
) -> Schema:
    return {
        "name": name,
        "type": type_,
        "description": description,
        **({"priority": 1} if wide else {}),
        "jsonPath": path,
    }


_TRUE_CONDITION: Final = f'.status.conditions[?(@.status=="{ConditionStatus.TRUE}")]'
_ACTIVE_RESPONDER: Final = f'.status.targetResponders[?(@.state=="{ResponderState.ACTIVE}")]'
_TARGET_COLUMN: Final = _column("Target", ".spec.target.pod.name", "The pod to evict.")
_STATUS_COLUMN: Final = _column(
    "Status", f"{_TRUE_CONDITION}.type", "The first condition that is True."
)
_REASON_COLUMN: Final = _column(
    "Reason", f"{_TRUE_CONDITION}.reason", "Why that condition is True.", wide=True
)
_AGE_COLUMN: Final = _column(
    "Age", ".metadata.creationTimestamp", "Time since the object was created.", type_="date"
)
# As close to the native columns as JSONPath gets: it takes the first match, and can neither count
# nor follow a name from one list into the other.
REQUEST_COLUMNS: Final = (
    _TARGET_COLUMN,
    _STATUS_COLUMN,
    _column("Requester", ".spec.requester", "Who asks."),
    _column("Intent", ".spec.intent", "What the requester wants."),
    _AGE_COLUMN,
    _REASON_COLUMN,
)
EVICTION_COLUMNS: Final = (
    _TARGET_COLUMN,
    _STATUS_COLUMN,
    _column("Active Responder", f"{_ACTIVE_RESPONDER}.name", "Whose turn it is."),
    _column(
        "Responder Priority",
        f"{_ACTIVE_RESPONDER}.priority",
        "The place of the active responder in the order; higher ones come first.",
        type_="integer",
    ),
    _column(
        "Requesters",
        f'.status.requesters[?(@.intent=="{Intent.EVICTION}")].name',
        "The first of those who want the eviction.",
    ),
    _AGE_COLUMN,
    _column(
        "Expected Finish",
        ".status.responders[?(@.expectedCompletionTime)].expectedCompletionTime",
        "The estimate of the first responder that gave one.",
        wide=True,
    ),
    _REASON_COLUMN,
)
POLICY_COLUMNS: Final = (
    _column("Responder", ".spec.responders[0].name", "The first that is registered."),
    _column("Priority", ".spec.responders[0].priority", "Its priority.", type_="integer"),
    _column(
        "Matched Pods",
        ".status.matchedPods",
        "How many pods there are that the policy is about.",
        type_="integer",
    ),
    _AGE_COLUMN,
)
