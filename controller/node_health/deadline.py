"""Deletes pods of failed nodes that were asked to leave and have not gone in time.

As Kubernetes' own taint eviction does, which asks no budget and no responder. Off unless there is a
deadline. See ADR 64.
"""

from collections.abc import Iterator
from contextlib import suppress

import structlog

from cluster.client import Cluster
from cluster.failures import Conflict, Missing
from cluster.informer import Informer
from cluster.key import Key
from cluster.recorder import Say
from cluster.resources import NODES
from controller.eviction.routing import NODE_DEADLINE, Item
from controller.eviction.writer import Writer
from controller.node_health.metrics import NodeMetrics
from controller.node_health.planning.occurrences import deleted_overdue
from controller.node_health.planning.plan import NodeHealthPlan
from controller.node_health.planning.zones import Node
from controller.node_health.view import NodeView

_log = structlog.get_logger()


class NodeDeadline:
    """Each pod is an item of the work queue."""

    def __init__(
        self,
        cluster: Cluster,
        nodes: NodeView,
        informer: Informer[Node],
        writer: Writer,
        say: Say,
        metrics: NodeMetrics,
    ) -> None:
        """Bind to the parts of a controller."""
        self._cluster = cluster
        self._nodes = nodes
        self._informer = informer
        self._writer = writer
        self._say = say
        self._metrics = metrics
        self.clear()

    def clear(self) -> None:
        """Forget everything; nobody may be at work."""
        self._overdue: set[Item] = set()
        """What the last plan has found."""
        self._pending: set[Item] = set()

    def schedule(self, plan: NodeHealthPlan) -> Iterator[Item]:
        """Take over what is overdue; gives the items that are new."""
        self._overdue = {Item(NODE_DEADLINE, own.key, own.pod_uid) for own in plan.overdue}
        new = self._overdue - self._pending
        self._pending |= new
        yield from sorted(new)

    async def run(self, item: Item) -> None:
        """Delete the pod, if it is still overdue and its node is down at this moment.

        Raises ClusterFailure, and what :class:`controller.eviction.writer.Writer` raises.
        """
        if self._is_overdue(item) and await self._look(item.target) and self._is_overdue(item):
            await self._delete(item)
        self._pending.discard(item)

    def _is_overdue(self, item: Item) -> bool:
        node = self._nodes.node_of(item.target)
        return item in self._overdue and node is not None and not node.is_healthy

    async def _look(self, uid: str) -> bool:
        """Have the node of the pod seen as it is at this moment; False: it is gone."""
        node = self._nodes.node_of(uid)
        if node is None:
            return False
        try:
            self._informer.learn(await self._cluster.get(NODES, Key("", node.name)))
        except Missing:
            return False  # the pod garbage collector sees to what was on it
        return True

    async def _delete(self, item: Item) -> None:
        pod, node = self._nodes.pod_of(item.target), self._nodes.node_of(item.target)
        if pod is None or node is None:
            return
        # Somebody was faster, or it is another pod by now.
        with suppress(Missing, Conflict):
            await self._writer.delete_pod(pod.key, pod.uid)
            self._metrics.overdue.labels(*node.zone).inc()
            occurrence = deleted_overdue(node)
            _log.warning(occurrence.message, namespace=pod.key.namespace, pod=pod.key.name)
            reference = {"apiVersion": "v1", "kind": "Pod", "namespace": pod.key.namespace}
            self._say(reference | {"name": pod.key.name, "uid": pod.uid}, occurrence)
