"""The catalogue lists every rule module once, under the name of its file, with a whole document."""

import importlib
import pkgutil
import re
from pathlib import Path

import pytest

import rules
from rules import catalog
from rules.constraints import CONSTRAINTS, Constraint, Format
from rules.rule import Rule

NOT_RULES = {"rules.pod.declaration", "rules.policy.reading"}
PACKAGES = ("eviction", "guards", "meta", "pod", "policy")
ROOT = Path(rules.__file__).parent


def modules() -> list[str]:
    return [
        f"rules.{package}.{module.name}"
        for package in PACKAGES
        for module in pkgutil.iter_modules([str(ROOT / package)])
        if f"rules.{package}.{module.name}" not in NOT_RULES
    ]


@pytest.mark.parametrize("name", modules())
def test_every_module_is_listed_under_its_own_name(name: str) -> None:
    rule: Rule[object] = importlib.import_module(name).RULE
    assert catalog.RULES[rule.name] is rule
    assert rule.guard is (".guards." in name)
    stem = name.rpartition(".")[2].replace("_", "-")
    assert rule.name in (stem, f"well-formed-{stem}")


def test_nothing_is_listed_twice() -> None:
    kinds = (catalog.EVICTION, catalog.EVICTION_REQUEST, catalog.POD, catalog.POLICY)
    for listed in (catalog.DECLARED, *kinds):
        names = [rule.name for rule in listed]
        assert len(set(names)) == len(names)
    assert len(catalog.RULES) == len(modules()) + len(CONSTRAINTS)


def test_every_constraint_is_a_rule() -> None:
    def leaves(base: type[Constraint]) -> set[type[Constraint]]:
        below = base.__subclasses__()
        return {base} if not below else {leaf for sub in below for leaf in leaves(sub)}

    # A slotted dataclass replaces the class that it decorates, so names are compared.
    assert {leaf.__name__ for leaf in leaves(Constraint)} - {Format.__name__} == {
        constraint.__name__ for constraint in CONSTRAINTS
    }


@pytest.mark.parametrize("rule", catalog.RULES.values(), ids=lambda rule: rule.name)
def test_every_rule_is_documented(rule: Rule[object]) -> None:
    assert re.fullmatch(r"[a-z]+(-[a-z]+)+", rule.name)
    assert rule.doc.splitlines()[0].endswith(".")
    for section in ("Why:", "Source:"):
        assert any(line.strip().startswith(section) for line in rule.doc.splitlines())
