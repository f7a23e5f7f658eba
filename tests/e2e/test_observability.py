"""What people see of a verdict: warnings, audit annotations and log lines."""

import json
from collections.abc import Iterable

import pytest

from tests.e2e.api import MERGE_PATCH, Object
from tests.e2e.cluster import Cluster, path_of
from tests.e2e.objects import REQUESTER, eviction, initial_status, pod
from tests.e2e.test_writes import finished_at_once
from tests.e2e.usher import WEBHOOK, Usher
from tests.e2e.waiting import eventually

pytestmark = pytest.mark.e2e


@pytest.fixture
def status_path(cluster: Cluster, namespace: str) -> str:
    """The path of the status of a new Eviction."""
    assert cluster.create(namespace, eviction()).ok
    return path_of(eviction(), namespace, "pod-1-web-0", "status")


def annotations(cluster: Cluster, verb: str, uri: str, code: int) -> Object:
    """What the webhook left in the audit log about one write, without the prefix."""

    def written() -> Iterable[Object]:
        for event in cluster.plane.audit_events():
            told = event["verb"], event["requestURI"].partition("?")[0]
            if told == (verb, uri) and event["responseStatus"]["code"] == code:
                yield event["annotations"]

    found = eventually(lambda: next(iter(written()), None), f"{verb} {uri} is in the audit log")
    prefix = f"{WEBHOOK}/"
    return {k.removeprefix(prefix): v for k, v in found.items() if k.startswith(prefix)}


def test_a_denial_is_audited_with_its_rules(cluster: Cluster, status_path: str) -> None:
    body = {"status": finished_at_once()}
    assert cluster.api("PATCH", status_path, body, content_type=MERGE_PATCH).code == 422
    found = annotations(cluster, "patch", status_path, 422)
    assert found["verdict"] == "deny"
    assert found["rules"] == "first-sync"
    (violation,) = json.loads(found["violations"])
    assert violation["field"] == "status.responders[0].completionTime"
    assert violation["reason"] == "FieldValueForbidden"
    assert violation["enforcement"] == "deny"


def test_an_admission_is_audited(cluster: Cluster, namespace: str, status_path: str) -> None:
    found = annotations(cluster, "create", path_of(eviction(), namespace), 201)
    # This webhook has no cluster to ask, and says which guard it left out for that.
    assert found == {"verdict": "allow", "unanswered": "target-pair"}


def test_a_warning_reaches_kubectl_and_the_audit_log(
    cluster: Cluster, namespace: str, status_path: str
) -> None:
    body = {"status": initial_status()}
    assert cluster.api("PATCH", status_path, body, content_type=MERGE_PATCH).ok
    result = cluster.kubectl(
        namespace,
        *("patch", "evictions", "pod-1-web-0", "--subresource=status", "--type=merge"),
        *("-p", json.dumps({"status": {"requesters": []}})),
    )
    assert result.returncode == 0, result.stderr
    assert result.stderr.startswith(
        f"Warning: status.requesters: Forbidden: should keep '{REQUESTER}'"
    )

    def of_the_warning() -> bool:
        events = cluster.plane.audit_events()
        mine = [e for e in events if e["requestURI"].startswith(status_path)]
        return any(e["annotations"].get(f"{WEBHOOK}/rules") == "requesters-preserved" for e in mine)

    eventually(of_the_warning, "the warning is in the audit log")


def test_pods_may_warn(cluster: Cluster, namespace: str) -> None:
    responders = [{"name": f"r{i}.acme.io/x", "priority": 10_000} for i in range(6)]
    document = pod(annotation=json.dumps(responders))
    result = cluster.kubectl(namespace, "create", "-f", "-", document=document)
    assert result.stdout == "pod/web-0 created\n"
    assert "Warning: metadata.annotations[usher.dev/eviction-responders]" in result.stderr
    assert "6 silent ones" in result.stderr


def test_a_denial_is_logged(
    cluster: Cluster, namespace: str, status_path: str, usher: Usher
) -> None:
    body = {"status": finished_at_once()}
    assert not cluster.api("PATCH", status_path, body, content_type=MERGE_PATCH).ok

    def logged() -> Object | None:
        lines = (line for line in usher.log() if line.get("namespace") == namespace)
        return next((line for line in lines if line["resource"] == "evictions"), None)

    line = eventually(logged, "the denial is logged")
    assert line["event"] == "denied"
    assert line["rules"] == ["first-sync"]
    assert line["user"] == "admin"
    assert line["resource"] == "evictions"
    assert line["subresource"] == "status"


def test_what_a_responder_says_is_in_no_annotation(cluster: Cluster, status_path: str) -> None:
    status = finished_at_once()
    status["responders"][0]["message"] = "hunter2"
    body = {"status": status}
    assert cluster.api("PATCH", status_path, body, content_type=MERGE_PATCH).code == 422
    found = annotations(cluster, "patch", status_path, 422)
    assert found["rules"] == "first-sync"
    assert "hunter2" not in json.dumps(found)
