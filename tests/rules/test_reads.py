"""A rule looks at an update by what it declares to read and to judge: both are true."""

import json
import os
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import pytest
from msgspec.structs import replace

from rules import catalog
from rules.api import ApiType
from rules.changes import PARTS, changed_fields
from rules.declared import Field, fields_of
from rules.decode import load
from rules.evaluate import Inquiry
from rules.facts import EvictionRight, Facts, Permission, Question, Right, Target, TargetLookup
from rules.request import Judged, Operation, Request
from rules.rule import Rule
from tests.cases import load_cases
from tests.differential.generator import Generator
from tests.rules.test_cases import as_request as request_of_case
from tests.vectors import admission_vectors
from tests.vectors import as_request as request_of_vector

SEED: Final = int(os.environ.get("USHER_TEST_SEED", random.SystemRandom().getrandbits(32)))
MOST: Final = 300
"""Writes with which each rule is tried; another seed takes others."""
_SLOTS: Final = {
    (Operation.CREATE, ""): "create",
    (Operation.UPDATE, ""): "update",
    (Operation.UPDATE, "status"): "update_status",
}


class Answers(dict[Question, Any]):
    """Denies everything, and knows no pod: for rules that get answers which they may not need."""

    def __missing__(self, question: Question) -> Any:
        match question:
            case Permission():
                return False
            case TargetLookup():
                return Target()
            case EvictionRight(target):
                return Right(target.name, is_granted=False)
        return None


@dataclass(frozen=True)
class Look:
    """One rule that could look at one write."""

    request: Request
    slot: str

    @property
    def kind(self) -> type[Judged]:
        return type(self.request.object)  # type: ignore[return-value]

    def found(self, rule: Rule[Any]) -> list[str]:
        """What the rule asks, and what it says with every answer against the caller."""
        context = Inquiry(self.request)._context
        context.facts = Facts(Answers())
        new, old = self.request.object, self.request.old_object
        asked = rule.asks(new, old=old, context=context) if rule.asks is not None else ()
        check = getattr(rule, self.slot)
        return [*map(str, asked), *map(str, check(new, old=old, context=context))]


@cache
def looks() -> Sequence[Look]:
    """The creations and updates of the cases, of every vector, and of 1,000 random writes."""
    print(f"seed {SEED}: repeat with USHER_TEST_SEED={SEED}")
    generated = Generator(random.Random(SEED)).cases(1000)
    requests = [
        *(request_of_case(case) for case in load_cases()),
        *map(request_of_vector, admission_vectors()),
        *(
            request_of_vector(load(json.dumps(case).encode()))
            for case in generated
            if case["kind"] != "Pod"
        ),
    ]
    return [
        Look(request, slot)
        for request in requests
        if (slot := _SLOTS.get((request.operation, request.subresource))) is not None
        and request.object is not None
        and (slot == "create" or request.old_object is not None)
    ]


def looking(rule: Rule[Any]) -> Iterator[Look]:
    """The writes at which the rule could look."""
    for look in looks():
        if any(listed is rule for listed, _ in catalog.checks(look.kind, look.slot)):
            yield look


BEHAVIOURS: Final = [rule for rule in catalog.RULES.values() if rule not in catalog.DECLARED]


@pytest.mark.parametrize(
    "rule", [rule for rule in BEHAVIOURS if not rule.standing], ids=lambda rule: rule.name
)
def test_a_rule_has_nothing_to_say_about_what_it_does_not_judge(rule: Rule[Any]) -> None:
    for look in looking(rule):
        new, old = look.request.object, look.request.old_object
        if look.slot == "create" or new is None or old is None:
            continue
        parts = [part for part in PARTS if hasattr(new, part)]
        changed = frozenset().union(*(changed_fields(new, old, part) for part in parts))
        if not rule.may_judge(changed):
            assert look.found(rule) == [], look.request


def test_every_rule_declares_what_it_reads() -> None:
    assert [rule.name for rule in BEHAVIOURS if not rule.reads] == []


@pytest.mark.parametrize("rule", BEHAVIOURS, ids=lambda rule: rule.name)
def test_no_rule_reads_what_it_does_not_declare(rule: Rule[Any]) -> None:
    chance = random.Random(SEED)
    candidates = list(looking(rule))
    for look in chance.sample(candidates, min(len(candidates), MOST)):
        alike = (look.kind, look.slot)
        donors = [
            each for each in chance.choices(candidates, k=50) if (each.kind, each.slot) == alike
        ]
        donor = chance.choice(donors or [look])
        changed = look.request._replace(
            object=transplanted(look.request.object, donor.request.object, rule.reads),
            old_object=transplanted(look.request.old_object, donor.request.old_object, rule.reads),
        )
        assert Look(changed, look.slot).found(rule) == look.found(rule), look.request


def transplanted(value: Any, donor: Any, reads: Sequence[str]) -> Any:
    """``value`` with the fields of ``donor``, but for those that are read."""
    if value is None or donor is None:
        return value
    return replace(
        value,
        **{
            part: _mixed(part, getattr(value, part), getattr(donor, part), reads)
            for part in PARTS
            if hasattr(value, part)
        },
    )


def _mixed(path: str, value: Any, donor: Any, reads: Sequence[str]) -> Any:
    if path in reads:
        return value
    if not any(read.startswith(f"{path}.") for read in reads):
        return donor
    if isinstance(value, ApiType):
        return _of_fields(path, value, donor, reads)
    inner: Callable[[Any], Any] = lambda item: _of_fields(  # noqa: E731
        path, item, donor[0] if donor else item, reads
    )
    return tuple(map(inner, value))


def _of_fields(path: str, value: ApiType, donor: ApiType, reads: Sequence[str]) -> ApiType:
    def mix(field: Field) -> Any:
        mine, theirs = getattr(value, field.attribute), getattr(donor, field.attribute)
        return _mixed(f"{path}.{field.name}", mine, theirs, reads)

    return replace(value, **{field.attribute: mix(field) for field in fields_of(type(value))})
