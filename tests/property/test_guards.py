"""What holds of every guard, whatever the write, the caller and the cluster."""

import json
import random
from collections.abc import Iterable, Iterator
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rules.callers import COLLECTORS, CONTROLLERS, EVICTORS, SUPERUSERS
from rules.catalog import GUARDS
from rules.decode import SHAPES, decode_object, load
from rules.evaluate import Inquiry, Policy, Violation
from rules.facts import (
    Answer,
    EvictionRight,
    Facts,
    LivePod,
    NamedPod,
    Permission,
    Question,
    Right,
    Target,
    TargetLookup,
)
from rules.request import Judged, Operation, Request, User
from rules.rule import Enforcement
from rules.times import parse_time
from tests.differential.generator import UIDS, Case, Generator

pytestmark = pytest.mark.slow

OURS: Final = "system:serviceaccount:usher-system:usher-controller"
ONCALL: Final = "oncall"
IDENTITY_GUARDS: Final = {
    "responder-identity",
    "controller-fields",
    "requester-identity",
    "eviction-right",
    "controller-objects",
}
"""What depends on the caller alone."""
_NAMES: Final = sorted({*CONTROLLERS, *EVICTORS, *COLLECTORS, OURS, "jane", ""})
_DELETIONS: Final = 0.2

_WRITES: Final = 10
"""In each example: few writes ask anything."""

# By a seed, because choices that are drawn one by one are mostly the simplest ones.
CHANCE: Final = st.integers(0, 2**32).map(random.Random)
CALLERS: Final = st.builds(
    User, st.sampled_from(_NAMES), st.sampled_from([(), ("devs",), (ONCALL,), (SUPERUSERS,)])
)
POLICIES: Final = st.builds(
    lambda enforcement: Policy(
        enforcement, controllers=frozenset({OURS}), break_glass=frozenset({ONCALL})
    ),
    st.dictionaries(st.sampled_from(list(GUARDS)), st.sampled_from(Enforcement)),
)
STRICT: Final = Policy(dict.fromkeys(GUARDS, Enforcement.DENY), controllers=frozenset({OURS}))
PODS: Final = st.none() | st.builds(LivePod, st.sampled_from(UIDS[:2]), st.booleans())


def inquiries(chance: random.Random, user: User, policy: Policy) -> Iterator[Inquiry]:
    """Random writes and deletions of ``user``."""
    for case in Generator(chance).cases(_WRITES):
        yield Inquiry(_request(case, chance, user), policy)


def _request(case: Case, chance: random.Random, user: User) -> Request:
    case = load(json.dumps(case).encode())
    new, old = (_shape(case, name) for name in ("object", "oldObject"))
    is_deletion = chance.random() < _DELETIONS and not case["subresource"]
    return Request(
        operation=Operation.DELETE if is_deletion else Operation(case["operation"]),
        subresource=case["subresource"],
        object=None if is_deletion else new,
        old_object=old or new if is_deletion else old,
        now=parse_time(case["now"]),
        namespace="default",
        user=user,
    )


def _shape(case: Case, name: str) -> Judged | None:
    document = case.get(name)
    group, _, version = case["object"]["apiVersion"].rpartition("/")
    return decode_object(SHAPES[group, version, case["kind"]], document) if document else None


def answered(questions: Iterable[Question], chance: random.Random, pod: LivePod | None) -> Facts:
    """Some permissions are there, others are not; every name is that of ``pod``."""
    return Facts({question: _answer(question, chance, pod) for question in questions})


def _answer(question: Question, chance: random.Random, pod: LivePod | None) -> Answer:
    is_granted = chance.random() < 0.5
    if isinstance(question, EvictionRight):
        return Right(question.target.name, is_granted)
    if isinstance(question, TargetLookup):
        name = question.name if chance.random() < 0.5 else "another"
        has_uid = pod is not None and pod.uid == question.uid
        return Target(pod, NamedPod(name, pod) if pod is not None and has_uid else None)
    return is_granted if isinstance(question, Permission) else pod


def _granted(question: Question) -> Answer:
    """The answer to a question about a permission that grants it; None to any other question."""
    if isinstance(question, EvictionRight):
        return Right(question.target.name, is_granted=True)
    return True if isinstance(question, Permission) else None


def places(violations: tuple[Violation, ...]) -> set[tuple[str, str]]:
    return {(violation.rule, str(violation.error.field)) for violation in violations}


@given(CHANCE, CALLERS, POLICIES, PODS)
def test_what_is_asked_is_what_has_to_be_known(
    chance: random.Random, user: User, policy: Policy, pod: LivePod | None
) -> None:
    for inquiry in inquiries(chance, user, policy):
        facts = answered(inquiry.questions(), chance, pod)
        verdict = inquiry.verdict(facts)
        assert verdict.unanswered == ()
        for question in facts.answers:
            others = {each: answer for each, answer in facts.answers.items() if each != question}
            without = inquiry.verdict(Facts(others))
            assert without.unanswered
            # Who has no answer says nothing; the others say what they said before.
            known = [each for each in verdict.violations if each.rule not in without.unanswered]
            assert list(without.violations) == known


@given(CHANCE, CALLERS, POLICIES, PODS)
def test_only_what_a_denying_guard_asks_must_be_had(
    chance: random.Random, user: User, policy: Policy, pod: LivePod | None
) -> None:
    for inquiry in inquiries(chance, user, policy):
        needed = [question for question, must in inquiry.questions().items() if must]
        verdict = inquiry.verdict(answered(needed, chance, pod))
        modes = {policy.of(GUARDS[name], user.groups) for name in verdict.unanswered}
        assert Enforcement.DENY not in modes


@given(CHANCE, CALLERS, POLICIES, PODS)
def test_a_permission_more_refuses_nothing(
    chance: random.Random, user: User, policy: Policy, pod: LivePod | None
) -> None:
    for inquiry in inquiries(chance, user, policy):
        facts = answered(inquiry.questions(), chance, pod)
        before = inquiry.verdict(facts)
        for question in facts.answers:
            if granted := _granted(question):
                after = inquiry.verdict(Facts({**facts.answers, question: granted}))
                assert after.allowed or not before.allowed
                assert places(after.violations) <= places(before.violations)


@given(CHANCE, CALLERS, PODS)
def test_no_identity_guard_refuses_a_superuser(
    chance: random.Random, user: User, pod: LivePod | None
) -> None:
    superuser = user._replace(groups=(*user.groups, SUPERUSERS))
    for inquiry in inquiries(chance, superuser, STRICT):
        questions = inquiry.questions()
        assert not any(map(_granted, questions))
        verdict = inquiry.verdict(answered(questions, chance, pod))
        assert not IDENTITY_GUARDS & {violation.rule for violation in verdict.violations}


@given(CHANCE, CALLERS, POLICIES, PODS)
def test_no_guard_denies_those_who_break_the_glass(
    chance: random.Random, user: User, policy: Policy, pod: LivePod | None
) -> None:
    member = user._replace(groups=(*user.groups, ONCALL))
    for inquiry in inquiries(chance, member, policy):
        questions = inquiry.questions()
        assert True not in questions.values()  # nor waits anybody for an answer about them
        verdict = inquiry.verdict(answered(questions, chance, pod))
        assert not GUARDS.keys() & {violation.rule for violation in verdict.denied}
