"""The policies that say which pods get responders: ``usher.dev/v1alpha1``, Usher's own API.

The same style as :mod:`rules.api`, and the same entries: what a policy lists is what a pod could
list itself, so the limits of both are one.

Source: docs/adr/0050-mutations.md. Label selectors are those of apimachinery,
``pkg/apis/meta/v1/types.go``, Kubernetes 1.37.2.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Final, TypeAlias

from rules.api import ApiType, Int32, ObjectMeta, ObservedGeneration, PodResponders
from rules.constraints import Minimum, OneOf, Required

POLICY_GROUP: Final = "usher.dev"
POLICY_VERSION: Final = "v1alpha1"
POLICY_API_VERSION: Final = f"{POLICY_GROUP}/{POLICY_VERSION}"


class Operator(StrEnum):
    """How a selector compares a label with values (``LabelSelectorOperator``)."""

    IN = "In"
    NOT_IN = "NotIn"
    EXISTS = "Exists"
    DOES_NOT_EXIST = "DoesNotExist"


COMPARING: Final = (Operator.IN, Operator.NOT_IN)
"""The operators that need values; the others may not have any."""


class LabelRequirement(ApiType):
    """One condition on one label (``LabelSelectorRequirement``)."""

    key: Annotated[str, Required()] = ""
    operator: Annotated[str, Required(), OneOf(tuple(Operator))] = ""
    values: tuple[str, ...] = ()


class LabelSelector(ApiType):
    """Conditions that must all hold (``metav1.LabelSelector``); without any, everything fits."""

    match_labels: dict[str, str] = {}
    match_expressions: tuple[LabelRequirement, ...] = ()


class ResponderPolicySpec(ApiType):
    """Which pods get which responders."""

    pod_selector: Annotated[LabelSelector | None, Required()] = None
    responders: PodResponders = ()


class ClusterResponderPolicySpec(ResponderPolicySpec):
    """The same, for pods in the namespaces that fit a selector; without one, in all of them."""

    namespace_selector: LabelSelector | None = None


class PolicyStatus(ApiType):
    """What has become of a policy; written by the controller."""

    observed_generation: ObservedGeneration = None
    matched_pods: Annotated[Int32 | None, Minimum(0)] = None


class ResponderPolicy(ApiType):
    """Registers responders for pods of its own namespace."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    spec: ResponderPolicySpec = ResponderPolicySpec()
    status: PolicyStatus = PolicyStatus()


class ClusterResponderPolicy(ApiType):
    """Registers responders for pods of many namespaces."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    spec: ClusterResponderPolicySpec = ClusterResponderPolicySpec()
    status: PolicyStatus = PolicyStatus()


AnyPolicy: TypeAlias = ResponderPolicy | ClusterResponderPolicy


def selects(selector: LabelSelector | None, labels: Mapping[str, str]) -> bool:
    """Whether ``labels`` fulfil ``selector``, which must be well formed; None fits everything."""
    if selector is None:
        return True
    return all(labels.get(key) == value for key, value in selector.match_labels.items()) and all(
        _holds(requirement, labels) for requirement in selector.match_expressions
    )


def _holds(requirement: LabelRequirement, labels: Mapping[str, str]) -> bool:
    value = labels.get(requirement.key)
    match requirement.operator:
        case Operator.IN:
            return value in requirement.values
        case Operator.NOT_IN:  # holds without the label, too
            return value not in requirement.values
        case Operator.EXISTS:
            return value is not None
        case _:
            return value is None
