"""Which writes are judged, and what a policy makes of a broken rule."""

import pytest
from msgspec.structs import replace

from rules.api import Condition, Eviction, EvictionRequest, Pod
from rules.evaluate import MAX_VIOLATIONS, Policy, evaluate, judges_deletion
from rules.request import Operation
from rules.rule import Enforcement, Outcome
from tests.cases import Case, load_cases
from tests.rules.test_cases import as_request

BY_ID = {case.id: case for case in load_cases()}
HEARTBEAT = BY_ID["heartbeat-spacing: five seconds apart"]
TARGET = BY_ID["immutable-fields: another target"]


def enforcements(case: Case, policy: Policy) -> list[tuple[str, str]]:
    verdict = evaluate(as_request(case), policy)
    return [(violation.rule, violation.enforcement.value) for violation in verdict.violations]


@pytest.mark.parametrize("mode", [Enforcement.DENY, Enforcement.WARN, Enforcement.AUDIT])
def test_a_guard_is_enforced_as_configured(mode: Enforcement) -> None:
    policy = Policy({"heartbeat-spacing": mode})
    assert enforcements(HEARTBEAT, policy) == [("heartbeat-spacing", mode.value)]
    assert evaluate(as_request(HEARTBEAT), policy).allowed is (mode != Enforcement.DENY)


def test_a_guard_that_is_off_is_silent() -> None:
    off = {"heartbeat-spacing": Enforcement.OFF}
    assert enforcements(HEARTBEAT, Policy(off)) == []
    assert enforcements(HEARTBEAT, Policy(off, audit_only=True)) == []


def test_the_api_s_own_rules_are_not_configurable() -> None:
    policy = Policy({"immutable-fields": Enforcement.OFF})
    assert enforcements(TARGET, policy) == [("immutable-fields", "deny")]


def test_audit_only_admits_everything_and_forgets_nothing() -> None:
    for case in BY_ID.values():
        strict = evaluate(as_request(case))
        lenient = evaluate(as_request(case), Policy(audit_only=True))
        assert lenient.allowed
        assert [v.error for v in lenient.violations] == [v.error for v in strict.violations]
        assert all(v.enforcement == Enforcement.AUDIT for v in lenient.violations)


def test_denials_say_which_kind_they_are() -> None:
    (violation,) = evaluate(as_request(TARGET)).denied
    assert violation.outcome == Outcome.INVALID


@pytest.mark.parametrize(
    "changes",
    [
        {"operation": Operation.DELETE, "object": None},
        {"operation": Operation.CONNECT},
        {"operation": Operation.CREATE, "subresource": "status"},
        {"subresource": "scale"},
        {"old_object": None},
    ],
    ids=str,
)
def test_other_requests_are_admitted(changes: dict[str, object]) -> None:
    request = as_request(TARGET)._replace(**changes)
    assert evaluate(request).violations == ()


def test_judging_an_endless_object_stops() -> None:
    request = as_request(BY_ID["well-formed-conditions: an empty condition"])
    assert isinstance(request.object, Eviction)
    status = replace(request.object.status, conditions=(Condition(),) * 10_000)
    endless = replace(request.object, status=status)
    verdict = evaluate(request._replace(object=endless))
    assert len(verdict.violations) == MAX_VIOLATIONS
    assert not verdict.allowed


def test_the_response_budget_is_configurable() -> None:
    case = BY_ID["response-budget: six responders"]
    assert enforcements(case, Policy(response_budget=6)) == []


def test_rules_look_at_deletions_of_evictions_and_their_requests() -> None:
    assert judges_deletion(Eviction)
    assert judges_deletion(EvictionRequest)
    assert not judges_deletion(Pod)
