"""A cluster whose nodes fail and recover by hand: three zones, and pods on every node.

Pods run by a fake kubelet (kwok); the state of nodes is written here, as kubelets and the node
lifecycle controller would: the Ready condition and, with it, the taint.
"""

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any, Final, NamedTuple

from controller.node_health.planning.plan import REQUESTER
from controller.node_health.planning.zones import REGION_LABEL, ZONE_LABEL, Health
from rules.api import API_VERSION, RESPONDERS_ANNOTATION
from tests.controller.program import present
from tests.controlplane import Mode, NoToolchainError, binary_path, parts
from tests.controlplane.availability import skip_or_fail
from tests.controlplane.commands import kubelet_arguments
from tests.e2e.api import MERGE_PATCH, Answer, Object
from tests.e2e.cluster import Cluster, running_cluster
from tests.e2e.waiting import eventually

REGION: Final = "eu-1"
ZONES: Final = ("a", "b", "c")
PATIENT: Final = "db.acme.io/failover"
"""A responder that never says anything: pods that have it stay for 20 minutes."""
_TOLERATIONS: Final = [
    {
        "key": health.taint,
        "operator": "Exists",
        "effect": "NoExecute",
        "tolerationSeconds": 0,
    }
    for health in (Health.NOT_READY, Health.UNREACHABLE)
]
_STATUS: Final = {Health.READY: "True", Health.NOT_READY: "False", Health.UNREACHABLE: "Unknown"}
_BY_HAND: Final = {
    "apiVersion": "kwok.x-k8s.io/v1alpha1",
    "kind": "Stage",
    "metadata": {"name": "node-by-hand"},
    "spec": {
        "resourceRef": {"apiGroup": "v1", "kind": "Node"},
        "selector": {"matchLabels": {"state": "left-to-kwok"}},
        "next": {"statusTemplate": "phase: Running"},
    },
}
"""Without any stage kwok has its own, by which every node is ready."""
_THREADS: Final = 8
REQUESTS: Final = "/apis/lifecycle.k8s.io/v1alpha1/evictionrequests"


class Asked(NamedTuple):
    """An EvictionRequest that was made, by the audit log."""

    time: datetime
    pod: str
    node: str
    zone: str


class Bed:
    """Nodes ``<zone>-<number>``, all in one cluster, with their pods in one namespace."""

    def __init__(self, cluster: Cluster, labels: Mapping[str, str] | None = None) -> None:
        self.cluster = cluster
        self.namespace = cluster.new_namespace(labels)

    # --- setting the scene ----------------------------------------------------------------------

    def create_nodes(self, number: int) -> None:
        """So many in each zone, and all are ready."""
        names = [f"{zone}-{position:02}" for zone in ZONES for position in range(number)]
        self._each(names, self._create_node)

    def create_pods(self, number: int, responders: Callable[[str], Iterable[str]]) -> None:
        """So many, spread over all nodes; ``responders``: those of the pods of a node."""
        nodes = sorted(self.nodes())
        names = [f"{nodes[n % len(nodes)]}-pod-{n // len(nodes)}" for n in range(number)]
        self._each(names, lambda name: self.create_pod(name, responders(node_of(name))))

    def create_budget(self, app: str) -> None:
        """A PodDisruptionBudget of the pods with the label ``app``, of which one must be there."""
        spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": app}}}
        path = f"/apis/policy/v1/namespaces/{self.namespace}/poddisruptionbudgets"
        self._call("POST", path, {"metadata": {"name": app}, "spec": spec})

    def create_pod(
        self,
        name: str,
        responders: Iterable[str] = (),
        labels: Mapping[str, str] | None = None,
        **spec: Any,
    ) -> Object:
        """A pod called ``<node>-pod-<anything>``; it tolerates failures for no moment."""
        declared = [{"name": responder, "priority": 9000} for responder in responders]
        metadata: Object = {"name": name, "labels": labels or {}}
        body = {
            "nodeName": node_of(name),
            "containers": [{"name": "c", "image": "c"}],
            "tolerations": _TOLERATIONS,
            **spec,
        }
        if declared and self.cluster.is_native:
            body["evictionResponders"] = declared
        elif declared:
            metadata["annotations"] = {RESPONDERS_ANNOTATION: json.dumps(declared)}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": body}
        created: Object = self._call("POST", self._pods(), pod).body
        return created

    def request(self, pod: Object) -> None:
        """Let somebody else ask ``pod`` to leave."""
        metadata = pod["metadata"]
        target = {"pod": {"name": metadata["name"], "uid": metadata["uid"]}}
        spec = {"target": target, "requester": "other.acme.io/drain", "intent": "Eviction"}
        body = {
            "apiVersion": API_VERSION,
            "kind": "EvictionRequest",
            "metadata": {"name": f"other-{metadata['name']}"},
            "spec": spec,
        }
        namespaced = f"/apis/{API_VERSION}/namespaces/{self.namespace}/evictionrequests"
        self._call("POST", namespaced, body)

    def turn(self, health: Health, *nodes: str) -> None:
        """Let nodes get into a state."""
        self._each(nodes, partial(self._turn, health))

    def taint(self, node: str, *taints: Object) -> None:
        """Give a healthy node these taints, and no others."""
        change = {"spec": {"taints": list(taints)}}
        self._call("PATCH", f"/api/v1/nodes/{node}", change, content_type=MERGE_PATCH)

    def _create_node(self, name: str) -> None:
        labels = {REGION_LABEL: REGION, ZONE_LABEL: name.partition("-")[0]}
        self._call("POST", "/api/v1/nodes", {"metadata": {"name": name, "labels": labels}})
        self._turn(Health.READY, name)

    def _turn(self, health: Health, node: str) -> None:
        path, now = f"/api/v1/nodes/{node}", present()
        ready = {"type": "Ready", "status": _STATUS[health], "lastTransitionTime": now}
        change = {"status": {"conditions": [ready | {"reason": "ByHand", "message": ""}]}}
        self._call("PATCH", f"{path}/status", change, content_type=MERGE_PATCH)
        taint = {"key": health.taint, "effect": "NoExecute", "timeAdded": now}
        taints = [] if health is Health.READY else [taint]
        self._call("PATCH", path, {"spec": {"taints": taints}}, content_type=MERGE_PATCH)

    def _each(self, names: Iterable[str], do: Callable[[str], object]) -> None:
        with ThreadPoolExecutor(_THREADS) as pool:
            for _ in pool.map(do, names):
                pass

    def _call(self, method: str, path: str, body: Any = None, **more: Any) -> Answer:
        answer = self.cluster.api(method, path, body, **more)
        assert answer.ok, answer.message
        return answer

    def _pods(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}/pods"

    # --- looking --------------------------------------------------------------------------------

    def nodes(self, *zones: str) -> list[str]:
        """The names of the nodes, or of those in ``zones``."""
        items = self._call("GET", "/api/v1/nodes").body["items"]
        names = (item["metadata"]["name"] for item in items)
        return sorted(name for name in names if not zones or name.partition("-")[0] in zones)

    def pods(self, *nodes: str) -> set[str]:
        """The names of the pods that are there and not being deleted, on ``nodes`` or on all."""
        return {
            item["metadata"]["name"]
            for item in self._call("GET", self._pods()).body["items"]
            if "deletionTimestamp" not in item["metadata"]
            and (not nodes or item["spec"]["nodeName"] in nodes)
        }

    def requests(self, intent: str = "") -> dict[str, Object]:
        """Name of a pod → its EvictionRequest by the controller, of that intent or of any."""
        return {
            item["spec"]["target"]["pod"]["name"]: item
            for item in self._call("GET", REQUESTS).body["items"]
            if item["spec"]["requester"] == REQUESTER and intent in ("", item["spec"]["intent"])
        }

    def asked_nodes(self) -> set[str]:
        """The nodes whose pods are asked to leave."""
        return {node_of(pod) for pod in self.requests("Eviction")}

    def asked(self) -> list[Asked]:
        """Every EvictionRequest that the controller has made so far, in order."""
        found = []
        for event in self.cluster.plane.audit_events():
            reference = event.get("objectRef", {})
            is_creation = (
                event["verb"] == "patch"
                and reference.get("resource") == "evictionrequests"
                and "subresource" not in reference
                and event.get("responseStatus", {}).get("code") == 201
            )
            if is_creation and reference.get("namespace") == self.namespace:
                pod = event["requestObject"]["spec"]["target"]["pod"]["name"]
                node = node_of(pod)
                time = datetime.fromisoformat(event["stageTimestamp"])
                found.append(Asked(time, pod, node, node.partition("-")[0]))
        return sorted(found)

    def events(self, reason: str) -> list[Object]:
        """The Events of that reason, wherever they are."""
        items = self._call("GET", "/api/v1/events").body["items"]
        return [item for item in items if item["reason"] == reason]

    def wait_until_gone(self, *nodes: str) -> None:
        """Return when there is no request for any pod of ``nodes``, or of all."""
        eventually(
            lambda: not {p for p in self.requests() if not nodes or node_of(p) in nodes},
            "the requests are deleted",
        )


def node_of(pod: str) -> str:
    """The node of the pod of that name."""
    return pod.partition("-pod-")[0]


class Turn(NamedTuple):
    """What arrived at the API server of one turn of a node."""

    node: str
    first: datetime
    last: datetime
    pods: int


def turns(asked: Iterable[Asked]) -> dict[str, list[Turn]]:
    """Zone → its turns in order.

    Turns of one node that follow each other count as one: nobody could tell them from outside.
    """
    found: defaultdict[str, list[Turn]] = defaultdict(list)
    for each in sorted(asked):
        zone = found[each.zone]
        if zone and zone[-1].node == each.node:
            zone[-1] = zone[-1]._replace(last=each.time, pods=zone[-1].pods + 1)
        else:
            zone.append(Turn(each.node, each.time, each.time, 1))
    return found


@contextmanager
def running_bed(mode: Mode) -> Iterator[Cluster]:
    """A cluster with an audit log, Kubernetes' own controllers, and kwok for pods alone."""
    try:
        with running_cluster(mode, audit=True) as cluster:
            cluster.plane.start_controller_manager()
            kwok = parts.start(_pods_only(cluster), cluster.plane.folder)
            try:
                yield cluster
            finally:
                kwok.stop(patience=0)
    except NoToolchainError as error:
        skip_or_fail(str(error))


def _pods_only(cluster: Cluster) -> parts.Part:
    kubeconfig = cluster.plane.kubeconfig()
    by_hand = cluster.plane.folder / "node-by-hand.yaml"
    by_hand.write_text(json.dumps(_BY_HAND))
    stages = [by_hand, *sorted(binary_path("kwok").parent.glob("pod-*.yaml"))]
    return replace(
        parts.kubelet(kubeconfig),
        arguments=lambda port: kubelet_arguments(port, kubeconfig, stages),
    )
