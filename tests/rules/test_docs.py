"""docs/mutations.md: what it shows is lawful, and nothing is forgotten."""

import re
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from rules.evaluate import evaluate
from rules.mutate import MUTATIONS
from rules.policies import ClusterResponderPolicy, ResponderPolicy
from tests.rules.revising import read, request

PAGE: Final = (Path(__file__).parents[2] / "docs" / "mutations.md").read_text(encoding="utf-8")
BLOCKS: Final[list[Any]] = [
    yaml.safe_load(block)
    for block in re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
]
POLICIES: Final = [block for block in BLOCKS if block.get("kind", "").endswith("Policy")]


def test_there_is_a_policy_of_each_kind() -> None:
    kinds = [policy["kind"] for policy in POLICIES]
    assert kinds == [ResponderPolicy.__name__, ClusterResponderPolicy.__name__]


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy["kind"])
def test_the_policies_are_lawful(policy: dict[str, Any]) -> None:
    assert evaluate(request(policy["kind"], read(policy))).violations == ()


@pytest.mark.parametrize("name", MUTATIONS)
def test_every_mutation_is_described(name: str) -> None:
    assert f"| `{name}` |" in PAGE


def test_the_registration_covers_what_mutations_look_at() -> None:
    (registration,) = (block for block in BLOCKS if block.get("webhooks"))
    registered = {
        (rule["apiGroups"][0], operation, resource)
        for webhook in registration["webhooks"]
        for rule in webhook["rules"]
        for operation in rule["operations"]
        for resource in rule["resources"]
    }
    looked_at = {
        (mutation.operation.value, mutation.kind.__name__, mutation.subresource)
        for mutation in MUTATIONS.values()
    }
    assert looked_at == {
        ("CREATE", "EvictionRequest", ""),
        ("UPDATE", "Eviction", "status"),
        ("CREATE", "Pod", ""),
    }
    assert registered == {
        ("lifecycle.k8s.io", "CREATE", "evictionrequests"),
        ("lifecycle.k8s.io", "UPDATE", "evictions/status"),
        ("", "CREATE", "pods"),
    }


def test_what_is_left_on_exists() -> None:
    (example,) = (block["mutations"] for block in BLOCKS if "mutations" in block)
    assert set(example) < set(MUTATIONS)
