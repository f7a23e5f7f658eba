"""What happens to failed nodes and their pods, in the words of a Kubernetes Event. Pure."""

from cluster.event import Occurrence
from controller.node_health.planning.zones import Node, Zone, ZoneState, ZoneStatus


def asked_to_leave(node: Node, pods: int) -> Occurrence:
    """It is the turn of a failed node."""
    words = f"The node is {node.health}: {_pods(pods)} asked to leave."
    return Occurrence("EvictingPods", words, is_warning=True)


def tainted(node: Node, pods: int) -> Occurrence:
    """A node has taints that its pods do not tolerate, or no longer."""
    keys = ", ".join(sorted({taint.key for taint in node.taints}))
    words = f"The node has NoExecute taints ({keys}): {_pods(pods)} asked to leave."
    return Occurrence("EvictingPods", words)


def deleted_overdue(node: Node) -> Occurrence:
    """A pod was deleted that was asked to leave and had not gone in time."""
    words = f"The node {node.name} is {node.health}, and the pod did not leave in time: deleted."
    return Occurrence("DeletedOverdue", words, is_warning=True)


def may_stay(pods: int, *, is_down: bool) -> Occurrence:
    """Nobody asks any more for what was asked of the pods of a node."""
    why = "No node of the cluster is healthy" if is_down else "The node may keep them"
    return Occurrence("EvictionsWithdrawn", f"{why}: {_pods(pods)} no longer asked to leave.")


def zone_changed(zone: Zone, status: ZoneStatus) -> Occurrence:
    """A zone is in another state, or evictions there have another rate."""
    words = f"Zone {zone}: {status.state}, {status.unhealthy} of {status.nodes} nodes unhealthy"
    rate = f"at most {status.rate:g} nodes per second are evicted"
    words = f"{words}; {rate if status.rate else 'no nodes are evicted'}."
    is_normal = status.state is ZoneState.NORMAL
    return Occurrence("ZoneChanged", words, is_warning=not is_normal)


def _pods(number: int) -> str:
    return f"{number} pod is" if number == 1 else f"{number} pods are"
