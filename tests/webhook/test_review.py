"""The answer's own limits, and reading reviews without a server."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rules.decode import DecodeError
from rules.evaluate import ADMITTED, Verdict, Violation
from rules.field import FieldError, Path, forbidden, invalid, required
from rules.rule import Enforcement, Outcome
from rules.texts import printable
from tests.webhook.reviews import NOW, creation, encoded, review
from webhook.review import MAX_ANNOTATION, Review, decode, encode, respond, warnings


def read(document: Any) -> Review:
    return decode(encoded(document), NOW)


def broken(
    *errors: FieldError,
    enforcement: Enforcement = Enforcement.DENY,
    outcome: Outcome = Outcome.INVALID,
) -> Verdict:
    return Verdict(tuple(Violation("some-rule", error, enforcement, outcome) for error in errors))


def test_the_path_of_what_is_wrong_is_named() -> None:
    with pytest.raises(
        DecodeError, match=r"^request\.object\.spec\.target\.pod\.uid: must be a st"
    ):
        read(review("CREATE", {"spec": {"target": {"pod": {"uid": 7}}}}))
    with pytest.raises(DecodeError, match=r"^request\.uid: must not be empty$"):
        read(creation(uid=""))
    with pytest.raises(DecodeError, match=r"^must be one AdmissionReview object$"):
        read([])
    with pytest.raises(DecodeError, match=r"^request\.object: must be an object$"):
        read(creation() | {"request": creation()["request"] | {"object": 7}})


def test_a_forbidden_write_is_worded_as_one() -> None:
    verdict = broken(forbidden(Path("status"), "may not"), outcome=Outcome.FORBIDDEN)
    status = respond(read(creation()), verdict)["response"]["status"]
    assert status["code"] == 403
    assert status["reason"] == "Forbidden"
    assert status["message"] == (
        'evictionrequests.lifecycle.k8s.io "drain-web-0" is forbidden: status: Forbidden: may not'
    )
    assert status["details"]["causes"] == [
        {"reason": "FieldValueForbidden", "message": "Forbidden: may not", "field": "status"}
    ]


def test_what_is_both_invalid_and_forbidden_is_invalid() -> None:
    violations = (
        *broken(forbidden(Path("a"), "x"), outcome=Outcome.FORBIDDEN).violations,
        *broken(required(Path("b"))).violations,
    )
    status = respond(read(creation()), Verdict(violations))["response"]["status"]
    assert status["code"] == 422
    assert [cause["field"] for cause in status["details"]["causes"]] == ["a", "b"]


def test_equal_errors_are_said_once() -> None:
    verdict = broken(required(Path("a")), required(Path("a")))
    status = respond(read(creation()), verdict)["response"]["status"]
    assert status["message"].endswith(f"is invalid: {required(Path('a'))}")


def test_denials_carry_warnings_too() -> None:
    violations = (
        *broken(required(Path("a"))).violations,
        *broken(required(Path("b")), enforcement=Enforcement.WARN).violations,
        *broken(required(Path("c")), enforcement=Enforcement.AUDIT).violations,
    )
    response = respond(read(creation()), Verdict(violations))["response"]
    assert response["allowed"] is False
    assert response["warnings"] == [str(required(Path("b")))]
    assert len(response["status"]["details"]["causes"]) == 1
    noted = json.loads(response["auditAnnotations"]["violations"])
    assert [(each["field"], each["enforcement"]) for each in noted] == [
        ("a", "deny"),
        ("b", "warn"),
        ("c", "audit"),
    ]


@given(st.lists(st.text(max_size=400), max_size=60))
def test_warnings_keep_every_limit(messages: list[str]) -> None:
    shown = warnings(messages)
    assert len(shown) == len(set(shown))
    assert sum(map(len, shown)) <= 4096
    assert all(len(text) <= 256 and printable(text) == text for text in shown)
    wanted = dict.fromkeys(printable(message) for message in messages)
    if len(shown) < len(wanted) and shown:
        lost = shown[-1].startswith("… and ")
        assert lost or any(text.endswith("…") for text in shown)


def test_a_cut_is_visible() -> None:
    (shown,) = warnings(["x" * 300])
    assert shown == "x" * 255 + "…"
    shown_ = warnings(f"{number:03}" + "x" * 250 for number in range(40))
    assert sum(map(len, shown_)) <= 4096
    assert shown_[-1] == f"… and {40 - len(shown_) + 1} more warnings"
    exactly_full = warnings(f"{number:03}" + "x" * 253 for number in range(17))
    assert len(exactly_full) == 16
    assert exactly_full[-1] == "… and 2 more warnings"
    assert warnings([]) == []
    assert warnings(["a", "a"]) == ["a"]


def test_long_texts_are_cut() -> None:
    endless = "x" * 1_000_000
    errors = [invalid(Path(endless).at(number), endless, endless) for number in range(200)]
    answer = encode(read(creation(name=endless)), broken(*errors))
    assert len(answer) < 500_000
    response = json.loads(answer)["response"]
    assert response["status"]["details"]["name"].endswith("x…")
    assert json.loads(response["auditAnnotations"]["violations"])[0]["message"].endswith("x…")


def test_control_characters_are_written_out() -> None:
    assert warnings(["a\nb\x1b[0m\x7f\x9b ä"]) == [r"a\x0ab\x1b[0m\x7f\x9b ä"]


@given(st.integers(1, 400), st.text(max_size=300))
def test_audit_annotations_keep_every_limit(count: int, detail: str) -> None:
    errors = [invalid(Path("spec.field").at(number), "SECRET", detail) for number in range(count)]
    verdict = broken(*errors)
    annotations = respond(read(creation()), verdict)["response"]["auditAnnotations"]
    assert all(len(key) <= 63 and "/" not in key for key in annotations)
    assert all(len(value.encode()) <= MAX_ANNOTATION for value in annotations.values())
    noted = json.loads(annotations["violations"])
    omitted = noted[-1].get("omitted", 0)
    assert len(noted) - bool(omitted) + omitted == count
    assert "SECRET" not in annotations["violations"]


@pytest.mark.parametrize("verdict", [ADMITTED, broken(invalid(Path("a"), "ü\u2028", "x"))])
def test_the_bytes_are_the_document(verdict: Verdict) -> None:
    asked = read(creation())
    assert json.loads(encode(asked, verdict)) == respond(asked, verdict)


def test_the_object_of_a_deletion_is_not_read() -> None:
    asked = read(review("DELETE", None, {"spec": "not even a spec"}))
    assert asked.request is not None
    assert asked.request.object is None
    assert asked.request.old_object is None


def test_the_request_says_who_and_what() -> None:
    request = read(creation(dryRun=True)).request
    assert request is not None
    assert (request.user.name, request.user.groups) == ("jane", ("system:authenticated",))
    assert (request.name, request.namespace, request.dry_run) == ("drain-web-0", "default", True)
    assert request.now == NOW
