"""The ways in which clients write, apart from server-side apply."""

import json

import pytest

from rules.api import EVICTOR, EVICTOR_PRIORITY
from tests.e2e.api import JSON_PATCH, MERGE_PATCH, Object
from tests.e2e.cluster import Cluster, path_of, resource_of
from tests.e2e.objects import FIRST, condition, eviction, initial_status, request
from tests.e2e.times import ago
from tests.e2e.usher import WEBHOOK

pytestmark = pytest.mark.e2e

FINALIZER = "acme.io/cleanup"


def names(cluster: Cluster, namespace: str, document: Object) -> list[str]:
    """The stored objects of a kind."""
    answer = cluster.api("GET", path_of(document, namespace))
    assert answer.ok, answer.message
    return [item["metadata"]["name"] for item in answer.body["items"]]


@pytest.mark.parametrize("document", [eviction(), request()], ids=lambda document: document["kind"])
def test_create_and_read(cluster: Cluster, namespace: str, document: Object) -> None:
    result = cluster.kubectl(namespace, "create", "-f", "-", "-o", "json", document=document)
    assert result.returncode == 0, result.stderr
    created = json.loads(result.stdout)
    assert created["spec"] == document["spec"]
    assert created["metadata"]["generation"] == 1
    assert created["status"] == {}


@pytest.mark.parametrize("document", [eviction(), request()], ids=lambda document: document["kind"])
def test_status_is_not_written_on_creation(
    cluster: Cluster, namespace: str, document: Object
) -> None:
    answer = cluster.create(namespace, {**document, "status": {"observedGeneration": 7}})
    assert answer.ok, answer.message
    assert answer.body["status"] == {}


def test_generate_name(cluster: Cluster, namespace: str) -> None:
    document = request(generateName="drain-")
    del document["metadata"]["name"]
    for _ in range(2):
        answer = cluster.create(namespace, document)
        assert answer.ok, answer.message
    found = names(cluster, namespace, document)
    assert len(set(found)) == 2
    assert all(name.startswith("drain-") for name in found)


def test_generated_names_stand_in_refusals(cluster: Cluster, namespace: str) -> None:
    document = request(generateName="drain-")
    del document["metadata"]["name"]
    document["spec"]["intent"] = "Perhaps"
    answer = cluster.create(namespace, document)
    assert answer.causes == {("FieldValueNotSupported", "spec.intent")}
    assert answer.body["details"]["name"].startswith("drain-")


def test_server_side_dry_run_judges_and_stores_nothing(cluster: Cluster, namespace: str) -> None:
    good, bad = request("good"), request("bad")
    bad["spec"]["requester"] = "nodes.k8s.io/drain"
    command = ("create", "--dry-run=server", "-f", "-")
    result = cluster.kubectl(namespace, *command, document=good)
    assert result.stdout == "evictionrequest.lifecycle.k8s.io/good created (server dry run)\n"
    result = cluster.kubectl(namespace, *command, document=bad)
    assert "spec.requester: Invalid value" in result.stderr
    assert names(cluster, namespace, good) == []


def test_a_dry_run_reaches_the_webhook(cluster: Cluster, namespace: str) -> None:
    assert cluster.create(namespace, eviction()).ok
    result = cluster.kubectl(
        namespace,
        *("patch", "evictions", "pod-1-web-0", "--subresource=status", "--type=merge"),
        *("--dry-run=server", "-p", json.dumps({"status": finished_at_once()})),
    )
    assert "status.responders[0].completionTime: Forbidden" in result.stderr


def finished_at_once() -> Object:
    """A first status that only the webhook refuses (``first-sync``)."""
    return {
        "targetResponders": [{"name": EVICTOR, "priority": EVICTOR_PRIORITY, "state": "Active"}],
        "responders": [{"name": EVICTOR, "startTime": ago(), "completionTime": ago()}],
    }


def test_patches_are_judged_as_what_they_result_in(cluster: Cluster, namespace: str) -> None:
    assert cluster.create(namespace, eviction()).ok
    path = path_of(eviction(), namespace, "pod-1-web-0", "status")
    answer = cluster.api("PATCH", path, {"status": initial_status()}, content_type=MERGE_PATCH)
    assert answer.ok, answer.message

    beat = {"op": "add", "path": "/status/responders/0/heartbeatTime"}
    answer = cluster.api("PATCH", path, [{**beat, "value": ago()}], content_type=JSON_PATCH)
    assert answer.ok, answer.message
    assert answer.body["status"]["responders"][0]["name"] == FIRST

    late = [{**beat, "value": ago(minutes=5)}]
    answer = cluster.api("PATCH", path, late, content_type=JSON_PATCH)
    assert answer.causes == {("FieldValueInvalid", "status.responders[0].heartbeatTime")}

    # A merge patch replaces whole lists: here it drops two responders.
    cut = {"status": {"responders": [{"name": FIRST, "startTime": ago()}]}}
    answer = cluster.api("PATCH", path, cut, content_type=MERGE_PATCH)
    assert ("FieldValueInvalid", "status.responders") in answer.causes

    nothing = {"status": {"observedGeneration": None}}
    answer = cluster.api("PATCH", path, nothing, content_type=MERGE_PATCH)
    assert answer.causes == {("FieldValueInvalid", "status.observedGeneration")}


def test_the_target_stays(cluster: Cluster, namespace: str) -> None:
    assert cluster.create(namespace, request()).ok
    other = {"spec": {"target": {"pod": {"name": "web-1"}}}}
    result = cluster.kubectl(
        namespace,
        *("patch", "evictionrequests", "drain-web-0", "--type=merge", "-p", json.dumps(other)),
    )
    assert "spec.target: Invalid value" in result.stderr
    assert "field is immutable" in result.stderr


@pytest.mark.parametrize("document", [eviction(), request()], ids=lambda document: document["kind"])
def test_a_finalizer_can_be_removed(cluster: Cluster, namespace: str, document: Object) -> None:
    document = {**document, "metadata": {**document["metadata"], "finalizers": [FINALIZER]}}
    assert cluster.create(namespace, document).ok
    path = path_of(document, namespace, document["metadata"]["name"])
    assert cluster.api("DELETE", path).body["metadata"]["deletionTimestamp"]

    more = {"metadata": {"finalizers": [FINALIZER, "acme.io/another"]}}
    answer = cluster.api("PATCH", path, more, content_type=MERGE_PATCH)
    assert answer.causes == {("FieldValueForbidden", "metadata.finalizers")}

    none = {"metadata": {"finalizers": None}}
    answer = cluster.api("PATCH", path, none, content_type=MERGE_PATCH)
    assert answer.ok, answer.message
    assert names(cluster, namespace, document) == []


def test_a_broken_stored_object_can_still_go(cluster: Cluster, namespace: str) -> None:
    stored = eviction(namespace=namespace, uid="1", creationTimestamp=ago(hours=1))
    stored["metadata"] |= {"finalizers": [FINALIZER], "deletionTimestamp": ago(minutes=1)}
    stored["metadata"]["deletionGracePeriodSeconds"] = 0
    stored["spec"]["target"]["pod"]["uid"] = "none"
    stored["status"] = {
        "requesters": [{"name": f"acme.io/{i}", "intent": "Perhaps"} for i in range(101)],
        "targetResponders": [
            {"name": FIRST, "priority": 1, "state": "Active"},
            {"name": EVICTOR, "priority": 1, "state": "Active"},
        ],
    }
    cluster.etcd.put(resource_of(stored), stored)
    path = path_of(stored, namespace, stored["metadata"]["name"])
    none = {"metadata": {"finalizers": None}}
    answer = cluster.api("PATCH", path, none, content_type=MERGE_PATCH)
    assert answer.ok, answer.message
    assert names(cluster, namespace, stored) == []


def test_deletion_of_one_and_of_all(cluster: Cluster, namespace: str) -> None:
    for name in ("a", "b", "c"):
        assert cluster.create(namespace, request(name)).ok
    result = cluster.kubectl(namespace, "delete", "evictionrequests", "a")
    assert result.returncode == 0, result.stderr
    answer = cluster.api("DELETE", path_of(request(), namespace))
    assert answer.ok, answer.message
    assert names(cluster, namespace, request()) == []


def test_columns_tell_who_acts(cluster: Cluster, namespace: str) -> None:
    assert cluster.create(namespace, eviction()).ok
    path = path_of(eviction(), namespace, "pod-1-web-0", "status")
    status = {"status": initial_status()}
    assert cluster.api("PATCH", path, status, content_type=MERGE_PATCH).ok
    header, row = cluster.kubectl(namespace, "get", "evictions").stdout.splitlines()
    assert {"TARGET", "STATUS", "AGE"} <= set(header.split())
    assert {"web-0", FIRST} <= set(row.split())


def test_fields_are_explained(cluster: Cluster, namespace: str) -> None:
    result = cluster.kubectl(
        namespace,
        *("explain", "evictions.status.responders", "--api-version=lifecycle.k8s.io/v1alpha1"),
    )
    assert "heartbeatTime\t<string>" in result.stdout, result.stderr


def test_the_webhook_is_named_in_its_refusals(cluster: Cluster, namespace: str) -> None:
    assert cluster.create(namespace, eviction()).ok
    path = path_of(eviction(), namespace, "pod-1-web-0", "status")
    body = {"status": finished_at_once()}
    answer = cluster.api("PATCH", path, body, content_type=MERGE_PATCH)
    assert answer.code == 422
    assert f'admission webhook "{WEBHOOK}" denied the request' in answer.message
    assert answer.body["reason"] == "Invalid"
    assert answer.body["details"]["kind"] == "Eviction"


@pytest.mark.parametrize(
    "status",
    [
        {"conditions": [condition("A", "False", "R") | {"lastTransitionTime": time}]}
        for time in (
            "2026-07-01t12:00:00z",
            "2026-07-01T12:00:00",
            "2026-07-01T12:00:00+25:00",
            "2026-02-30T12:00:00Z",
            "2026-07-01T12:00:60Z",
            "yesterday",
            7,
        )
    ]
    + [
        {"observedGeneration": "1"},
        {"observedGeneration": 2**63},
        {"observedGeneration": 1.5},
        {"requesters": [None]},
        {"requesters": {}},
        {"targetResponders": [{"name": FIRST, "priority": 2**31, "state": "Active"}]},
    ],
    ids=json.dumps,
)
def test_what_nobody_can_read_is_refused(cluster: Cluster, namespace: str, status: Object) -> None:
    # If the API server let it through, the webhook would answer that it can't judge: a failure.
    assert cluster.create(namespace, eviction()).ok
    path = path_of(eviction(), namespace, "pod-1-web-0")
    document = cluster.api("GET", path).body | {"status": status}
    answer = cluster.replace(namespace, document, "status")
    assert answer.code in {400, 422}, answer.message
    assert WEBHOOK not in answer.message


@pytest.mark.parametrize(
    "status", [None, {}, {"conditions": None, "observedGeneration": None}], ids=json.dumps
)
def test_null_means_absent(cluster: Cluster, namespace: str, status: Object | None) -> None:
    assert cluster.create(namespace, eviction()).ok
    path = path_of(eviction(), namespace, "pod-1-web-0")
    document = cluster.api("GET", path).body | {"status": status}
    answer = cluster.replace(namespace, document, "status")
    assert answer.ok, answer.message
    assert answer.body["status"] == {}
