"""Least privilege: whatever the chart grants is needed, and nothing more is."""

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import pytest

from rules.policies import POLICY_API_VERSION
from tests.chart.cluster import NAMESPACE, RELEASE, Cluster, running_cluster
from tests.chart.release import Release
from tests.chart.scene import ROLES, Scene
from tests.controlplane import Mode
from tests.e2e.times import ago
from tests.e2e.waiting import eventually

pytestmark = pytest.mark.e2e

_USER: Final = f"system:serviceaccount:{NAMESPACE}:{RELEASE}"
_RBAC: Final = "/apis/rbac.authorization.k8s.io/v1"
_EVERYTHING: Final = {
    **ROLES,
    "replicas": 1,
    "podDisruptionBudget.enabled": False,
    "registration.pods.policies": True,
    "controller": {
        "events": "all",
        "requestTTL": 1,
        "orphanTTL": 1,
        "nodeHealth": {"enabled": True, "evictionRate": 10, "secondaryEvictionRate": 10},
    },
}
"""Values that turn on all that needs a right."""
_NODE: Final = "node-1"
_MERGE: Final = "application/merge-patch+json"
_NODE_HEALTH: Final = "/apis/lifecycle.k8s.io/v1alpha1/evictionrequests"


class Right(NamedTuple):
    """One permission; ``name`` is "" where it holds for all."""

    verb: str
    group: str
    resource: str
    name: str

    def __str__(self) -> str:
        named = f' "{self.name}"' if self.name else ""
        return f'{self.verb} {self.resource}{named} of API group "{self.group}"'


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running_cluster(Mode.CRD, tmp_path_factory.mktemp("rights"), audit=True) as cluster:
        yield cluster


def test_every_right_is_used_and_none_is_missing(cluster: Cluster) -> None:
    release = Release(cluster)
    release.install(_EVERYTHING)
    cluster.await_rollout()
    release.await_verdicts()
    _create_policies(cluster)
    scene = Scene(cluster, "shop")

    # Policies register a responder, and somebody asks for an eviction without knowing the UID.
    scene.create_pod("web-0")
    scene.ask("web-0")
    path = scene.await_turn("web-0")
    scene.finish(path)
    eventually(lambda: not cluster.exists("/api/v1/namespaces/shop/pods/web-0"), "it is evicted")
    eventually(lambda: scene.eviction("web-0") is None, "what has ended is deleted")

    _let_a_node_fail_and_recover(cluster, scene)
    _leave_an_eviction_without_requests(cluster)

    granted = _granted(cluster)
    try:
        eventually(lambda: not granted - _used(cluster), "every right is used")
    except AssertionError:
        unused = "\n".join(f"  {right}" for right in sorted(granted - _used(cluster)))
        pytest.fail(
            f"the chart grants what nothing here has used:\n{unused}\n"
            "Take it out of charts/usher/templates/_rights.tpl, or let this scenario need it.",
            pytrace=False,
        )
    refused = {
        f"{event['verb']} {event['requestURI']}"
        for event in _events(cluster)
        if event.get("responseStatus", {}).get("code") == 403
    }
    assert refused == set()


def _granted(cluster: Cluster) -> set[Right]:
    """What both roles of the service account hold, one by one."""
    roles = (
        cluster.call("GET", f"{_RBAC}/clusterroles/{RELEASE}"),
        cluster.call("GET", f"{_RBAC}/namespaces/{NAMESPACE}/roles/{RELEASE}"),
    )
    return {
        Right(verb, group, resource, name)
        for role in roles
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for name in rule.get("resourceNames", [""])
        for verb in rule["verbs"]
    }


def _events(cluster: Cluster) -> list[dict[str, Any]]:
    return [event for event in cluster.plane.audit_events() if event["user"]["username"] == _USER]


def _used(cluster: Cluster) -> set[Right]:
    used: set[Right] = set()
    for event in _events(cluster):
        target = event.get("objectRef", {})
        resource = target.get("resource", "")
        if "subresource" in target:
            resource = f"{resource}/{target['subresource']}"
        verbs = [event["verb"]]
        if event["verb"] == "patch" and event.get("responseStatus", {}).get("code") == 201:
            verbs.append("create")  # an apply that creates needs both
        for verb in verbs:
            for name in ("", target.get("name", "")):
                used.add(Right(verb, target.get("apiGroup", ""), resource, name))
    return used


def _create_policies(cluster: Cluster) -> None:
    spec = {
        "podSelector": {},
        "responders": [{"name": "mesh.acme.io/drain", "priority": 5000}],
    }
    cluster.call(
        "POST",
        f"/apis/{POLICY_API_VERSION}/clusterresponderpolicies",
        {
            "apiVersion": POLICY_API_VERSION,
            "kind": "ClusterResponderPolicy",
            "metadata": {"name": "meshed"},
            "spec": {
                **spec,
                "podSelector": {"matchLabels": {"mesh": "yes"}},
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "shop"}},
            },
        },
    )
    cluster.call(
        "POST",
        f"/apis/{POLICY_API_VERSION}/namespaces/default/responderpolicies",
        {
            "apiVersion": POLICY_API_VERSION,
            "kind": "ResponderPolicy",
            "metadata": {"name": "meshed"},
            "spec": spec,
        },
    )


def _let_a_node_fail_and_recover(cluster: Cluster, scene: Scene) -> None:
    """Its pod is asked to leave, and that is taken back."""
    cluster.call("POST", "/api/v1/nodes", {"metadata": {"name": _NODE}})
    _set_ready(cluster, "True")
    scene.create_pod(
        "far-0",
        nodeName=_NODE,
        tolerations=[{"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 0}],
    )
    _set_ready(cluster, "Unknown")
    eventually(lambda: _asked(cluster), "the pod of the failed node is asked to leave")
    _set_ready(cluster, "True")
    eventually(lambda: not _asked(cluster), "that is withdrawn, and deleted")
    cluster.call("DELETE", "/api/v1/namespaces/shop/pods/far-0?gracePeriodSeconds=0")


def _asked(cluster: Cluster) -> bool:
    listed = cluster.call("GET", _NODE_HEALTH)["items"]
    return any(each["spec"]["requester"].startswith("node-health.") for each in listed)


def _set_ready(cluster: Cluster, status: str) -> None:
    key = "node.kubernetes.io/unreachable"
    taints = [] if status == "True" else [{"key": key, "effect": "NoExecute", "timeAdded": ago()}]
    path = f"/api/v1/nodes/{_NODE}"
    cluster.call("PATCH", path, {"spec": {"taints": taints}}, content_type=_MERGE)
    condition = {"type": "Ready", "status": status, "reason": "ByHand", "message": ""}
    body = {"status": {"conditions": [{**condition, "lastTransitionTime": ago()}]}}
    cluster.call("PATCH", f"{path}/status", body, content_type=_MERGE)


def _leave_an_eviction_without_requests(cluster: Cluster) -> None:
    """It ends as invalid, and nobody owns it."""
    uid = "9b0a7a5e-5f0c-4b52-9f0c-6f2a1f0e7d11"
    body = {
        "apiVersion": "lifecycle.k8s.io/v1alpha1",
        "kind": "Eviction",
        "metadata": {"name": "pod-1-nobody"},
        "spec": {"target": {"pod": {"name": "nobody", "uid": uid}}},
    }
    path = "/apis/lifecycle.k8s.io/v1alpha1/namespaces/default/evictions"
    cluster.call("POST", path, body)
    eventually(lambda: not cluster.exists(f"{path}/pod-1-nobody"), "it is deleted in time")
