"""Who uses an installed Usher: an application, its responder, and somebody who drains."""

import json
from typing import Any, Final

from rules.api import API_VERSION, RESPONDERS_ANNOTATION
from tests.chart.cluster import Cluster
from tests.controlplane import Mode
from tests.e2e.times import ago
from tests.e2e.waiting import eventually

RESPONDER: Final = "db.acme.io/failover"
REQUESTER: Final = "nodes.acme.io/drain"
RESPONDER_USER: Final = "responder-a"
DRAINER: Final = "drainer"
ROLES: Final = {
    "roles.responder.names": {"failover": [RESPONDER]},
    "roles.requester.names": {"drain": [REQUESTER]},
}
"""Values: the chart makes the ClusterRoles that both users are bound to."""
_MERGE: Final = "application/merge-patch+json"
_LIFECYCLE: Final = f"/apis/{API_VERSION}"
_BINDINGS: Final = "/apis/rbac.authorization.k8s.io/v1"
_PRIORITY: Final = 10_000


class Scene:
    """A namespace with pods that have a responder."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self.cluster = cluster
        self.namespace = namespace
        self._evictions = f"{_LIFECYCLE}/namespaces/{namespace}/evictions"
        self._requests = f"{_LIFECYCLE}/namespaces/{namespace}/evictionrequests"
        self._pods = f"/api/v1/namespaces/{namespace}/pods"
        cluster.call("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
        eventually(
            lambda: cluster.exists(f"/api/v1/namespaces/{namespace}/serviceaccounts/default"),
            "pods can be created",
        )
        for user, role in (
            (RESPONDER_USER, "usher-responder-failover"),
            (DRAINER, "usher-requester-drain"),
        ):
            self._bind(user, role)

    def _bind(self, user: str, role: str) -> None:
        body = {
            "metadata": {"name": user},
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "ClusterRole",
                "name": role,
            },
            "subjects": [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": user}],
        }
        self.cluster.call("POST", f"{_BINDINGS}/namespaces/{self.namespace}/rolebindings", body)

    def create_pod(self, name: str, **more: Any) -> str:
        """A pod that declares the responder; return its UID."""
        listed = [{"name": RESPONDER, "priority": _PRIORITY}]
        is_native = self.cluster.plane.mode is Mode.NATIVE
        annotations = {} if is_native else {RESPONDERS_ANNOTATION: json.dumps(listed)}
        spec = {
            "terminationGracePeriodSeconds": 1,
            "containers": [{"name": "app", "image": "app", "command": ["sleep", "36000"]}],
            **({"evictionResponders": listed} if is_native else {}),
            **more,
        }
        body = {"metadata": {"name": name, "annotations": annotations}, "spec": spec}
        return str(self.cluster.call("POST", self._pods, body)["metadata"]["uid"])

    def ask(self, pod: str, uid: str = "") -> None:
        """As the drainer, ask for the eviction of a pod."""
        body = {
            "apiVersion": API_VERSION,
            "kind": "EvictionRequest",
            "metadata": {"name": f"drain-{pod}"},
            "spec": {
                "requester": REQUESTER,
                "intent": "Eviction",
                "target": {"pod": {"name": pod, **({"uid": uid} if uid else {})}},
            },
        }

        def asked() -> bool:
            # API servers hear of RoleBindings and of caBundles by watches.
            status, self.answer = self.cluster.plane.request(
                "POST", self._requests, body, identity=DRAINER
            )
            return status == 201

        try:
            eventually(asked, f"{pod} is asked to leave")
        except AssertionError as error:
            raise AssertionError(f"{error}: {self.answer}\n{self.cluster.why()}") from None

    def eviction(self, pod: str) -> dict[str, Any] | None:
        """The Eviction of a pod, if there is one."""
        for each in self.cluster.call("GET", self._evictions)["items"]:
            if each["spec"]["target"]["pod"]["name"] == pod:
                return dict(each)
        return None

    def await_turn(self, pod: str) -> str:
        """Wait until the responder is Active; return the path of the Eviction's status."""

        def turn() -> str | None:
            found = self.eviction(pod)
            listed = (found or {}).get("status", {}).get("targetResponders", [])
            states = {each["name"]: each["state"] for each in listed}
            if found is None or states.get(RESPONDER) != "Active":
                return None
            return f"{self._evictions}/{found['metadata']['name']}/status"

        return eventually(turn, f"the responder of {pod} has its turn")

    def respond(self, path: str, **report: Any) -> tuple[int, Any]:
        """As the responder, report on the Eviction whose status is at ``path``."""
        found = self.cluster.call("GET", path.removesuffix("/status"))
        entries = found["status"]["responders"]
        for entry in entries:
            if entry["name"] == RESPONDER:
                entry.update(report)
        return self.cluster.plane.request(
            "PATCH",
            path,
            {"status": {"responders": entries}},
            identity=RESPONDER_USER,
            content_type=_MERGE,
        )

    def begin(self, *pods: str) -> list[str]:
        """Create pods, ask for their eviction, and begin to respond; paths of the statuses."""
        for pod in pods:
            self.ask(pod, self.create_pod(pod))
        paths = [self.await_turn(pod) for pod in pods]
        for path in paths:
            self._report(path, "heartbeatTime")
        return paths

    def finish(self, path: str) -> None:
        """Report that the responder has done its work."""
        self._report(path, "completionTime")

    def _report(self, path: str, field: str) -> None:
        """Report that something is so now; the webhook may be about to learn of rights."""

        def accepted() -> bool:
            status, self.answer = self.respond(path, **{field: ago()})
            return status == 200

        try:
            eventually(accepted, f"{field} is accepted")
        except AssertionError as error:
            raise AssertionError(f"{error}: {self.answer['message']}") from None

    def is_evicted(self, pod: str) -> bool:
        """Whether the pod is gone, and its Eviction says so."""
        if self.cluster.exists(f"{self._pods}/{pod}"):
            return False
        found = self.eviction(pod) or {}
        conditions = found.get("status", {}).get("conditions", [])
        return any(c["type"] == "TargetEvicted" and c["status"] == "True" for c in conditions)
