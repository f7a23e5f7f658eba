"""Every case of ``tests/cases`` against :func:`rules.evaluate.evaluate`."""

import pytest

from rules.catalog import RULES
from rules.decode import SHAPES, decode_object
from rules.evaluate import Inquiry
from rules.facts import Facts
from rules.field import Path
from rules.request import Operation, Request
from rules.times import parse_time
from tests.cases import NOW, Case, Wanted, case_files, load_cases

CASES = load_cases()


def as_request(case: Case) -> Request:
    """The case as the rules see it."""
    group, _, version = case.object["apiVersion"].rpartition("/")
    shape = SHAPES[group, version, case.object["kind"]]
    return Request(
        operation=Operation(case.operation),
        subresource=case.subresource,
        object=None if case.operation == "DELETE" else decode_object(shape, case.object),
        old_object=decode_object(shape, case.old_object) if case.old_object else None,
        root=Path(shape.root),
        namespace="default",
        user=case.user,
        now=parse_time(NOW),
    )


def facts_for(case: Case, inquiry: Inquiry) -> Facts:
    """What a cluster would answer."""
    return Facts({question: case.fact(question) for question in inquiry.questions()})


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_case(case: Case) -> None:
    inquiry = Inquiry(as_request(case))
    verdict = inquiry.verdict(facts_for(case, inquiry))
    found = {
        Wanted(v.error.type.value, str(v.error.field), v.rule, v.enforcement.value)
        for v in verdict.violations
    }
    assert found == case.wanted, [str(violation.error) for violation in verdict.violations]
    assert verdict.allowed is not case.denied


def test_every_rule_has_a_file_and_no_file_is_without_a_rule() -> None:
    assert {path.stem for path in case_files()} == set(RULES)


@pytest.mark.parametrize("rule", RULES)
def test_every_rule_has_admitted_and_refused_cases(rule: str) -> None:
    own = [case for case in CASES if case.rule == rule]
    refusing = [case for case in own if any(wanted.rule == rule for wanted in case.wanted)]
    assert refusing
    assert any(not case.denied for case in own if case not in refusing)
