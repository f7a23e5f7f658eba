"""``usher explain``: the reference is complete, and docs/rules.md is fresh."""

import json
import re
from pathlib import Path
from typing import Final

import pytest
import yaml

from cli.judgement.checks import CHECKS
from cli.reference import entries
from rules.catalog import GUARDS, RULES
from rules.mutate import MUTATIONS
from tests.cli.conftest import Usher

DOCS: Final = Path(__file__).parents[2] / "docs"


def test_every_rule_and_check_is_listed_with_its_requirement(usher: Usher) -> None:
    run = usher("explain")
    assert run.exit_code == 0
    for name in (*RULES, *MUTATIONS, *CHECKS):
        assert f"\n  {name} " in run.stdout
        assert entries()[name].requirement in run.stdout
    assert "More about one of them: usher explain RULE" in run.stdout


def test_no_id_is_used_twice() -> None:
    assert len(entries()) == len(RULES) + len(MUTATIONS) + len(CHECKS)


@pytest.mark.parametrize("name", [*RULES, *MUTATIONS, *CHECKS])
def test_every_rule_says_what_why_whence_and_where(usher: Usher, name: str) -> None:
    entry = entries()[name]
    assert entry.requirement.endswith(".") or "." in entry.requirement
    assert entry.why
    assert entry.source
    assert entry.applies
    assert "``" not in str(entry)
    run = usher("explain", name)
    for text in (entry.requirement, entry.why, entry.source, *entry.fields):
        assert text in run.stdout


# A declared limit is explained by the fields that declare it instead.
@pytest.mark.parametrize("name", [name for name, entry in entries().items() if not entry.fields])
def test_behaviours_have_examples(name: str) -> None:
    entry = entries()[name]
    changes, judges = (entry.before, entry.after), (entry.admitted, entry.refused)
    wanted, others = (changes, judges) if name in MUTATIONS else (judges, changes)
    assert all(wanted)
    assert not any(others)


def test_a_mutation_says_what_it_changes(usher: Usher) -> None:
    lines = usher("explain", "fill-target-uid").stdout.splitlines()
    assert "  Before: {target: {pod: {name: web-0}}}" in lines
    assert "  Applies to: EvictionRequest: CREATE" in lines
    assert not any("Enforcement:" in line for line in lines)
    assert entries()["trim-requesters"].applies == ("Eviction: UPDATE of status",)
    markdown = usher("explain", "fill-target-uid", "-o", "markdown").stdout
    assert "\n## Mutations\n" in markdown
    assert "- **Before:** `{target: {pod: {name: web-0}}}`\n- **After:** `" in markdown


def test_guards_say_how_to_set_them(usher: Usher) -> None:
    for name, rule in GUARDS.items():
        enforcement = f"Enforcement: {rule.enforcement}; change it with --enforce {name}=MODE"
        assert enforcement in usher("explain", name).stdout


def test_examples_are_shown_as_they_stand(usher: Usher) -> None:
    example = entries()["responder-identity"].example
    assert f"\n  Example:\n\n{example}\n" in usher("explain", "responder-identity").stdout
    markdown = usher("explain", "responder-identity", "-o", "markdown").stdout
    assert f"\n```yaml\n{example}\n```\n" in markdown
    assert len(list(yaml.safe_load_all(example))) == 2
    assert "Example" not in usher("explain", "first-sync").stdout


def test_markdown_escapes_prose_and_leaves_code_alone(usher: Usher) -> None:
    markdown = usher("explain", "-o", "markdown").stdout
    assert "or for `<domain>/*`" in markdown
    assert re.search(r"\\[<\[*]", re.sub("`[^`]*`|```.*?```", "", markdown, flags=re.DOTALL))


def test_a_declared_limit_names_its_fields(usher: Usher) -> None:
    run = usher("explain", "max-items")
    assert "Declared by: EvictionRequest: status.conditions (100)" in run.stdout
    assert "             Eviction: status.targetResponders (11)" in run.stdout
    assert "Pod and pod templates: spec.evictionResponders (10)" in run.stdout
    assert "status.responders[].message (4000)" in usher("explain", "max-length").stdout
    assert "spec.intent (Eviction, Withdrawn)" in usher("explain", "enum-values").stdout


def test_what_a_rule_applies_to() -> None:
    assert entries()["immutable-fields"].applies == (
        "EvictionRequest: CREATE, UPDATE",
        "Eviction: CREATE, UPDATE",
    )
    assert entries()["heartbeat-times"].applies == ("Eviction: UPDATE of status",)
    assert entries()["requester-identity"].applies == ("EvictionRequest: CREATE, UPDATE, DELETE",)
    assert entries()["fixed-pod-responders"].applies == (
        "Pod and pod templates: UPDATE, UPDATE of status",
    )


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("heartbeet-times", "did you mean 'heartbeat-times'"),
        ("max-itms", "'max-items'"),
        ("zzz", "'usher explain' lists all of them"),
        ("", "'usher explain' lists all of them"),
    ],
)
def test_an_unknown_rule_is_no_dead_end(usher: Usher, name: str, hint: str) -> None:
    run = usher("explain", name)
    assert run.exit_code == 2
    assert hint in run.stderr


def test_json(usher: Usher) -> None:
    rules = json.loads(usher("explain", "-o", "json").stdout)["rules"]
    assert [rule["name"] for rule in rules] == list(entries())
    (rule,) = json.loads(usher("explain", "first-sync", "-o", "json").stdout)["rules"]
    assert list(rule) == [
        "name",
        "requirement",
        "details",
        "why",
        "source",
        "admitted",
        "refused",
        "before",
        "after",
        "example",
        "tier",
        "enforcement",
        "applies",
        "fields",
    ]


def test_markdown_of_one_rule(usher: Usher) -> None:
    run = usher("explain", "first-sync", "-o", "markdown")
    assert run.stdout.startswith("# Rules\n")
    assert "\n## Guards\n" in run.stdout
    assert run.stdout.count("\n### ") == 1


def test_the_reference_is_fresh(usher: Usher) -> None:
    stored = (DOCS / "rules.md").read_text(encoding="utf-8")
    assert usher("explain", "-o", "markdown").stdout == stored, "run 'make docs'"
