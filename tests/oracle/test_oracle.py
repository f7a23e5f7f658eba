"""The oracle answers in order, survives bad questions and agrees with the recorded vectors."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from tests.controlplane.availability import skip_or_fail
from tests.oracle import Oracle, OracleError

pytest_plugins = ("tests.oracle.fixtures",)
pytestmark = pytest.mark.e2e

_VECTORS = Path(__file__).parent.parent / "vectors" / "admission.jsonl.gz"
_NOW = "2026-07-01T12:00:00Z"
_UID = "272ce49c-7064-51e5-0c98-57dd86b50043"


def _case(kind: str, new: dict[str, Any], old: dict[str, Any] | None = None) -> dict[str, Any]:
    operation = "CREATE" if old is None else "UPDATE"
    return {"now": _NOW, "kind": kind, "operation": operation, "object": new, "oldObject": old}


def _eviction(*, uid: str = _UID, **status: Any) -> dict[str, Any]:
    return {
        "apiVersion": "lifecycle.k8s.io/v1alpha1",
        "kind": "Eviction",
        "metadata": {"name": "web", "namespace": "default", "uid": _UID, "resourceVersion": "1"},
        "spec": {"target": {"pod": {"name": "web-0", "uid": uid}}},
        "status": status,
    }


def _pod(*responders: tuple[str, int], **spec: Any) -> dict[str, Any]:
    entries = [{"name": name, "priority": priority} for name, priority in responders]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "web-0", "namespace": "default", "uid": _UID, "resourceVersion": "1"},
        "spec": {
            "containers": [{"name": "web", "image": "web"}],
            "evictionResponders": entries,
            **spec,
        },
    }


def _fields(answer: dict[str, Any]) -> list[str]:
    return [cause["field"] for cause in answer.get("causes", [])]


def test_answers_come_in_order_whatever_their_number(oracle: Oracle) -> None:
    # Enough to fill both pipes several times over.
    cases = [_case("Eviction", _eviction(uid=_UID if i % 3 else "no")) for i in range(9000)]
    allowed = [answer["allowed"] for answer in oracle.ask(cases)]
    assert allowed == [i % 3 != 0 for i in range(9000)]


def test_refusals_carry_all_causes(oracle: Oracle) -> None:
    eviction = _eviction(uid="no")
    eviction["spec"]["target"]["pod"]["name"] = ""
    (answer,) = oracle.ask([_case("Eviction", eviction)])
    assert (answer["allowed"], answer["code"], answer["reason"]) == (False, 422, "Invalid")
    assert sorted(_fields(answer)) == ["spec.target.pod.name", "spec.target.pod.uid"]


def test_a_crash_of_the_reference_is_told_apart(oracle: Oracle) -> None:
    def renamed(second: str) -> dict[str, Any]:
        states = [("acme.io/a", 3000, "Active"), (second, 2000, "Inactive")]
        return _eviction(
            targetResponders=[
                {"name": name, "priority": priority, "state": state}
                for name, priority, state in states
            ],
            responders=[
                {"name": "acme.io/a", "startTime": _NOW},
                {"name": "acme.io/b"},
            ],
        )

    case = _case("Eviction", renamed("acme.io/a"), renamed("acme.io/b"))
    (answer, after) = oracle.ask([{**case, "subresource": "status"}, _case("Pod", _pod())])
    assert "nil pointer" in answer["panic"]
    assert after == {"allowed": True}


@pytest.mark.parametrize(
    ("case", "error"),
    [
        (_case("Node", {}), 'kind "Node" is not supported'),
        (_case("Eviction", _pod()), "object: v1.Pod is not suitable"),
        (_case("Pod", {"spec": {"evictionResponders": "x"}}), "object: json: cannot unmarshal"),
        ({"kind": "Pod"}, "now: missing"),
    ],
)
def test_bad_questions_are_errors(oracle: Oracle, case: dict[str, Any], error: str) -> None:
    (answer,) = oracle.ask([case])
    assert answer["error"].startswith(error)


@pytest.mark.parametrize(
    ("new", "old", "fields"),
    [
        (_pod(("acme.io/a", 10_000)), None, []),
        (_pod(("acme.io/a", 999)), None, ["spec.evictionResponders[0].priority"]),
        (_pod(("x.k8s.io/a", 1000)), None, ["spec.evictionResponders[0].name"]),
        (_pod(("acme.io/a", 1000), restartPolicy="Nonsense"), None, []),
        (
            _pod(("acme.io/a", 1000), schedulingGroup={"podGroupName": "group"}),
            None,
            ["spec.schedulingGroup"],
        ),
        (_pod(("acme.io/a", 2000)), _pod(("acme.io/a", 1000)), ["spec"]),
        (_pod(nodeName="node"), _pod(), []),
    ],
)
def test_of_a_pod_only_the_responders_are_judged(
    oracle: Oracle, new: dict[str, Any], old: dict[str, Any] | None, fields: list[str]
) -> None:
    (answer,) = oracle.ask([_case("Pod", new, old)])
    assert (answer["allowed"], _fields(answer)) == (not fields, fields)


def test_a_stopped_oracle_says_so() -> None:
    with pytest.raises(OracleError, match="not running"):
        Oracle().ask([])


def test_vectors_are_answered_exactly(oracle: Oracle) -> None:
    if not _VECTORS.exists():
        skip_or_fail("tests/vectors is not in this checkout")
    with gzip.open(_VECTORS, "rt") as lines:
        cases = [json.loads(line) for line in lines]
    wrong = [
        case["id"]
        for case, answer in zip(cases, oracle.ask(cases), strict=True)
        if _verdict(case["want"]) != _verdict(answer)
    ]
    assert wrong == []


def _verdict(answer: dict[str, Any]) -> tuple[Any, ...]:
    causes = {(cause["type"], cause["field"]) for cause in answer.get("causes") or ()}
    return answer.get("allowed"), answer.get("code"), answer.get("reason"), causes
