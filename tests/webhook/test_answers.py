"""What must come back to an API server that calls as it should."""

import json
from typing import Any

import pytest

from tests.webhook.reviews import (
    UID,
    creation,
    encoded,
    eviction,
    eviction_request,
    heartbeat,
    pod,
    refused_creation,
    review,
)
from tests.webhook.running import Running

EVICTION = ("lifecycle.k8s.io", "v1alpha1", "Eviction")


def test_it_answers_as_the_api_wants_it(site: Running) -> None:
    nothing_new = heartbeat("2026-07-01T11:59:00Z")
    answer = site.call(nothing_new)
    assert answer.status == 200
    assert answer.headers["Content-Type"] == "application/json"
    assert json.loads(answer.body) == {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "response": {"uid": UID, "allowed": True, "auditAnnotations": {"verdict": "allow"}},
    }


@pytest.mark.parametrize("uid", ["a", "ä € 😀", 'quote " back \\ slash', "x" * 1024, "  "])
def test_the_uid_comes_back_unchanged(site: Running, uid: str) -> None:
    assert site.call(creation(uid=uid)).response["uid"] == uid


def test_a_denial_says_all_that_is_wrong(site: Running) -> None:
    broken = eviction_request(intent="Evict", requester="acme")
    answer = site.call(review("CREATE", broken))
    assert answer.status == 200
    response = answer.response
    status = response["status"]
    assert response["allowed"] is False
    assert status["code"] == 422
    assert status["status"] == "Failure"
    assert status["reason"] == "Invalid"
    details = status["details"]
    assert (details["name"], details["group"], details["kind"]) == (
        "drain-web-0",
        "lifecycle.k8s.io",
        "EvictionRequest",
    )
    assert "retryAfterSeconds" not in details
    causes = {(cause["reason"], cause["field"]) for cause in details["causes"]}
    assert causes == {
        ("FieldValueInvalid", "spec.requester"),
        ("FieldValueNotSupported", "spec.intent"),
    }
    assert all(cause["message"] for cause in details["causes"])
    listed = ", ".join(f"{c['field']}: {c['message']}" for c in details["causes"])
    assert status["message"] == (
        f'EvictionRequest.lifecycle.k8s.io "drain-web-0" is invalid: [{listed}]'
    )


def test_a_single_cause_stands_without_brackets(site: Running) -> None:
    status = site.call(refused_creation()).response["status"]
    (cause,) = status["details"]["causes"]
    assert status["message"] == (
        'EvictionRequest.lifecycle.k8s.io "drain-web-0" is invalid: '
        f"{cause['field']}: {cause['message']}"
    )


def test_a_kind_without_group_is_named_alone(site: Running) -> None:
    document = pod(evictionResponders=[{"name": "acme.io/x", "priority": 7}])
    response = site.call(review("CREATE", document, kind=("", "v1", "Pod"))).response
    assert response["status"]["message"].startswith('Pod "web-0" is invalid: ')


def test_a_name_that_is_yet_to_be_generated_is_taken_from_the_object(site: Running) -> None:
    response = site.call(refused_creation(name="")).response
    assert response["status"]["details"]["name"] == "drain-web-0"


def test_a_guard_may_deny(site: Running) -> None:
    new, old = eviction(), eviction()
    old["status"]["conditions"][0]["status"] = "True"
    new["status"]["conditions"][0]["status"] = "Unknown"
    call = review("UPDATE", new, old, kind=EVICTION, subresource="status")
    status = site.call(call).response["status"]
    rules = site.call(call).response["auditAnnotations"]["rules"]
    assert "condition-finality" in rules
    assert status["code"] in (403, 422)
    assert status["details"]["causes"]


@pytest.mark.parametrize("call", [creation(), refused_creation(), heartbeat()])
def test_a_validating_answer_changes_nothing(site: Running, call: Any) -> None:
    response = site.call(call).response
    assert not {"patch", "patchType"} & response.keys()


@pytest.mark.parametrize("call", [creation(), refused_creation(), heartbeat()])
def test_the_same_review_gets_the_same_answer(site: Running, call: Any) -> None:
    first, second = site.call(call), site.call(call)
    assert first.body == second.body
    for key, value in first.response["auditAnnotations"].items():
        assert len(key) <= 63
        assert "/" not in key
        assert len(value.encode()) <= 10 * 1024


def test_warnings_are_shown_and_do_not_deny(site: Running) -> None:
    response = site.call(heartbeat("2026-07-01T11:59:50Z")).response
    assert response["allowed"] is True
    assert response["auditAnnotations"]["verdict"] == "allow"
    response = site.call(
        review(
            "UPDATE",
            eviction("2026-07-01T12:00:00Z"),
            eviction("2026-07-01T11:59:55Z"),
            kind=EVICTION,
            subresource="status",
        )
    ).response
    assert response["allowed"] is True
    assert len(response["warnings"]) == 1
    assert response["auditAnnotations"]["verdict"] == "warn"
    assert response["auditAnnotations"]["rules"] == "heartbeat-spacing"


def test_headers_are_plain(site: Running) -> None:
    body = encoded(creation())
    answer = site.call(data=body)
    assert answer.headers["Content-Length"] == str(len(answer.body))
    assert "Server" not in answer.headers
    assert "Location" not in answer.headers
    assert "Date" in answer.headers


@pytest.mark.parametrize(
    ("kind", "resource", "subresource"),
    [
        (("policy", "v1", "Eviction"), "pods", "eviction"),
        (("policy", "v1", "Eviction"), "evictions", ""),
        (("lifecycle.k8s.io", "v1beta7", "Eviction"), "evictions", "status"),
        (("lifecycle.k8s.io", "v1alpha1", "Eviction"), "widgets", "status"),
        (("lifecycle.k8s.io", "v1alpha1", "Eviction"), "evictions", "scale"),
        (("", "v1", "Pod"), "pods", "ephemeralcontainers"),
        (("acme.io", "v1", "Widget"), "widgets", ""),
        (("", "", ""), "", ""),
    ],
)
@pytest.mark.parametrize("document", [{"spec": 7}, 7, "x", [], None])
def test_what_is_not_ours_is_admitted(
    site: Running, kind: tuple[str, str, str], resource: str, subresource: str, document: Any
) -> None:
    call = review("UPDATE", None, None, kind=kind, resource=resource, subresource=subresource)
    call["request"]["object"] = call["request"]["oldObject"] = document
    answer = site.call(call)
    assert answer.status == 200
    assert answer.response["allowed"] is True


@pytest.mark.parametrize("operation", ["DELETE", "CONNECT"])
def test_deletions_and_connections_are_admitted(site: Running, operation: str) -> None:
    old = eviction_request(requester=[]) if operation == "DELETE" else None
    answer = site.call(review(operation, None, old))
    assert answer.status == 200
    assert answer.response["allowed"] is True


def test_a_deletion_of_a_collection_has_no_name(site: Running) -> None:
    assert site.call(review("DELETE", None, eviction_request(), name=None)).response["allowed"]


def test_removing_a_finalizer_is_never_blocked(site: Running) -> None:
    old = eviction_request(intent="", requester="")
    old["metadata"] |= {"deletionTimestamp": "2026-07-01T11:00:00Z", "finalizers": ["acme.io/x"]}
    new = eviction_request(intent="", requester="")
    new["metadata"] |= {"deletionTimestamp": "2026-07-01T11:00:00Z"}
    assert site.call(review("UPDATE", new, old)).response["allowed"] is True


@pytest.mark.parametrize("empty", [None, [], "absent"])
def test_null_empty_and_absent_mean_the_same(site: Running, empty: Any) -> None:
    new, old = eviction(), eviction()
    for document, value in ((new, empty), (old, [])):
        for field in ("requesters", "targetResponders", "responders", "conditions"):
            document["status"][field] = value
            if value == "absent":
                del document["status"][field]
    call = review("UPDATE", new, old, kind=EVICTION, subresource="status")
    assert site.call(call).response["allowed"] is True


def test_members_nobody_knows_are_ignored(site: Running) -> None:
    call = creation(newMember={"x": [1]}, requestResource=7)
    call["response"] = {"uid": "old"}
    call["request"]["object"]["spec"]["newField"] = 1
    assert site.call(call).response["allowed"] is True


@pytest.mark.parametrize(
    "info",
    [
        None,
        [],
        "jane",
        {},
        {"username": 7},
        {"username": "jane", "groups": "admins"},
        {"username": "jane", "groups": [7]},
        {"username": "jane", "uid": {}},
        {"username": "", "extra": 7},
    ],
)
def test_a_strange_caller_is_no_reason_to_fail(site: Running, info: Any) -> None:
    answer = site.call(creation(userInfo=info))
    assert answer.status == 200
    assert answer.response["allowed"] is True


@pytest.mark.parametrize(
    "content_type",
    [
        "application/json",
        "application/json; charset=utf-8",
        'Application/JSON;charset="UTF-8"',
        "application/json; odata=verbose",
    ],
)
def test_json_in_utf_8_is_understood(site: Running, content_type: str) -> None:
    answer = site.call(creation(), headers={"Content-Type": content_type})
    assert answer.response["allowed"] is True
