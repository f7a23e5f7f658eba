"""docs/identity.md and docs/rollout.md: what they tell their readers to type does what they say."""

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import click
import pytest
import yaml

from cli.main import usher as group
from cli.reference import entries
from rules.catalog import GUARDS, RULES
from rules.rule import Enforcement
from tests.docs.metrics import webhook
from tests.examples.shell import blocks, page, run_shell

pytestmark = pytest.mark.slow

IDENTITY: Final = page("identity.md")
ROLLOUT: Final = page("rollout.md")
PAGES: Final = {"identity.md": IDENTITY, "rollout.md": ROLLOUT}
KUBECTL: Final = """#!/bin/sh
case "$*" in
  "get roles,"*) cat rbac/responder.yaml;;
  "create -o jsonpath={.status.allowed} -f -") cat > asked.yaml; echo true;;
  "logs -n usher-system "*) cat serve.log;;
  *) echo "unexpected: kubectl $*" >&2; exit 1;;
esac
"""
REFUSED: Final = {"rule": "responder-identity", "message": "Forbidden: may not"}
LOG: Final = [
    {"event": "serving"},
    {"event": "audited", "user": "jane", "namespace": "db", "causes": [REFUSED]},
    {"event": "audited", "user": "jane", "namespace": "db", "causes": [REFUSED]},
    {"event": "denied", "user": "joe", "namespace": "db", "causes": [REFUSED]},
]
_AUDITED: Final = {
    "verb": "patch",
    "user": {"username": "jane"},
    "objectRef": {"namespace": "db", "name": "pod-1-db-0"},
    "requestReceivedTimestamp": "2026-07-01T12:00:00Z",
}
AUDIT: Final = [
    {"verb": "get"},
    _AUDITED | {"annotations": {"validate.usher.dev/verdict": "allow"}},
    _AUDITED
    | {
        "annotations": {
            "validate.usher.dev/verdict": "allow",
            "validate.usher.dev/rules": "responder-identity",
            "validate.usher.dev/unanswered": "target-truth",
        }
    },
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the files that the pages show, and those that they take for granted."""
    for text in (page("responders.md"), IDENTITY):
        for block in blocks(text, "yaml"):
            if named := re.match(r"# (\S+\.yaml)\n", block):
                path = tmp_path / named[1]
                path.parent.mkdir(exist_ok=True)
                path.write_text(block)
    stored = (tmp_path / "stored.yaml").read_text()
    changed = stored.replace("12:01:00Z", "12:02:00Z").replace("40 percent", "60 percent")
    (tmp_path / "changed.yaml").write_text(changed)
    (tmp_path / "serve.log").write_text("".join(f"{json.dumps(line)}\n" for line in LOG))
    (tmp_path / "audit.log").write_text("".join(f"{json.dumps(line)}\n" for line in AUDIT))
    (tmp_path / "fake").mkdir()
    (tmp_path / "fake" / "kubectl").write_text(KUBECTL)
    (tmp_path / "fake" / "kubectl").chmod(0o755)
    return tmp_path


def _examples() -> Iterator[tuple[str, str]]:
    """Each command of ours that the pages show, and what they say that it prints."""
    for text in PAGES.values():
        for block in blocks(text, "console"):
            for shown in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
                command, _, printed = shown.partition("\n")
                if command.startswith("usher"):
                    yield command, printed


@pytest.mark.parametrize(("command", "printed"), list(_examples()))
def test_what_a_command_prints(folder: Path, command: str, printed: str) -> None:
    run = run_shell(f"{command} 2>&1", folder)
    assert run.stdout == printed
    assert run.returncode == (1 if ": error: " in printed else 0)


def _scripts() -> list[str]:
    return [script for text in PAGES.values() for script in blocks(text, "sh")]


@pytest.mark.parametrize(
    "script", [script for script in _scripts() if "jq" not in script], ids=lambda s: s.split()[1]
)
def test_scripts(folder: Path, script: str) -> None:
    run = run_shell(script, folder, folder / "fake")
    assert run.returncode == 0, run.stdout + run.stderr


def test_the_review_asks_what_the_guard_asks(folder: Path) -> None:
    (script,) = (script for script in _scripts() if "SubjectAccessReview" in script)
    run_shell(script, folder, folder / "fake")
    asked = yaml.safe_load((folder / "asked.yaml").read_text())["spec"]["resourceAttributes"]
    example = entries()["responder-identity"].example.replace("\n# ", " ")
    (rule,) = re.findall(r"{apiGroups.*\]}", example)
    assert yaml.safe_load(rule) == {
        "apiGroups": [asked["group"]],
        "resources": [asked["resource"]],
        "resourceNames": [asked["name"]],
        "verbs": [asked["verb"]],
    }


@pytest.mark.skipif(not shutil.which("jq"), reason="jq is not installed")
def test_who_it_was(folder: Path) -> None:
    logs, audit = (script for script in _scripts() if "jq" in script)
    run = run_shell(f"{logs}\necho ---\n{audit}", folder, folder / "fake")
    from_logs, _, from_audit = run.stdout.partition("---\n")
    told = ["2", "responder-identity", "jane", "db", *REFUSED["message"].split()]
    assert from_logs.split() == told
    assert from_audit.splitlines() == [
        "jane\tdb\tpod-1-db-0\tpatch\tallow\tresponder-identity",
        "2026-07-01T12:00:00Z\ttarget-truth",
    ]


def test_kubectl_prints_what_guards_say() -> None:
    shown = " ".join(blocks(IDENTITY, "console"))
    for guard in ("responder-identity", "controller-fields"):
        lines = entries()[guard].example.splitlines()
        refusal = " ".join(line.removeprefix("# ") for line in lines if line.startswith("# "))
        assert refusal in shown
    assert "exists and its phase is neither Succeeded nor Failed" in shown


# --- names --------------------------------------------------------------------------------------


def _metrics() -> dict[str, set[str]]:
    """Name of a series in Prometheus → its labels."""
    suffixes = {"histogram": ("_bucket", "_sum", "_count")}
    return {
        family.name + suffix: set(family.labels)
        for family in webhook()
        for suffix in suffixes.get(family.kind, ("",))
    }


@pytest.mark.parametrize("query", blocks(ROLLOUT, "promql"))
def test_queries_name_what_is_measured(query: str) -> None:
    known = _metrics()
    found = re.findall(r"(usher_\w+)(?:{([^}]*)})?", query)
    assert found
    for name, matchers in found:
        labels = set(re.findall(r"(\w+)(?:!?=~?)", matchers))
        labels |= set(re.findall(r"\w+", "".join(re.findall(r"by \(([^)]*)\)", query)))) - {"le"}
        assert labels <= known[name]


@pytest.mark.parametrize("name", PAGES)
def test_every_flag_exists(name: str) -> None:
    known = {"--help"}
    for command_name in ("serve", "validate", "replay"):
        command = group.get_command(click.Context(group), command_name)
        assert command is not None
        known |= {option for parameter in command.params for option in parameter.opts}
    ours = re.sub(r"^(\$ )?kubectl .*", "", PAGES[name], flags=re.MULTILINE)
    assert set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", ours)) <= known


def test_the_pages_know_every_guard_that_asks() -> None:
    asking = {name for name, rule in GUARDS.items() if rule.asks is not None}
    for text in PAGES.values():
        assert asking <= set(re.findall(r"`([a-z-]+)`", text))
    tables = re.findall(r"^\| .*", IDENTITY, re.MULTILINE)
    stopped = {name for row in tables for name in re.findall(r"`([a-z]+(?:-[a-z]+)+)`", row)}
    assert stopped - {"claim"} <= set(RULES)


@pytest.mark.parametrize("block", blocks(ROLLOUT, "yaml"))
def test_the_configurations_are_lawful(folder: Path, block: str) -> None:
    config: dict[str, Any] = yaml.safe_load(block)
    assert set(config["enforce"].values()) <= set(Enforcement)
    (folder / "usher.yaml").write_text(block)
    run = run_shell("usher validate --config usher.yaml drain.yaml", folder)
    assert run.returncode == 0, run.stderr
