"""Which policies count, and which labels they select."""

import pytest

from rules.policies import (
    ClusterResponderPolicy,
    LabelRequirement,
    LabelSelector,
    ResponderPolicy,
    selects,
)
from rules.policy.reading import read_policies
from tests.rules.revising import policy

LABELS = {"app": "db", "tier": "", "zone": "a"}


def requirement(key: str, operator: str, *values: str) -> LabelSelector:
    return LabelSelector(
        match_expressions=(LabelRequirement(key=key, operator=operator, values=values),)
    )


@pytest.mark.parametrize(
    ("selector", "selected"),
    [
        (None, True),
        (LabelSelector(), True),
        (LabelSelector(match_labels={"app": "db", "tier": ""}), True),
        (LabelSelector(match_labels={"app": "db", "zone": "b"}), False),
        (LabelSelector(match_labels={"none": ""}), False),
        (requirement("zone", "In", "a", "b"), True),
        (requirement("zone", "In", "b"), False),
        (requirement("none", "In", "a", ""), False),
        (requirement("zone", "NotIn", "b"), True),
        (requirement("zone", "NotIn", "a"), False),
        (requirement("none", "NotIn", "a"), True),
        (requirement("tier", "Exists"), True),
        (requirement("none", "Exists"), False),
        (requirement("none", "DoesNotExist"), True),
        (requirement("tier", "DoesNotExist"), False),
        (
            LabelSelector(
                match_labels={"app": "db"},
                match_expressions=(LabelRequirement(key="app", operator="DoesNotExist"),),
            ),
            False,
        ),
    ],
)
def test_selectors_select_as_in_kubernetes(
    selector: LabelSelector | None, *, selected: bool
) -> None:
    assert selects(selector, LABELS) is selected


def test_policies_come_by_name() -> None:
    documents = [policy("b"), policy("a"), policy("c")]
    assert [p.metadata.name for p in read_policies(ResponderPolicy, documents)] == ["a", "b", "c"]


@pytest.mark.parametrize(
    "broken",
    [
        None,
        {"spec": 7},
        {"metadata": {"name": "no-spec"}},
        policy("no-selector", podSelector=None),
        policy("reserved", ("imperative-eviction.k8s.io/evictor", 5000)),
        policy("too-low", ("acme.io/x", 999)),
        policy("twice", ("acme.io/x", 1000), ("acme.io/x", 2000)),
        policy("too-many", *((f"acme.io/x{number}", 1000) for number in range(11))),
        policy("pods", podSelector={"matchLabels": {"no key": ""}}),
        policy("operator", podSelector={"matchExpressions": [{"key": "a", "operator": "Like"}]}),
        policy(
            "namespaces", namespaceSelector={"matchExpressions": [{"key": "a", "operator": "In"}]}
        ),
    ],
    ids=lambda broken: str(broken)[:40],
)
def test_a_policy_that_the_rules_refuse_does_nothing(broken: object) -> None:
    whole = policy("whole", ("acme.io/x", 1000), namespaceSelector={})
    (kept,) = read_policies(ClusterResponderPolicy, [broken, whole])
    assert kept.metadata.name == "whole"
