"""The shapes of ``lifecycle.k8s.io/v1alpha1`` and of what pods declare, with their limits.

Models check types only. Limits stand beside each field as :mod:`rules.constraints`, because a limit
in pydantic would refuse updates of stored objects that predate it, and would speak pydantic's
dialect. An absent field has Go's zero value: "" for a text, () for a list, None for a pointer.

Source: ``k8s.io/api/lifecycle/v1alpha1/types.go``, ``k8s.io/api/core/v1/types.go`` and
``k8s.io/apimachinery/pkg/apis/meta/v1/types.go`` of Kubernetes :data:`UPSTREAM_VERSION`.
"""

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, Final, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, GetPydanticSchema
from pydantic.alias_generators import to_camel
from pydantic_core import core_schema

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
from rules.times import TIME_HELP, parse_time

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


# Texts are read as Go reads them; a datetime is taken as it is. Plain schemas instead of a Python
# function around both, because a status holds many instants.
Time: TypeAlias = Annotated[
    datetime,
    GetPydanticSchema(
        lambda _source, _handler: core_schema.union_schema(
            [
                core_schema.no_info_after_validator_function(
                    parse_time, core_schema.str_schema(strict=True)
                ),
                core_schema.datetime_schema(strict=True, tz_constraint="aware"),
            ],
            mode="left_to_right",
            custom_error_type="time",
            custom_error_message=TIME_HELP,
        )
    ),
]
Int32: TypeAlias = Annotated[int, Field(ge=-(2**31), le=2**31 - 1)]
Int64: TypeAlias = Annotated[int, Field(ge=-(2**63), le=2**63 - 1)]
# A JSON list becomes a tuple, which pydantic's strict mode would refuse; the items stay strict.
_LIST: Final = Field(strict=False)


class Shape(BaseModel):
    """Base of all shapes: frozen, camelCase outside, strict types, unknown fields ignored."""

    model_config = ConfigDict(
        frozen=True, strict=True, extra="ignore", alias_generator=to_camel, populate_by_name=True
    )

    def __eq__(self, other: object) -> bool:
        """Compare field by field; pydantic's own way takes five times as long."""
        return self is other or (type(self) is type(other) and self.__dict__ == other.__dict__)

    __hash__ = None  # type: ignore[assignment]


class OwnerReference(Shape):
    """``metav1.OwnerReference``."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None
    block_owner_deletion: bool | None = None


class ObjectMeta(Shape):
    """``metav1.ObjectMeta``, without ``managedFields``, which no rule reads."""

    name: str = ""
    generate_name: str = ""
    namespace: str = ""
    self_link: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: Int64 = 0
    creation_timestamp: Time | None = None
    deletion_timestamp: Time | None = None
    deletion_grace_period_seconds: Int64 | None = None
    labels: dict[str, str] = Field(default_factory=dict)
    annotations: dict[str, str] = Field(default_factory=dict)
    owner_references: Annotated[tuple[OwnerReference, ...], _LIST] = ()
    finalizers: Annotated[tuple[str, ...], _LIST] = ()
    managed_fields: Any = None


class Condition(Shape):
    """``metav1.Condition``; judged by the rule ``well-formed-conditions``."""

    type: str = ""
    status: str = ""
    observed_generation: Int64 = 0
    last_transition_time: Time | None = None
    reason: str = ""
    message: str = ""


Conditions: TypeAlias = Annotated[tuple[Condition, ...], _LIST, MaxItems(MAX_CONDITIONS)]
ObservedGeneration: TypeAlias = Annotated[Int64 | None, NeverUnset(), Minimum(1), NeverDecreases()]


class PodReference(Shape):
    """A pod in the same namespace (``EvictionPodReference``)."""

    name: Annotated[str, Required(), LongName()] = ""
    uid: Annotated[str, Required(), Uuid()] = ""


class Target(Shape):
    """What is to be evicted (``EvictionTarget``, ``EvictionRequestTarget``)."""

    pod: PodReference | None = None


TargetField: TypeAlias = Annotated[Target, Immutable(), ExactlyOneMember(("pod",))]


class EvictionRequestSpec(Shape):
    """Who wants which target gone."""

    target: TargetField = Target()
    requester: Annotated[str, Immutable(), Required(), UnreservedDomain(), PrefixedKey()] = ""
    intent: Annotated[str, Required(), OneOf(tuple(Intent))] = ""


class EvictionRequestStatus(Shape):
    """What has become of a request; its conditions may go back and forth."""

    conditions: Conditions = ()
    observed_generation: ObservedGeneration = None


class EvictionRequest(Shape):
    """Somebody wants a pod gone."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    spec: EvictionRequestSpec = EvictionRequestSpec()
    status: EvictionRequestStatus = EvictionRequestStatus()


class EvictionSpec(Shape):
    """The target of the one process that evicts it."""

    target: TargetField = Target()


class Requester(Shape):
    """Somebody who asked for the eviction, and what they want now."""

    name: Annotated[str, Required(), PrefixedKey()] = ""
    intent: Annotated[str, Required(), OneOf(tuple(Intent))] = ""


class TargetResponder(Shape):
    """A responder's place in the order and its state; the controller's half."""

    name: Annotated[str, Required(), PrefixedKey()] = ""
    priority: Annotated[Int32 | None, Required(), SetOnce(), Maximum(MAX_PRIORITY), Minimum(0)] = (
        None
    )
    state: Annotated[str, Required(), OneOf(tuple(ResponderState))] = ""


class ResponderStatus(Shape):
    """What a responder reports; the responder's half.

    ``message`` distinguishes unset from "", as a Go pointer does.
    """

    name: Annotated[str, Required(), PrefixedKey()] = ""
    start_time: Annotated[Time | None, SetOnce()] = None
    heartbeat_time: Time | None = None
    expected_completion_time: Time | None = None
    completion_time: Annotated[Time | None, SetOnce()] = None
    message: Annotated[str | None, MaxLength(MAX_MESSAGE)] = None


class EvictionStatus(Shape):
    """How far an eviction has come."""

    conditions: Conditions = ()
    observed_generation: ObservedGeneration = None
    requesters: Annotated[
        tuple[Requester, ...], _LIST, MaxItems(MAX_REQUESTERS), Unique("name")
    ] = ()
    target_responders: Annotated[
        tuple[TargetResponder, ...], _LIST, MaxItems(MAX_TARGET_RESPONDERS), Unique("name")
    ] = ()
    responders: Annotated[
        tuple[ResponderStatus, ...], _LIST, MaxItems(MAX_TARGET_RESPONDERS), Unique("name")
    ] = ()


class Eviction(Shape):
    """The one process that evicts a target."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    spec: EvictionSpec = EvictionSpec()
    status: EvictionStatus = EvictionStatus()


class EvictionResponder(Shape):
    """A responder that a pod registers (core/v1 ``EvictionResponder``)."""

    name: Annotated[str, Required(), UnreservedDomain(), PrefixedKey()] = ""
    priority: Annotated[
        Int32 | None, Required(), UnreservedPriority(), Maximum(MAX_PRIORITY), Minimum(0)
    ] = None


PodResponders: TypeAlias = Annotated[
    tuple[EvictionResponder, ...], _LIST, MaxItems(MAX_POD_RESPONDERS), Unique("name")
]


class PodSpec(Shape):
    """The fields of a pod's spec that concern eviction."""

    eviction_responders: PodResponders = ()
    scheduling_group: Any = None


class Pod(Shape):
    """A pod, or the template of one, as far as eviction is concerned."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()
