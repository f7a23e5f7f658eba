"""The pods of failed nodes that a PodDisruptionBudget would keep there, as things stand.

Source: Kubernetes pkg/registry/core/pod/storage/eviction.go, of which this is the part that decides
without writing anything.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from cluster.key import Key
from controller.node_health.planning.pods import GRACE, NodePod, PodMeta, PodObject, PodStatus
from controller.node_health.planning.zones import Node
from rules.api import ApiType, Condition, Int64
from rules.policies import LabelSelector, selects

ALWAYS_ALLOW: Final = "AlwaysAllow"
_MOST_DISRUPTED: Final = 2000
"""Pods under way, beyond which a budget allows none (``MaxDisruptedPodSize``)."""
_UNGUARDED_PHASES: Final = frozenset({"Pending", "Succeeded", "Failed"})


class BudgetMeta(ApiType):
    """The fields of a budget's metadata that count."""

    name: str = ""
    namespace: str = ""
    generation: Int64 = 0


class BudgetSpec(ApiType):
    """The fields of a budget's spec that count."""

    selector: LabelSelector | None = None
    unhealthy_pod_eviction_policy: str = ""


class BudgetStatus(ApiType):
    """What the disruption controller has counted."""

    observed_generation: Int64 = 0
    disruptions_allowed: Int64 = 0
    current_healthy: Int64 = 0
    desired_healthy: Int64 = 0
    disrupted_pods: dict[str, Any] = {}


class DisruptionBudget(ApiType):
    """A ``policy/v1 PodDisruptionBudget``, as the API serves it."""

    metadata: BudgetMeta = BudgetMeta()
    spec: BudgetSpec = BudgetSpec()
    status: BudgetStatus = BudgetStatus()


class GuardedMeta(PodMeta):
    """The fields of a pod's metadata that count."""

    labels: dict[str, str] = {}


class GuardedStatus(PodStatus):
    """The fields of a pod's status that count."""

    conditions: tuple[Condition, ...] = ()


class GuardedObject(PodObject):
    """A pod, as the API serves it."""

    metadata: GuardedMeta = GuardedMeta()
    status: GuardedStatus = GuardedStatus()


class GuardedPod(NamedTuple):
    """What an API server looks at before it evicts a pod."""

    place: NodePod
    labels: Mapping[str, str]
    phase: str
    is_ready: bool


class Refusal(NamedTuple):
    """A pod that would not be evicted."""

    pod: Key
    node: str
    budget: str
    reason: str


def refusals(
    nodes: Mapping[str, Node], pods: Iterable[GuardedPod], budgets: Iterable[DisruptionBudget]
) -> Iterator[Refusal]:
    """Those of the ``pods`` that have to leave an unhealthy node and would not get away."""
    known = list(budgets)
    for pod in pods:
        node = nodes.get(pod.place.node)
        if node is None or GRACE[node.health](pod.place) is None:
            continue
        guards = [budget for budget in known if _guards(budget, pod)]
        if (refusal := _refusal(pod, guards)) is not None:
            yield Refusal(pod.place.key, node.name, *refusal)


def _guards(budget: DisruptionBudget, pod: GuardedPod) -> bool:
    selector = budget.spec.selector
    is_there = budget.metadata.namespace == pod.place.key.namespace
    return is_there and selector is not None and selects(selector, pod.labels)


def _refusal(pod: GuardedPod, guards: list[DisruptionBudget]) -> tuple[str, str] | None:
    if pod.phase in _UNGUARDED_PHASES or not guards:
        return None
    if len(guards) > 1:
        names = ", ".join(sorted(budget.metadata.name for budget in guards))
        return names, "a pod with more than one budget is never evicted"
    (budget,) = guards
    if not pod.is_ready and _lets_unhealthy_go(budget):
        return None
    reason = _spent(budget)
    return (budget.metadata.name, reason) if reason is not None else None


def _lets_unhealthy_go(budget: DisruptionBudget) -> bool:
    status = budget.status
    if budget.spec.unhealthy_pod_eviction_policy == ALWAYS_ALLOW:
        return True
    return status.current_healthy >= status.desired_healthy > 0


def _spent(budget: DisruptionBudget) -> str | None:
    status = budget.status
    if status.observed_generation < budget.metadata.generation:
        return "it has not been counted yet"
    if len(status.disrupted_pods) > _MOST_DISRUPTED:
        return "too many evictions are under way"
    if status.disruptions_allowed > 0:
        return None
    wanted, healthy = status.desired_healthy, status.current_healthy
    return f"it wants {wanted} healthy pods, and {healthy} are"
