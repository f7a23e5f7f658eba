"""Server-side apply: the controller's half and the responders' half of a status merge by name."""

import json
import subprocess

import pytest

from rules.api import API_VERSION
from tests.e2e.api import Object
from tests.e2e.cluster import Cluster
from tests.e2e.objects import FIRST, SECOND, eviction, initial_status, pod
from tests.e2e.times import ago

pytestmark = pytest.mark.e2e

CONTROLLER, RESPONDER = "controller", "failover"


def apply(
    cluster: Cluster, namespace: str, manager: str, status: Object, *flags: str
) -> subprocess.CompletedProcess[str]:
    """``kubectl apply --server-side`` of a part of the status of the test's Eviction."""
    document = {
        "apiVersion": API_VERSION,
        "kind": "Eviction",
        "metadata": {"name": eviction()["metadata"]["name"]},
        "status": status,
    }
    return cluster.kubectl(
        namespace,
        "apply",
        "--server-side",
        "--subresource=status",
        f"--field-manager={manager}",
        *flags,
        *("-o", "json", "-f", "-"),
        document=document,
    )


def applied(result: subprocess.CompletedProcess[str]) -> Object:
    assert result.returncode == 0, result.stderr
    status: Object = json.loads(result.stdout)["status"]
    return status


@pytest.fixture
def initialised(cluster: Cluster, namespace: str) -> Object:
    """The status that the controller has applied to a new Eviction."""
    assert cluster.create(namespace, eviction()).ok
    status = initial_status()
    applied(apply(cluster, namespace, CONTROLLER, status))
    return status


def test_two_managers_write_two_halves(
    cluster: Cluster, namespace: str, initialised: Object
) -> None:
    report = {"name": FIRST, "heartbeatTime": ago(), "message": "failing over"}
    status = applied(apply(cluster, namespace, RESPONDER, {"responders": [report]}))
    start = initialised["responders"][0]["startTime"]
    assert status["responders"][0] == {**report, "startTime": start}
    assert status["targetResponders"] == initialised["targetResponders"]

    # The controller applies its own half again and leaves the responder's alone.
    initialised["observedGeneration"] = 2
    status = applied(apply(cluster, namespace, CONTROLLER, initialised))
    assert status["responders"][0] == {**report, "startTime": start}

    report["completionTime"] = ago()
    applied(apply(cluster, namespace, RESPONDER, {"responders": [report]}))
    initialised["targetResponders"][0]["state"] = "Completed"
    initialised["targetResponders"][1]["state"] = "Active"
    initialised["responders"][1]["startTime"] = ago()
    status = applied(apply(cluster, namespace, CONTROLLER, initialised))
    assert [each["state"] for each in status["targetResponders"]] == [
        "Completed",
        "Active",
        "Inactive",
    ]
    assert status["responders"][0] == {**report, "startTime": start}


def test_halves_conflict_where_they_overlap(
    cluster: Cluster, namespace: str, initialised: Object
) -> None:
    late = {"responders": [{"name": FIRST, "startTime": ago(minutes=1)}]}
    result = apply(cluster, namespace, RESPONDER, late)
    assert f'conflict with "{CONTROLLER}"' in result.stderr
    assert "startTime" in result.stderr


def test_forced_fields_are_judged_like_others(
    cluster: Cluster, namespace: str, initialised: Object
) -> None:
    late = {"responders": [{"name": FIRST, "startTime": ago(minutes=1)}]}
    result = apply(cluster, namespace, RESPONDER, late, "--force-conflicts")
    assert result.returncode != 0
    assert "status.responders[0].startTime: Invalid value" in result.stderr


def test_a_responder_that_waits_may_not_apply(
    cluster: Cluster, namespace: str, initialised: Object
) -> None:
    early = {"responders": [{"name": SECOND, "message": "me first"}]}
    result = apply(cluster, namespace, RESPONDER, early)
    assert result.returncode != 0
    assert "status.responders" in result.stderr


def test_an_item_is_owned_as_natively(
    cluster: Cluster, namespace: str, initialised: Object
) -> None:
    result = cluster.kubectl(namespace, "get", "evictions", "-o", "json", "--show-managed-fields")
    (found,) = json.loads(result.stdout)["items"]
    (entry,) = [e for e in found["metadata"]["managedFields"] if e["manager"] == CONTROLLER]
    owned = entry["fieldsV1"]["f:status"]
    key = json.dumps({"name": FIRST}, separators=(",", ":"))
    # Target responders are atomic, reports are not.
    assert owned["f:targetResponders"][f"k:{key}"] == {}
    assert owned["f:responders"][f"k:{key}"] == {".": {}, "f:name": {}, "f:startTime": {}}


def test_apply_creates_pods_that_are_judged(cluster: Cluster, namespace: str) -> None:
    def create(document: Object) -> subprocess.CompletedProcess[str]:
        return cluster.kubectl(namespace, "apply", "--server-side", "-f", "-", document=document)

    good = create(pod(annotation=f'[{{"name": "{FIRST}", "priority": 10000}}]'))
    assert good.returncode == 0, good.stderr
    bad = create(pod("web-1", annotation=f'[{{"name": "{FIRST}", "priority": 999}}]'))
    assert "eviction-responders][0].priority: Invalid value: 999" in bad.stderr
