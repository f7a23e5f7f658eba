"""Every case of ``tests/cases`` over HTTP: verdict, causes, warnings and audit annotations."""

import json
from typing import Any

import pytest

from tests.cases import Case, load_cases
from tests.webhook.reviews import UID
from tests.webhook.running import Running


def review(case: Case) -> dict[str, Any]:
    """The AdmissionReview with which an API server would ask about ``case``."""
    group, _, version = case.object["apiVersion"].rpartition("/")
    kind = case.object["kind"]
    named = {"group": group, "version": version}
    return {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": UID,
            "kind": {**named, "kind": kind},
            "resource": {**named, "resource": f"{kind.lower()}s"},
            "subResource": case.subresource,
            "operation": case.operation,
            "name": case.object["metadata"].get("name", ""),
            "namespace": "default",
            "userInfo": {"username": "alice"},
            "object": case.object,
            "oldObject": case.old_object,
            "options": None,
        },
    }


@pytest.mark.parametrize("case", load_cases(), ids=lambda case: case.id)
def test_case(site: Running, case: Case) -> None:
    answer = site.call(review(case))
    assert answer.status == 200
    response = answer.response
    assert (response["uid"], response["allowed"]) == (UID, not case.denied)
    denied = {(w.type, w.field) for w in case.wanted if w.enforcement == "deny"}
    warned = {w.field for w in case.wanted if w.enforcement == "warn"}
    status = response.get("status", {})
    causes = status.get("details", {}).get("causes", [])
    assert {(cause["reason"], cause["field"]) for cause in causes} == denied
    assert {warning.split(":")[0] for warning in response.get("warnings", [])} == warned
    if case.denied:
        assert (status["code"], status["reason"]) == (422, "Invalid")
    audited = json.loads(response["auditAnnotations"].get("violations", "[]"))
    assert {(entry["rule"], entry["field"]) for entry in audited} == {
        (wanted.rule, wanted.field) for wanted in case.wanted
    }
