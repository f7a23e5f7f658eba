"""Every case of ``tests/cases`` over HTTP: verdict, causes, warnings and audit annotations."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from rules.catalog import RULES
from rules.facts import LivePod, Permission, PodLookup
from rules.request import User
from rules.rule import Outcome
from tests.cases import Case, load_cases
from tests.webhook.reviews import UID
from tests.webhook.running import Running, Timely, running
from webhook.review import plural


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
            "resource": {**named, "resource": plural(kind)},
            "subResource": case.subresource,
            "operation": case.operation,
            "name": case.object["metadata"].get("name", ""),
            "namespace": "default",
            "userInfo": {"username": case.user.name, "groups": list(case.user.groups)},
            "object": None if case.operation == "DELETE" else case.object,
            "oldObject": case.old_object,
            "options": None,
        },
    }


class CaseCluster(Timely):
    """Answers as ``case`` says."""

    case: Case

    async def has_permission(self, user: User, permission: Permission, name: str) -> bool:
        assert (user.name, user.groups) == (self.case.user.name, self.case.user.groups)
        return bool(self.case.fact(permission._replace(names=(name,))))

    async def find_pod(self, lookup: PodLookup) -> LivePod | None:
        answer = self.case.fact(lookup)
        return answer if isinstance(answer, LivePod) else None

    async def list_pods(self, namespace: str) -> Mapping[str, str]:
        assert namespace == "default"
        return {pod.uid: name for name, pod in self.case.live_pods.items()}


@pytest.fixture(scope="module")
def cluster() -> CaseCluster:
    return CaseCluster()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, cluster: CaseCluster) -> Iterator[Running]:
    with pytest.MonkeyPatch.context() as patch:
        for memory in ("ALLOWED_SECONDS", "DENIED_SECONDS", "POD_SECONDS"):
            patch.setattr(f"cluster.facts.{memory}", 0)
        with running(tmp_path_factory.mktemp("site"), cluster=cluster) as site:
            yield site


@pytest.mark.parametrize("case", load_cases(), ids=lambda case: case.id)
def test_case(site: Running, cluster: CaseCluster, case: Case) -> None:
    cluster.case = case
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
        built_in = {RULES[w.rule].outcome for w in case.wanted if w.enforcement == "deny"}
        is_invalid = Outcome.INVALID in built_in
        wanted = (422, "Invalid") if is_invalid else (403, "Forbidden")
        assert (status["code"], status["reason"]) == wanted
    audited = json.loads(response["auditAnnotations"].get("violations", "[]"))
    assert {(entry["rule"], entry["field"]) for entry in audited} == {
        (wanted.rule, wanted.field) for wanted in case.wanted
    }
