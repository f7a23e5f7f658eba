"""What the definitions say to people."""

from collections.abc import Mapping
from typing import Final

from rules.api import (
    EVICTOR,
    EVICTOR_PRIORITY,
    GROUP,
    MANAGING_PRIORITY,
    MAX_CONDITIONS,
    MAX_MESSAGE,
    MAX_POD_RESPONDERS,
    MAX_PRIORITY,
    VERSION,
    ApiType,
    Condition,
    Eviction,
    EvictionRequest,
    EvictionRequestSpec,
    EvictionRequestStatus,
    EvictionResponder,
    EvictionSpec,
    EvictionStatus,
    PodReference,
    Requester,
    ResponderStatus,
    Target,
    TargetResponder,
)
from rules.constraints import (
    RESERVED_PRIORITY_END,
)
from rules.policies import (
    POLICY_API_VERSION,
    ClusterResponderPolicy,
    ClusterResponderPolicySpec,
    LabelRequirement,
    LabelSelector,
    PolicyStatus,
    ResponderPolicy,
    ResponderPolicySpec,
)

_API_VERSION: Final = f"The version of the API: {GROUP}/{VERSION}."
_TARGET: Final = "What is to be evicted. Required; can't be changed."
_CONDITIONS: Final = (
    "How the eviction stands. TargetEvicted says whether the target is gone, Failed whether nobody "
    "tries any more. At most {limit} entries."
)
_OBSERVED_GENERATION: Final = (
    "The metadata.generation that this status speaks about. At least 1; never decreases and is "
    "never removed."
)
_INTENT: Final = (
    "Eviction asks for the target to go; Withdrawn no longer does. When every requester of a "
    "target has withdrawn, the eviction is canceled."
)
_POLICY_SPEC: Final = {
    "": "Which pods get which responders.",
    "podSelector": "Labels of the pods that the policy is about; {} means every pod. Required.",
    "responders": "What is registered for these pods when they are created, within the "
    f"{MAX_POD_RESPONDERS} places that a pod has. A responder that the pod names itself, or a "
    "policy before this one, stays as it is.",
}
_KEY_FORM: Final = "of the form <domain>/<name>, such as db.acme.io/failover"

DESCRIPTIONS: Final[Mapping[type[ApiType], Mapping[str, str]]] = {
    EvictionRequest: {
        "": "Somebody asks for a pod to be evicted gracefully. All requests for the same target "
        "share one Eviction; deleting a request withdraws it.",
        "apiVersion": _API_VERSION,
        "kind": "The kind of this object: EvictionRequest.",
    },
    EvictionRequestSpec: {
        "": "Who wants which target gone.",
        "target": _TARGET,
        "requester": f"Who asks, {_KEY_FORM}. Domains below k8s.io and kubernetes.io are "
        "reserved. Required; can't be changed.",
        "intent": f"What the requester wants. {_INTENT} Required.",
    },
    EvictionRequestStatus: {
        "": "What has become of the request. Written by the controller.",
        "conditions": f"{_CONDITIONS.format(limit=MAX_CONDITIONS)} They may go back when the "
        "target is requested again.",
        "observedGeneration": _OBSERVED_GENERATION,
    },
    Eviction: {
        "": "The one process that evicts a target. The controller creates it for the "
        "EvictionRequests of a target. Responders act one after another, highest priority first; "
        "each reports in its own entry of status.responders while its state is Active, and one "
        "that stays silent for 20 minutes is passed over.",
        "apiVersion": _API_VERSION,
        "kind": "The kind of this object: Eviction.",
    },
    EvictionSpec: {"": "What the eviction is about.", "target": _TARGET},
    EvictionStatus: {
        "": "How far the eviction has come. Written by the controller, except for the entries of "
        "responders.",
        "conditions": f"{_CONDITIONS.format(limit=MAX_CONDITIONS)} Either of them is final once "
        "it is True.",
        "observedGeneration": _OBSERVED_GENERATION,
        "requesters": "Everybody who asked, also those who have withdrawn. Where there is no room "
        "for all, those who have withdrawn go first.",
        "targetResponders": "Who responds, with priority and state. At most one is Active. The "
        "names are fixed once they are set.",
        "responders": "What each target responder reports: as many entries as targetResponders, "
        "with the same names. An entry changes only while its responder is Active.",
    },
    Target: {
        "": "Exactly one object to evict.",
        "pod": "A pod in the same namespace. Pods of a PodGroup can't be evicted this way.",
    },
    PodReference: {
        "": "One pod, and no other one of the same name.",
        "name": "Name of the pod.",
        "uid": "metadata.uid of the pod, in lower case.",
    },
    Requester: {
        "": "Somebody who asked for the eviction.",
        "name": f"Who asked, {_KEY_FORM}. Unique in the list.",
        "intent": f"What they want now. {_INTENT}",
    },
    TargetResponder: {
        "": "A responder's place in the order, and its state.",
        "name": f"Who responds, {_KEY_FORM}. Unique in the list.",
        "priority": f"Higher ones act first; equal ones in the order of their domains, read from "
        f"the top. From {RESERVED_PRIORITY_END} to {MAX_PRIORITY}; the pod's own controller takes "
        f"{MANAGING_PRIORITY}, {EVICTOR} has {EVICTOR_PRIORITY}. Required; can't be changed.",
        "state": "Inactive waits for its turn. Active acts. Interrupted stayed silent. Canceled "
        "was stopped because nobody wants the eviction any more. Completed has reported a "
        "completionTime.",
    },
    ResponderStatus: {
        "": "What one responder reports.",
        "name": f"Who reports, {_KEY_FORM}. Unique in the list.",
        "startTime": "When the responder became Active. Set by the controller, once.",
        "heartbeatTime": "When the responder last showed life. The present when set; leave at "
        "least 20 seconds between two.",
        "expectedCompletionTime": "When the responder expects to complete; not in the past when "
        "set.",
        "completionTime": "When the responder stopped working on the eviction, whether or not the "
        "target is gone. The present when set; set once.",
        "message": f"What people should know. At most {MAX_MESSAGE} characters.",
    },
    Condition: {
        "": "One aspect of the state.",
        "type": "Which aspect, such as TargetEvicted. Unique in the list.",
        "status": "True, False or Unknown.",
        "observedGeneration": "The metadata.generation that the condition speaks about.",
        "lastTransitionTime": "When status changed last.",
        "reason": "Why, in one word for programs.",
        "message": "Why, in words for people. May be empty.",
    },
    ResponderPolicy: {
        "": "Registers responders for new pods of its namespace. Comes before every "
        "ClusterResponderPolicy; equals come by name. Pods that exist already are left alone.",
        "apiVersion": f"The version of the API: {POLICY_API_VERSION}.",
        "kind": "The kind of this object: ResponderPolicy.",
    },
    ResponderPolicySpec: _POLICY_SPEC,
    ClusterResponderPolicy: {
        "": "Registers responders for new pods of many namespaces. Comes after every "
        "ResponderPolicy; equals come by name. Pods that exist already are left alone.",
        "apiVersion": f"The version of the API: {POLICY_API_VERSION}.",
        "kind": "The kind of this object: ClusterResponderPolicy.",
    },
    ClusterResponderPolicySpec: {
        **_POLICY_SPEC,
        "namespaceSelector": "Labels of the namespaces in which pods are meant; all namespaces "
        "where it is missing.",
    },
    PolicyStatus: {
        "": "What has become of the policy. Written by the controller.",
        "observedGeneration": _OBSERVED_GENERATION,
        "matchedPods": "How many pods there are that the policy is about.",
    },
    EvictionResponder: {
        "": "A responder as a pod registers it.",
        "name": f"Who responds, {_KEY_FORM}. Domains below k8s.io and kubernetes.io are reserved. "
        "Unique in the list.",
        "priority": f"Its place in the order, from {RESERVED_PRIORITY_END} to {MAX_PRIORITY}; "
        f"higher ones act first, the pod's own controller has {MANAGING_PRIORITY}. Required.",
    },
    LabelSelector: {
        "": "Conditions on labels, all of which must hold.",
        "matchLabels": "Labels that must have exactly these values.",
        "matchExpressions": "Conditions of other kinds.",
    },
    LabelRequirement: {
        "": "One condition on one label.",
        "key": "The label.",
        "operator": "In and NotIn compare with values, Exists and DoesNotExist ask for the label "
        "itself. NotIn holds where the label is missing, too.",
        "values": "What to compare with; none for Exists and DoesNotExist.",
    },
}
