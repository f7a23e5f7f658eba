"""What plans about failed nodes depend on: nodes, pods by their nodes, and the own requests.

Brought up to date change by change, because a large cluster has more than could be sorted anew for
every plan. Pure.
"""

from collections import defaultdict
from collections.abc import Mapping
from datetime import datetime, timedelta

from cluster.key import Key
from cluster.store import Change, Entry, Store
from controller.eviction.view import KnownPod, read_pod
from controller.node_health.planning.budget import Budget
from controller.node_health.planning.outage import Outage
from controller.node_health.planning.plan import NodeHealthSnapshot, request_name
from controller.node_health.planning.pods import NodePod, OwnRequest, PodObject, Pods, has_to_leave
from controller.node_health.planning.zones import Node, NodeObject, Zone
from rules.api import EvictionRequest
from rules.decode import Encoded, decode
from rules.mutation import Mode


class NodeView:
    """Nodes and what is on them. Each method about a change says whether plans may change by it."""

    def __init__(self, requester: str) -> None:
        """``requester``: as whom pods are asked to leave."""
        self._requester = requester
        self.store: Store[Node] = Store()
        """The nodes, as their informer keeps them."""
        self.nodes: dict[str, Node] = {}
        self._pods: dict[str, NodePod] = {}
        self._by_node: defaultdict[str, dict[NodePod, None]] = defaultdict(dict)
        self._own: dict[Key, OwnRequest] = {}
        self._asked: set[str] = set()
        """UIDs of the pods that have a request."""

    def node(self, change: Change[Node], now: datetime) -> bool:
        """A node has come, gone, or changed in what counts, at about ``now``."""
        old, new = change
        if new is not None:
            before = self.nodes.get(new.key.name) if old and old.uid == new.uid else None
            self.nodes[new.key.name] = new.value.after(before, now)
        elif old is not None:
            del self.nodes[old.key.name]
        return True

    def pod(self, change: Change[KnownPod]) -> bool:
        """A pod has come, gone, or changed; most are on healthy nodes, and nobody asks."""
        old, new = (entry.value.place if entry else None for entry in change)
        if old is not None and old != new:
            del self._pods[old.uid]
            pods = self._by_node[old.node]
            del pods[old]
            if not pods:
                del self._by_node[old.node]
        if new is not None and old != new:
            self._pods[new.uid] = new
            self._by_node[new.node][new] = None
        return old != new and any(map(self._matters, filter(None, (old, new))))

    def request(self, change: Change[EvictionRequest]) -> bool:
        """An EvictionRequest has come, gone or changed."""
        old, new = (own_request(entry, self._requester) if entry else None for entry in change)
        if old is not None:
            del self._own[old.key]
            self._asked.discard(old.pod_uid)
        if new is not None:
            self._own[new.key] = new
            self._asked.add(new.pod_uid)
        return old != new

    def subject(self, name: str) -> dict[str, str] | None:
        """A reference to the node ``name``."""
        entry = self.store.get(Key("", name))
        if entry is None:
            return None
        reference = {"apiVersion": "v1", "kind": "Node", "namespace": "", "name": name}
        return reference | {"uid": entry.uid}

    def node_of(self, uid: str) -> Node | None:
        """The node of the pod with that UID."""
        pod = self._pods.get(uid)
        return self.nodes.get(pod.node) if pod is not None else None

    def pod_of(self, uid: str) -> NodePod | None:
        """The pod with that UID."""
        return self._pods.get(uid)

    def has_to_leave(self, uid: str) -> bool:
        """Whether the node of the pod with that UID is such that it can't stay for ever."""
        pod = self._pods.get(uid)
        node = self.nodes.get(pod.node) if pod is not None else None
        return pod is not None and node is not None and has_to_leave(pod, node)

    def requests(self) -> dict[str, OwnRequest]:
        """UID of a pod → the own request for it.

        One in another namespace than its pod is nobody's: it must not stand for the real one.
        """
        pods = self._pods
        return {
            own.pod_uid: own
            for own in self._own.values()
            if own.pod_uid not in pods or pods[own.pod_uid].key.namespace == own.key.namespace
        }

    def snapshot(
        self,
        requests: Mapping[str, OwnRequest],
        budgets: Mapping[Zone, Budget],
        elapsed: timedelta,
        outage: Outage | None = None,
    ) -> NodeHealthSnapshot:
        """What a plan depends on; good until the next change."""
        pods = Pods(self._pods, self._by_node)
        return NodeHealthSnapshot(self.nodes, pods, requests, budgets, elapsed, outage)

    def _matters(self, pod: NodePod) -> bool:
        node = self.nodes.get(pod.node)
        return pod.uid in self._asked or (
            node is not None and (not node.is_healthy or bool(node.taints))
        )


def own_request(entry: Entry[EvictionRequest], requester: str) -> OwnRequest | None:
    """What is to be known of an EvictionRequest if ``requester`` has made it for a node's sake.

    The name counts, too: who has the right to use the name of the requester may do so for reasons
    of his own.
    """
    pod = entry.value.spec.target.pod
    if pod is None or entry.value.spec.requester != requester:
        return None
    return OwnRequest.of(entry.value) if entry.key.name == request_name(pod.uid) else None


def read_pod_on_node(document: Encoded, mode: Mode = Mode.AUTO) -> KnownPod:
    """What counts of a pod, its node included. Raises DecodeError."""
    place = NodePod.of(decode(PodObject, document), mode)
    return read_pod(document, mode)._replace(place=place)


def read_node(document: Encoded) -> Node:
    """What counts of a node, a small part of it. Raises DecodeError."""
    return Node.of(decode(NodeObject, document))
