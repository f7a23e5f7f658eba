"""``usher replay``: every line is answered, in its place."""

import json
import os
import subprocess
import sys
from itertools import islice
from pathlib import Path
from typing import Any, Final

import pytest

from cli.recordings import MAX_LINE
from tests.cli.conftest import NOW, Run, Usher
from tests.vectors import admission_vectors

ROOT: Final = Path(__file__).parents[2]


def _request(name: str = "drain-db-0", **changes: Any) -> dict[str, Any]:
    spec = {
        "target": {"pod": {"name": "db-0", "uid": "9b0a7a5e-5f0c-4b52-9f0c-6f2a1f0e7d11"}},
        "requester": "ops.acme.io/drain",
        "intent": "Eviction",
    }
    document = {
        "apiVersion": "lifecycle.k8s.io/v1alpha1",
        "kind": "EvictionRequest",
        "metadata": {"name": name},
        "spec": spec | changes,
    }
    return _review("EvictionRequest", "CREATE", document, uid=name)


def _review(
    kind: str, operation: str, document: Any, *, uid: str, old: Any = None, subresource: str = ""
) -> dict[str, Any]:
    names = {"group": "lifecycle.k8s.io", "version": "v1alpha1"}
    request = {
        "uid": uid,
        "kind": names | {"kind": kind},
        "resource": names | {"resource": f"{kind.lower()}s"},
        "name": document["metadata"].get("name", ""),
        "operation": operation,
        "userInfo": {},
        "object": document,
        "oldObject": old,
        "options": None,
    }
    if subresource:
        request["subResource"] = subresource
    return {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": request,
    }


def _lines(*values: Any) -> str:
    return "".join(f"{json.dumps(value)}\n" for value in values)


def _answers(run: Run) -> list[Any]:
    return [json.loads(line) for line in run.stdout.splitlines()]


def test_answers_are_reviews_in_order(usher: Usher) -> None:
    run = usher(
        "replay", "-", stdin=_lines(_request("a"), _request("b", intent="x"), _request("c"))
    )
    assert run.exit_code == 0
    assert [answer["kind"] for answer in _answers(run)] == ["AdmissionReview"] * 3
    responses = [answer["response"] for answer in _answers(run)]
    assert [(r["uid"], r["allowed"]) for r in responses] == [("a", True), ("b", False), ("c", True)]
    (cause,) = responses[1]["status"]["details"]["causes"]
    assert (cause["reason"], cause["field"]) == ("FieldValueNotSupported", "spec.intent")
    assert run.stderr.splitlines()[-1] == "3 answered, 1 of them denied"


def test_denials_can_fail(usher: Usher) -> None:
    assert usher("replay", "-", "--fail-on-deny", stdin=_lines(_request())).exit_code == 0
    refused = _lines(_request(intent="x"))
    assert usher("replay", "-", "--fail-on-deny", stdin=refused).exit_code == 1


def test_several_files_and_blank_lines(usher: Usher) -> None:
    Path("a.jsonl").write_text(_lines(_request("a")) + "\n \n", encoding="utf-8")
    Path("b.jsonl").write_text(json.dumps(_request("b")), encoding="utf-8")
    run = usher("replay", "a.jsonl", "-", "b.jsonl", stdin=_lines(_request("c")))
    assert [answer["response"]["uid"] for answer in _answers(run)] == ["a", "c", "b"]


def _condition_with(time: str) -> dict[str, Any]:
    stored = {
        "metadata": {"name": "x"},
        "status": {
            "targetResponders": [{"name": "a.io/x", "priority": 5000, "state": "Active"}],
            "responders": [{"name": "a.io/x", "startTime": "2026-07-01T11:55:00Z"}],
        },
    }
    changed = json.loads(json.dumps(stored))
    changed["status"]["responders"][0]["heartbeatTime"] = time
    return _review("Eviction", "UPDATE", changed, uid="x", old=stored, subresource="status")


def test_each_line_has_its_own_time_or_that_of_the_flag(usher: Usher) -> None:
    review = _condition_with(NOW)
    late = "2026-07-01T13:00:00Z"

    def allowed(*arguments: str, line: Any) -> bool:
        (answer,) = _answers(usher("replay", "-", *arguments, stdin=_lines(line)))
        result: bool = answer["response"]["allowed"]
        return result

    assert not allowed(line=review)
    assert allowed("--now", NOW, line=review)
    assert allowed(line={"now": NOW, "review": review})
    assert allowed("--now", late, line={"now": NOW, "review": review})
    assert not allowed("--now", NOW, line={"now": late, "review": review})
    assert allowed("--now", NOW, line={"now": None, "review": review})


def test_other_kinds_are_admitted(usher: Usher) -> None:
    review = _review("Eviction", "CREATE", {"metadata": {}}, uid="x")
    review["request"]["kind"]["group"] = "policy"
    run = usher("replay", "-", stdin=_lines(review))
    assert _answers(run)[0]["response"]["allowed"] is True


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "must be valid JSON"),
        ("[]", "must be one AdmissionReview object"),
        ("5", "must be one AdmissionReview object"),
        ('{"a": 1, "a": 2}', "uplicate key"),
        ('{"kind": "AdmissionReview"}', "apiVersion: must be 'admission.k8s.io/v1'"),
        ('{"now": "2026-07-01T12:00:00Z"}', "apiVersion: must be 'admission.k8s.io/v1'"),
        ('{"now": "yesterday", "review": {}}', "now: must be an RFC 3339 time"),
        ('{"now": 5, "review": {}}', "now: must be an RFC 3339 time"),
        (_lines(_request(intent=5)).strip(), "request.object.spec.intent: must be a string"),
        ('{"' + "a" * MAX_LINE + '": 1}', "may not be longer than 8 MiB"),
        ("[" * 100_000, "must be valid JSON"),
    ],
    ids=lambda value: value[:30],
)
def test_a_bad_line_is_told_about_and_the_others_are_answered(
    usher: Usher, line: str, message: str
) -> None:
    stdin = f"{_lines(_request('a'))}\n{line}\n{_lines(_request('b'))}"
    run = usher("replay", "--guards", "off", "-", stdin=stdin)
    assert run.exit_code == 2
    first, bad, last = _answers(run)
    assert (first["response"]["uid"], last["response"]["uid"]) == ("a", "b")
    assert list(bad) == ["file", "line", "error"]
    assert (bad["file"], bad["line"]) == ("<stdin>", 3)
    assert message in bad["error"]
    told, summary = run.stderr.splitlines()
    assert told.startswith("<stdin>:3: ")
    assert message in told
    assert summary == "2 answered, 0 of them denied; 1 lines could not be read"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "name a FILE, or '-'"),
        (["missing.jsonl"], "missing.jsonl: No such file or directory"),
        (["."], ".: Is a directory"),
        (["-", "--diff", "missing.jsonl"], "missing.jsonl"),
        (["-", "--guards", "maybe"], "'on', 'off'"),
        (["-", "--rbac", "missing"], "missing: no such file or directory"),
        (["-", "--rbac", "-"], "'-' can be named once"),
    ],
)
def test_bad_usage(usher: Usher, arguments: list[str], message: str) -> None:
    run = usher("replay", *arguments)
    assert run.exit_code == 2
    assert message in run.stderr


# --- guards -------------------------------------------------------------------------------------


def _completion(user: str, *groups: str) -> dict[str, Any]:
    review = _condition_with(NOW)
    review["request"] |= {"namespace": "shop", "userInfo": {"username": user, "groups": groups}}
    return {"now": NOW, "review": review}


def _causes(answer: dict[str, Any]) -> list[str]:
    status = answer["response"].get("status", {"details": {"causes": []}})
    return [cause["field"] for cause in status["details"]["causes"]]


def test_guards_that_nobody_answers_are_named_once(usher: Usher) -> None:
    requests = _lines(_request("a"), _request("b"), _completion("jane"))
    run = usher("replay", "-", stdin=requests)
    assert all(answer["response"]["allowed"] for answer in _answers(run))
    assert run.stderr == (
        "guards left out: responder-identity, requester-identity, eviction-right (for want of "
        "--rbac FILE); target-pair, target-exists (for want of a cluster)\n"
        "3 answered, 0 of them denied\n"
    )
    unanswered = [answer["response"]["auditAnnotations"]["unanswered"] for answer in _answers(run)]
    assert unanswered[2] == "responder-identity"
    assert usher("replay", "--guards", "off", "-", stdin=requests).stderr == (
        "3 answered, 0 of them denied\n"
    )


def test_the_user_of_a_review_is_judged(usher: Usher) -> None:
    forged = _completion("jane")
    status = forged["review"]["request"]["object"]["status"]
    status["conditions"] = [
        {
            "type": "Failed",
            "status": "True",
            "reason": "x",
            "message": "",
            "lastTransitionTime": NOW,
        }
    ]
    (answer,) = _answers(usher("replay", "-", stdin=_lines(forged)))
    assert "status.conditions" in _causes(answer)
    (answer,) = _answers(usher("replay", "--controllers", "jane", "-", stdin=_lines(forged)))
    assert "status.conditions" not in _causes(answer)


RBAC: Final = """\
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: responder}
rules:
- {apiGroups: [lifecycle.k8s.io], resources: [evictionresponders], verbs: [respond]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: responder}
subjects: [{kind: User, name: jane}, {kind: Group, name: db}]
roleRef: {kind: Role, name: responder}
"""


def test_rbac_answers_for_every_user_of_a_recording(usher: Usher) -> None:
    Path("rbac.yaml").write_text(RBAC)
    requests = _lines(
        _completion("jane"),
        _completion("joe"),
        _completion("joe", "db"),
        _completion("joe", "system:masters"),
    )
    run = usher("replay", "--rbac", "rbac.yaml", "-n", "shop", "-", stdin=requests)
    assert [answer["response"]["allowed"] for answer in _answers(run)] == [True, False, True, True]
    assert run.stderr == "4 answered, 1 of them denied\n"
    elsewhere = usher("replay", "--rbac", "rbac.yaml", "-", stdin=requests)
    assert [_causes(answer) for answer in _answers(elsewhere)] == [["status.responders[0]"]] * 3 + [
        []
    ]


def test_broken_rbac_is_bad_input(usher: Usher) -> None:
    Path("rbac.yaml").write_text(RBAC.replace("verbs: [respond]", "verbs: []"))
    run = usher("replay", "--rbac", "rbac.yaml", "-", stdin=_lines(_request()))
    assert run.exit_code == 2
    assert "rbac.yaml:5:68: rules[0].verbs: must have at least one verb" in run.stderr
    assert run.stdout == ""


# --- comparison ---------------------------------------------------------------------------------


def _compared(usher: Usher, requests: str, recorded: str) -> tuple[int, list[str], str]:
    Path("recorded.jsonl").write_text(recorded, encoding="utf-8")
    run = usher("replay", "-", "--diff", "recorded.jsonl", stdin=requests)
    return run.exit_code, run.stdout.splitlines(), run.stderr.splitlines()[-1]


def _recorded(uid: str, *causes: tuple[str, str]) -> dict[str, Any]:
    response: dict[str, Any] = {"uid": uid, "allowed": not causes}
    if causes:
        listed = [{"reason": reason, "field": field, "message": "m"} for reason, field in causes]
        response["status"] = {"message": "wording is ours", "details": {"causes": listed}}
    return {"kind": "AdmissionReview", "response": response}


UNSUPPORTED: Final = ("FieldValueNotSupported", "spec.intent")


def test_the_same_answers_are_no_difference(usher: Usher) -> None:
    requests = _lines(_request("a"), _request("b", intent="x"))
    recorded = _lines(_recorded("a"), {"now": NOW, "review": _recorded("b", UNSUPPORTED)})
    assert _compared(usher, requests, recorded) == (
        0,
        [],
        "2 answered, 1 of them denied; 0 not as recorded",
    )
    answers = usher("replay", "-", stdin=requests).stdout
    assert _compared(usher, requests, answers)[0] == 0


def test_differences_are_told_line_by_line(usher: Usher) -> None:
    requests = _lines(*(_request(name, intent="x") for name in "abcd"))
    recorded = _lines(
        _recorded("a"),
        _recorded("b", UNSUPPORTED, ("FieldValueInvalid", "spec.target")),
        _recorded("other", UNSUPPORTED),
        _recorded("d", ("FieldValueInvalid", "spec.intent")),
    )
    code, lines, summary = _compared(usher, requests, recorded)
    assert code == 1
    assert lines == [
        "<stdin>:1: recorded allowed, now denied",
        "<stdin>:1: only now: FieldValueNotSupported spec.intent",
        "<stdin>:2: only recorded: FieldValueInvalid spec.target",
        "<stdin>:3: uid: recorded 'other', the request has 'c'",
        "<stdin>:4: only recorded: FieldValueInvalid spec.intent",
        "<stdin>:4: only now: FieldValueNotSupported spec.intent",
    ]
    assert summary == "4 answered, 4 of them denied; 4 not as recorded"


def test_missing_answers_and_requests_are_differences(usher: Usher) -> None:
    code, lines, _ = _compared(usher, _lines(_request("a")), "")
    assert (code, lines) == (1, ["<stdin>:1: no recorded answer"])
    code, lines, _ = _compared(usher, "", _lines(_recorded("a")))
    assert (code, lines) == (1, ["recorded.jsonl:1: a recorded answer without a request"])


@pytest.mark.parametrize("recorded", ["{", "{}", '{"response": {"allowed": "yes"}}', "[]"])
def test_a_bad_recorded_answer(usher: Usher, recorded: str) -> None:
    code, lines, summary = _compared(usher, _lines(_request("a")), recorded + "\n")
    assert (code, lines) == (2, [])
    assert "1 lines could not be read" in summary


def test_strange_details_of_a_recorded_answer_count_as_none(usher: Usher) -> None:
    recorded = [
        {"response": {"allowed": True, "status": "text"}},
        {"response": {"allowed": True, "status": {"details": []}}},
        {"response": {"allowed": True, "status": {"details": {"causes": {}}}}},
        {"response": {"allowed": True, "status": {"details": {"causes": [5]}}}},
    ]
    requests = _lines(*(_request(name) for name in "abcd"))
    assert _compared(usher, requests, _lines(*recorded))[:2] == (0, [])


def test_a_bad_request_line_does_not_shift_the_comparison(usher: Usher) -> None:
    requests = f"{_lines(_request('a'))}{{\n{_lines(_request('b'))}"
    recorded = _lines(_recorded("a"), _recorded("bad"), _recorded("b"))
    code, lines, summary = _compared(usher, requests, recorded)
    assert (code, lines) == (2, [])
    assert summary == "2 answered, 0 of them denied; 0 not as recorded; 1 lines could not be read"


def test_vectors_are_answered_as_by_kubernetes(usher: Usher) -> None:
    requests, recorded = [], []
    for vector in islice(admission_vectors(), 0, None, 10):  # tests/vectors asks about all of them
        review = _review(
            vector["kind"],
            vector["operation"],
            vector["object"],
            uid=vector["id"],
            old=vector.get("oldObject"),
            subresource=vector["subresource"],
        )
        requests.append({"now": vector["now"], "review": review})
        want = vector["want"]
        causes = [(cause["type"], cause["field"]) for cause in want.get("causes", [])]
        recorded.append(_recorded(vector["id"], *causes))
    Path("recorded.jsonl").write_text(_lines(*recorded), encoding="utf-8")
    Path("requests.jsonl").write_text(_lines(*requests), encoding="utf-8")
    run = usher("replay", "--guards", "off", "--diff", "recorded.jsonl", "requests.jsonl")
    assert (run.exit_code, run.stdout) == (0, "")
    assert "598 answered" in run.stderr


# --- streams ------------------------------------------------------------------------------------


def test_answers_come_while_requests_still_do() -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "cli.main", "replay", "-"],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for name in ("a", "b"):
            process.stdin.write(_lines(_request(name)).encode())
            process.stdin.flush()
            assert json.loads(process.stdout.readline())["response"]["uid"] == name
        process.stdin.close()
    assert process.returncode == 0


@pytest.mark.slow
def test_memory_does_not_grow_with_the_recording(tmp_path: Path) -> None:
    recording = tmp_path / "requests.jsonl"
    line = _lines(_request(intent="x"))
    program = (
        "import resource, sys; from cli.main import main\n"
        f"try: main(['replay', {str(recording)!r}])\n"
        "finally: sys.stderr.write(f' {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss}')"
    )

    def peak(lines: int) -> int:
        """In KiB."""
        recording.write_text(line * lines, encoding="utf-8")
        run = subprocess.run(
            [sys.executable, "-c", program],
            cwd=ROOT,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            check=True,
            env=os.environ,
        )
        return int(run.stderr.split()[-1])

    assert peak(5_000) < peak(100) + 4096
