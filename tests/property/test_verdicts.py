"""What holds of every verdict, whatever the write."""

import copy
import json
import random
import re
from datetime import timedelta
from typing import Any

from hypothesis import assume, given
from hypothesis import strategies as st

from rules.api import GROUP, VERSION
from rules.decode import SHAPES, decode_object, load
from rules.evaluate import Verdict, evaluate
from rules.request import Operation, Request
from rules.states import TRANSITIONS
from rules.times import format_time, parse_time
from tests.differential.generator import Case, Generator
from tests.vectors import BUILT_IN_ONLY

CHANCE = st.randoms(use_true_random=False)
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")


def judge(case: Case, **changes: Any) -> Verdict:
    case = load(json.dumps(case | changes).encode())
    group, version = ("", "v1") if case["kind"] == "Pod" else (GROUP, VERSION)
    shape = SHAPES[group, version, case["kind"]]
    stored = case.get("oldObject")
    return evaluate(
        Request(
            operation=Operation(case["operation"]),
            subresource=case["subresource"],
            object=decode_object(shape, case["object"]),
            old_object=decode_object(shape, stored) if stored is not None else None,
            now=parse_time(case["now"]),
        ),
        BUILT_IN_ONLY,
    )


def repeats_a_name(status: dict[str, Any]) -> bool:
    lists = (status.get(name, []) for name in ("targetResponders", "responders"))
    return any(len({item.get("name") for item in items}) < len(items) for items in lists)


def findings(verdict: Verdict) -> list[tuple[str, str, str]]:
    return [(v.rule, v.error.type.value, str(v.error.field)) for v in verdict.violations]


@given(CHANCE)
def test_an_unchanged_object_is_admitted(chance: random.Random) -> None:
    case = Generator(chance).lawful_update()
    assert findings(judge(case, object=case["oldObject"])) == []


@given(CHANCE, st.integers(-(10**8), 10**8))
def test_only_differences_between_instants_count(chance: random.Random, seconds: int) -> None:
    (case,) = Generator(chance).cases(1)
    delta = timedelta(seconds=seconds)

    def shifted(match: "re.Match[str]") -> str:
        return format_time(parse_time(match.group()) + delta)

    moved = json.loads(TIME.sub(shifted, json.dumps(case)))
    assert findings(judge(moved)) == findings(judge(case))


@given(CHANCE)
def test_the_order_of_the_lists_does_not_matter(chance: random.Random) -> None:
    case = Generator(chance).status_update()
    moved = copy.deepcopy(case)
    for name in ("targetResponders", "responders"):
        for key in ("object", "oldObject"):
            moved[key]["status"].get(name, []).reverse()
    # Of entries with one name the last counts, so with repeated names the order does matter.
    assume(not any(map(repeats_a_name, (case["object"]["status"], case["oldObject"]["status"]))))
    first, second = judge(case), judge(moved)
    assert first.allowed is second.allowed
    assert {rule for rule, _, _ in findings(first)} == {rule for rule, _, _ in findings(second)}


@given(CHANCE)
def test_a_verdict_can_be_repeated(chance: random.Random) -> None:
    (case,) = Generator(chance).cases(1)
    assert judge(case) == judge(copy.deepcopy(case))


@given(CHANCE)
def test_what_is_admitted_follows_the_state_table(chance: random.Random) -> None:
    case = Generator(chance).status_update()
    if not judge(case).allowed:
        return
    new, old = (
        case[name]["status"].get("targetResponders") or [] for name in ("object", "oldObject")
    )
    states = {responder["name"]: responder["state"] for responder in old}
    for responder in new if old else []:
        assert responder["state"] in TRANSITIONS[states[responder["name"]]]
    assert sum(responder["state"] == "Active" for responder in new) <= 1
