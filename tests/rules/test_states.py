"""The order of responders, and the documented example of it."""

import itertools

from rules.api import EVICTOR, TargetResponder
from rules.states import processing_order

EXAMPLE = (
    "example.com/bar", "example.com/baz", "y.example.com/bar", "fooexample.com/bar",
    "b.barexample.io/bar",
)  # fmt: skip


def test_ties_are_ordered_by_domain_from_the_top_label_down() -> None:
    for names in itertools.permutations(EXAMPLE):
        ordered = processing_order(TargetResponder(name=name, priority=1000) for name in names)
        assert tuple(responder.name for responder in ordered) == EXAMPLE


def test_priority_comes_first_and_unset_last() -> None:
    responders = [
        TargetResponder(name="a.io/none"),
        TargetResponder(name=EVICTOR, priority=100),
        TargetResponder(name="a.io/negative", priority=-5),
        TargetResponder(name="z.io/high", priority=20_000),
    ]
    ordered = [responder.name for responder in processing_order(responders)]
    assert ordered == ["z.io/high", EVICTOR, "a.io/negative", "a.io/none"]
