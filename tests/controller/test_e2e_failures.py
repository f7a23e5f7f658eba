"""Controllers that are killed, API servers that come back, missing rights and resources."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from rules.api import API_VERSION, EVICTOR
from tests.controller.program import (
    Program,
    Users,
    prepared,
    present,
    reasons,
    running,
    states,
)
from tests.controller.rights import DELETE, PERMISSIONS, STRANGER
from tests.controlplane import ControlPlane, Mode
from tests.e2e.api import APPLY, Object
from tests.e2e.cluster import Cluster
from tests.e2e.waiting import eventually

pytestmark = pytest.mark.e2e

RESPONDER = "db.acme.io/failover"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with prepared(Mode.NATIVE) as cluster:
        yield cluster


def test_lease_is_released_on_the_way_out(cluster: Cluster, tmp_path: Path) -> None:
    slow = ("--lease-name", "slow", "--lease-duration", "3600")
    with running(cluster, tmp_path, *slow) as first:
        first.wait_for_lead()
        path = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/slow"
        assert cluster.api("GET", path).body["spec"]["holderIdentity"]
        first.terminate()
        eventually(first.has_ended, "the controller ends")
        assert first.log()[-1]["event"] == "stopped"
    with running(cluster, tmp_path, *slow) as second:
        second.wait_for_lead()  # at once, not in an hour


def test_api_server_restarts(cluster: Cluster, tmp_path: Path) -> None:
    users = Users(cluster)
    with running(cluster, tmp_path, "--lease-name", "restart") as program:
        program.wait_for_lead()
        pod = users.create_pod("web-0", RESPONDER)
        users.request(pod, "drain")
        users.wait_for("evictions", "pod-1-web-0", lambda e: RESPONDER in states(e))
        cluster.plane.stop_apiserver()
        eventually(lambda: program.ask("/readyz")[0] == 503, "the controller sees it")
        assert program.ask("/livez") == (200, "ok\n")
        cluster.plane.start_apiserver()
        cluster.api.close()  # its connections have ended with the old one
        users.report("pod-1-web-0", RESPONDER, completionTime=present())
        ended = users.wait_for_reason("evictions", "pod-1-web-0", "PodDeleted")
        assert states(ended) == {RESPONDER: "Completed", EVICTOR: "Completed"}
        eventually(lambda: program.ask("/readyz")[0] == 200, "the controller is ready again")


def test_killed_again_and_again(cluster: Cluster, tmp_path: Path) -> None:
    users = Users(cluster)
    names = [f"web-{number}" for number in range(30)]
    for name in names:
        users.request(users.create_pod(name), f"drain-{name}")
    bystander = users.create_pod("bystander")
    flags = ("--no-leader-elect", "--concurrency", "2")
    for _ in range(5):
        with Program(cluster, tmp_path, *flags).killed_afterwards() as program:
            eventually(lambda: program.written() > 3, "the controller writes")
    with running(cluster, tmp_path, *flags):
        for name in names:
            eventually(lambda: _has_gone(users, name), f"the end of {name}")  # noqa: B023
    assert set(users.evictions_called()) == set(names)
    left = users.get("pods", "bystander")
    assert left is not None
    assert left["metadata"]["uid"] == bystander["metadata"]["uid"]
    assert "deletionTimestamp" not in left["metadata"]
    assert len(users.list("evictions")) == len(names)


def _has_gone(users: Users, name: str) -> bool:
    request = users.get("evictionrequests", f"drain-{name}")
    return request is not None and "PodDeleted" in reasons(request)


def test_missing_permissions_are_named(cluster: Cluster, tmp_path: Path) -> None:
    flags = ("--lease-name", "rights")
    with running(cluster, tmp_path, *flags, identity=STRANGER) as program:
        wanted = "the permission to list pods of API group"
        eventually(lambda: wanted in program.ask("/readyz")[1], "the missing permission is named")
        _grant(cluster, PERMISSIONS)
        program.wait_for_lead()
        assert program.ask("/readyz") == (200, "ok\n")
        users = Users(cluster)
        users.request(users.create_pod("web-0"), "drain")
        users.wait_for_reason("evictionrequests", "drain", "PodDeleted")
        denials = [line for line in program.log() if "permission" in line["event"]]
        assert {line["event"].split("permission to ")[1].split(" ")[0] for line in denials} == {
            "list"
        }
    with running(cluster, tmp_path, *flags, identity=STRANGER) as program:
        _grant(cluster, [rule for rule in PERMISSIONS if rule["resources"] != ["pods/eviction"]])
        program.wait_for_lead()
        users = Users(cluster)
        users.request(users.create_pod("web-0"), "drain")
        eventually(
            lambda: "cannot create resource" in str(users.get("evictions", "pod-1-web-0")),
            "the Eviction says why",
        )


def _grant(cluster: Cluster, rules: list[Object]) -> None:
    """Give the stranger these rights and no others."""
    group = "rbac.authorization.k8s.io"
    version = f"{group}/v1"
    role = {
        "apiVersion": version,
        "kind": "ClusterRole",
        "metadata": {"name": "rights"},
        "rules": rules,
    }
    binding = {
        "apiVersion": version,
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "rights"},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "rights"},
        "subjects": [{"apiGroup": group, "kind": "User", "name": STRANGER}],
    }
    for document in (role, binding):
        cluster.plane.kubectl("apply", "-f", "-", stdin=json.dumps(document), check=True)


def test_namespace_is_being_deleted(cluster: Cluster, tmp_path: Path) -> None:
    users = Users(cluster)
    users.request(users.create_pod("web-0"), "drain")
    path = f"/api/v1/namespaces/{users.namespace}"
    cluster.plane.stop_controller_manager()  # or it would be over too soon to be seen
    users.call("DELETE", path)
    with running(cluster, tmp_path, "--lease-name", "terminating") as program:
        eventually(lambda: program.line("the namespace is being deleted"), "the controller sees it")
        other = Users(cluster)
        other.request(other.create_pod("web-0"), "drain")
        other.wait_for_reason("evictionrequests", "drain", "PodDeleted")
        cluster.plane.start_controller_manager()
        eventually(lambda: cluster.api("GET", path).code == 404, "the namespace is gone")


def test_definitions_appear_later(tmp_path: Path) -> None:
    with ControlPlane(Mode.CRD) as plane:
        cluster = Cluster(plane)
        with running(cluster, tmp_path) as program:
            wanted = "waiting for evictions.lifecycle.k8s.io to be served"
            eventually(lambda: wanted in program.ask("/readyz")[1], "the controller says so")
            assert program.ask("/livez") == (200, "ok\n")
            cluster.install_definitions()
            users = Users(cluster)
            users.request(users.create_pod("web-0", node=None), "drain")
            users.wait_for_reason("evictionrequests", "drain", "PodDeleted")
        cluster.close()


def test_stands_down_for_the_clusters_own_controller(cluster: Cluster, tmp_path: Path) -> None:
    users = Users(cluster)
    with running(cluster, tmp_path, "--lease-name", "other-controller") as program:
        program.wait_for_lead()
        pod = users.create_pod("web-0", RESPONDER)
        users.request(pod, "drain")
        eviction = users.wait_for("evictions", "pod-1-web-0", lambda e: RESPONDER in states(e))
        path = users.path("evictions", "pod-1-web-0")
        metadata = {"name": "pod-1-web-0", "labels": {"theirs": "yes"}}
        theirs = {"apiVersion": eviction["apiVersion"], "kind": "Eviction", "metadata": metadata}
        query = "?fieldManager=evictionrequest-controller&force=true"
        users.call("PATCH", path + query, theirs, content_type=APPLY)
        eventually(lambda: "standing down" in program.ask("/readyz")[1], "it stands down")
        lease = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/other-controller"
        eventually(
            lambda: not cluster.api("GET", lease).body["spec"]["holderIdentity"],
            "the lease is free",
        )
        eventually(lambda: program.metric("usher_controller_stood_down") == 1, "the metric")
        users.delete("evictions", "pod-1-web-0")  # or the other tests' controllers would see it
    with running(cluster, tmp_path, "--lease-name", "other-controller") as program:
        program.wait_for_lead()


def test_what_is_over_is_removed(cluster: Cluster, tmp_path: Path) -> None:
    users = Users(cluster)
    flags = ("--lease-name", "ttl", "--request-ttl", "1", "--orphan-ttl", "1")
    _grant(cluster, [*PERMISSIONS, DELETE])
    with running(cluster, tmp_path, *flags, identity=STRANGER) as program:
        program.wait_for_lead()
        pod = users.create_pod("web-0")
        users.request(pod, "drain")
        target = {"pod": {"name": "web-0", "uid": pod["metadata"]["uid"]}}
        orphan = {
            "apiVersion": API_VERSION,
            "kind": "Eviction",
            "metadata": {"name": "by-hand"},
            "spec": {"target": target},
        }
        eventually(lambda: users.list("evictionrequests") == [], "the request is removed")
        users.wait_until_gone("evictions", "pod-1-web-0")  # the garbage collector's work
        users.call("POST", users.path("evictions"), orphan)
        users.wait_until_gone("evictions", "by-hand")
