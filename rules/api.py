"""The shapes of ``lifecycle.k8s.io/v1alpha1`` and of what pods declare, with their limits.

Structs check types only. Limits stand beside each field as :mod:`rules.constraints`, because a
limit in msgspec would refuse updates of stored objects that predate it, and would speak msgspec's
dialect. An absent field has Go's zero value: "" for a text, () for a list, None for a pointer.

Source: ``k8s.io/api/lifecycle/v1alpha1/types.go``, ``k8s.io/api/core/v1/types.go`` and
``k8s.io/apimachinery/pkg/apis/meta/v1/types.go`` of Kubernetes :data:`UPSTREAM_VERSION`.
"""

from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias, dataclass_transform

from msgspec import Meta, Struct, field

from rules.constraints import (
    ExactlyOneMember,
    Immutable,
    LongName,
    Maximum,
    MaxItems,
    MaxLength,
    Minimum,
    NeverDecreases,
    NeverUnset,
    OneOf,
    PrefixedKey,
    Required,
    SetOnce,
    Unique,
    UnreservedDomain,
    UnreservedPriority,
    Uuid,
)

UPSTREAM_VERSION: Final = "1.37.2"
"""The Kubernetes release whose verdicts these rules equal."""

GROUP: Final = "lifecycle.k8s.io"
VERSION: Final = "v1alpha1"
API_VERSION: Final = f"{GROUP}/{VERSION}"

EVICTOR: Final = "imperative-eviction.k8s.io/evictor"
"""The default responder, which calls ``pods/<name>/eviction`` (types.go)."""
EVICTOR_PRIORITY: Final = 100
"""The evictor's only lawful priority (pkg/apis/lifecycle/validation)."""
MANAGING_PRIORITY: Final = 10_000
"""What a pod's own controller should register with (types.go, ``priority``)."""

MAX_CONDITIONS: Final = 100
MAX_REQUESTERS: Final = 100
MAX_POD_RESPONDERS: Final = 10
MAX_TARGET_RESPONDERS: Final = MAX_POD_RESPONDERS + 1
"""A pod's own responders and the evictor."""
MAX_PRIORITY: Final = 100_000
MAX_MESSAGE: Final = 4000
"""A responder's message, in characters."""

RESPONDERS_ANNOTATION: Final = "usher.dev/eviction-responders"
"""Carries ``spec.evictionResponders`` as JSON where pods do not have that field."""
MIRROR_ANNOTATION: Final = "kubernetes.io/config.mirror"
"""On what a kubelet shows of a pod that it runs from a file (core/v1,
``MirrorPodAnnotationKey``)."""


class Intent(StrEnum):
    """What a requester wants (``EvictionRequestIntent``, ``RequesterIntent``)."""

    EVICTION = "Eviction"
    WITHDRAWN = "Withdrawn"


class ResponderState(StrEnum):
    """Where a responder stands (``ResponderStateType``)."""

    INACTIVE = "Inactive"
    ACTIVE = "Active"
    INTERRUPTED = "Interrupted"
    CANCELED = "Canceled"
    COMPLETED = "Completed"


class ConditionType(StrEnum):
    """The conditions that the API defines (``EvictionConditionType``)."""

    TARGET_EVICTED = "TargetEvicted"
    FAILED = "Failed"


class ConditionStatus(StrEnum):
    """The three values of a condition (``metav1.ConditionStatus``)."""

    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


if TYPE_CHECKING:
    Time: TypeAlias = datetime
else:

    class _Instants(type):
        def __instancecheck__(cls, value: object) -> bool:
            return isinstance(value, datetime)

    class Time(metaclass=_Instants):
        """A datetime that is read as Go reads it.

        msgspec reads datetimes by itself, and more than Go does. A type that it does not know goes
        through the hook of :mod:`rules.decode` instead.
        """


Int32: TypeAlias = Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)]
Int64: TypeAlias = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
class ApiType(Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """Base of all shapes: camelCase outside, unknown fields ignored.

    Shapes hold no cycles, so that the cyclic collector need not look at them.
    """


UNREAD_METADATA: Final = frozenset({"managedFields", "selfLink"})
"""Fields of ``metav1.ObjectMeta`` that no rule reads."""


class OwnerReference(ApiType):
    """``metav1.OwnerReference``."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None
    block_owner_deletion: bool | None = None


class ObjectMeta(ApiType):
    """``metav1.ObjectMeta``, without what no rule reads (:data:`UNREAD_METADATA`)."""

    name: str = ""
    generate_name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: Int64 = 0
    creation_timestamp: Time | None = None
    deletion_timestamp: Time | None = None
    deletion_grace_period_seconds: Int64 | None = None
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    owner_references: tuple[OwnerReference, ...] = ()
    finalizers: tuple[str, ...] = ()


class Condition(ApiType):
    """``metav1.Condition``; judged by the rule ``well-formed-conditions``."""

    type: str = ""
    status: str = ""
    observed_generation: Int64 = 0
    last_transition_time: Time | None = None
    reason: str = ""
    message: str = ""


Conditions: TypeAlias = Annotated[tuple[Condition, ...], MaxItems(MAX_CONDITIONS)]
ObservedGeneration: TypeAlias = Annotated[Int64 | None, NeverUnset(), Minimum(1), NeverDecreases()]


class PodReference(ApiType):
    """A pod in the same namespace (``EvictionPodReference``)."""

    name: Annotated[str, Required(), LongName()] = ""
    uid: Annotated[str, Required(), Uuid()] = ""


class Target(ApiType):
    """What is to be evicted (``EvictionTarget``, ``EvictionRequestTarget``)."""

    pod: PodReference | None = None


TargetField: TypeAlias = Annotated[Target, Immutable(), ExactlyOneMember(("pod",))]


class EvictionRequestSpec(ApiType):
    """Who wants which target gone."""

    target: TargetField = Target()
    requester: Annotated[str, Immutable(), Required(), UnreservedDomain(), PrefixedKey()] = ""
    intent: Annotated[str, Required(), OneOf(tuple(Intent))] = ""


class EvictionRequestStatus(ApiType):
    """What has become of a request; its conditions may go back and forth."""

    conditions: Conditions = ()
    observed_generation: ObservedGeneration = None


class EvictionRequest(ApiType):
    """Somebody wants a pod gone."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    spec: EvictionRequestSpec = EvictionRequestSpec()
    status: EvictionRequestStatus = EvictionRequestStatus()


class EvictionSpec(ApiType):
    """The target of the one process that evicts it."""

    target: TargetField = Target()


class Requester(ApiType):
    """Somebody who asked for the eviction, and what they want now."""

    name: Annotated[str, Required(), PrefixedKey()] = ""
    intent: Annotated[str, Required(), OneOf(tuple(Intent))] = ""


class TargetResponder(ApiType):
    """A responder's place in the order and its state; the controller's half."""

    name: Annotated[str, Required(), PrefixedKey()] = ""
    priority: Annotated[Int32 | None, Required(), SetOnce(), Maximum(MAX_PRIORITY), Minimum(0)] = (
        None
    )
    state: Annotated[str, Required(), OneOf(tuple(ResponderState))] = ""


class ResponderStatus(ApiType):
    """What a responder reports; the responder's half.

    ``message`` distinguishes unset from "", as a Go pointer does.
    """

    name: Annotated[str, Required(), PrefixedKey()] = ""
    start_time: Annotated[Time | None, SetOnce()] = None
    heartbeat_time: Time | None = None
    expected_completion_time: Time | None = None
    completion_time: Annotated[Time | None, SetOnce()] = None
    message: Annotated[str | None, MaxLength(MAX_MESSAGE)] = None


class EvictionStatus(ApiType):
    """How far an eviction has come."""

    conditions: Conditions = ()
    observed_generation: ObservedGeneration = None
    requesters: Annotated[tuple[Requester, ...], MaxItems(MAX_REQUESTERS), Unique("name")] = ()
    target_responders: Annotated[
        tuple[TargetResponder, ...], MaxItems(MAX_TARGET_RESPONDERS), Unique("name")
    ] = ()
    responders: Annotated[
        tuple[ResponderStatus, ...], MaxItems(MAX_TARGET_RESPONDERS), Unique("name")
    ] = ()


class Eviction(ApiType):
    """The one process that evicts a target."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    spec: EvictionSpec = EvictionSpec()
    status: EvictionStatus = EvictionStatus()


class EvictionResponder(ApiType):
    """A responder that a pod registers (core/v1 ``EvictionResponder``)."""

    name: Annotated[str, Required(), UnreservedDomain(), PrefixedKey()] = ""
    priority: Annotated[
        Int32 | None, Required(), UnreservedPriority(), Maximum(MAX_PRIORITY), Minimum(0)
    ] = None


PodResponders: TypeAlias = Annotated[
    tuple[EvictionResponder, ...], MaxItems(MAX_POD_RESPONDERS), Unique("name")
]


class PodSpec(ApiType):
    """The fields of a pod's spec that concern eviction."""

    eviction_responders: PodResponders = ()
    scheduling_group: Any = None


class Pod(ApiType):
    """A pod, or the template of one, as far as eviction is concerned."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()
