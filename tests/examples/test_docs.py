"""What docs/responders.md says is what happens."""

import copy
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.cli.conftest import Usher
from tests.examples.responding import EXAMPLES, documents
from tests.examples.shell import blocks, page, run_shell

pytestmark = pytest.mark.slow

PAGE: Final = page("responders.md")
NOW: Final = "2026-07-01T12:02:00Z"

Document = dict[str, Any]


def _yaml_block(mark: str) -> str:
    (found,) = (block for block in blocks(PAGE, "yaml") if mark in block)
    return found


def _shell(script: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run ``script`` where the examples and ``stored.yaml`` are."""
    (folder / "examples").symlink_to(EXAMPLES)
    (folder / "stored.yaml").write_text(_yaml_block("# stored.yaml"))
    return run_shell(script, folder)


def _offline() -> list[str]:
    return [block for block in blocks(PAGE, "sh") if "usher validate" in block]


@pytest.mark.parametrize("script", _offline(), ids=lambda script: script.split()[0])
def test_offline_commands(tmp_path: Path, script: str) -> None:
    run = _shell(script, tmp_path)
    assert run.returncode == 0, run.stdout + run.stderr


def test_the_refused_report(tmp_path: Path) -> None:
    (example,) = blocks(PAGE, "console")
    command, _, printed = example.partition("\n")
    preparation = next(block for block in _offline() if "changed.yaml" in block)
    run = _shell(f"{preparation}\necho ---\n{command.removeprefix('$ ')}", tmp_path)
    assert run.returncode == 1, run.stderr
    assert run.stdout.partition("---\n")[2] == printed


def _ours(**changes: Any) -> Callable[[Document], None]:
    """A change of our entry; None removes a field."""

    def change(status: Document) -> None:
        entry = status["responders"][0] | changes
        status["responders"][0] = {key: value for key, value in entry.items() if value is not None}

    return change


REFUSALS: Final[dict[str, Callable[[Document], None]]] = {
    "field is immutable while 'imperative-eviction.k8s.io/evictor' is not 'Active'": (
        lambda status: status["responders"][1].update(message="hello")
    ),
    "heartbeatTime: … must be the present time, less than 30 s from …": _ours(
        heartbeatTime="2026-07-01T12:01:20Z"
    ),
    "heartbeatTime: … may not be removed once set": _ours(heartbeatTime=None),
    "heartbeatTime: … may not be decreased": _ours(heartbeatTime="2026-07-01T12:00:30Z"),
    "heartbeatTime: … should be at least 20 s after the last heartbeat": _ours(
        heartbeatTime="2026-07-01T12:01:19Z"
    ),
    "expectedCompletionTime: … may not be in the past": _ours(
        expectedCompletionTime="2026-07-01T12:01:00Z"
    ),
    "completionTime: … must be the present time": _ours(completionTime="2026-07-01T12:01:00Z"),
    "startTime: … may not be changed or removed once set": _ours(startTime=None),
    "status.responders: … must have exactly the names of status.targetResponders": (
        lambda status: status["responders"].pop()
    ),
    "message: Too long: may not be more than 4000 characters": _ours(message="x" * 4001),
    "status.conditions: Forbidden: may be changed by controllers only": (
        lambda status: status.update(
            conditions=[
                {
                    "type": "Failed",
                    "status": "False",
                    "reason": "Mine",
                    "message": "",
                    "lastTransitionTime": NOW,
                }
            ]
        )
    ),
}
"""What the page says of a refusal → a change that is refused so."""


@pytest.mark.parametrize("text", REFUSALS)
def test_refusals(usher: Usher, text: str) -> None:
    stored = yaml.load(_yaml_block("# stored.yaml"), Loader=yaml.BaseLoader)
    for responder in stored["status"]["targetResponders"]:
        responder["priority"] = int(responder["priority"])
    stored["status"]["observedGeneration"] = 1
    changed = copy.deepcopy(stored)
    REFUSALS[text](changed["status"])
    for name, document in (("stored", stored), ("changed", changed)):
        Path(f"{name}.yaml").write_text(yaml.safe_dump(document))
    arguments = ("--old", "stored.yaml", "--subresource", "status", "--now", NOW)
    run = usher("validate", *arguments, "--as", "responder", "changed.yaml")
    pattern = ".*".join(map(re.escape, text.split("…")))
    assert re.search(pattern, run.stdout), run.stdout
    assert text.replace("imperative-eviction.k8s.io/evictor", "db.acme.io/failover") in PAGE


def test_every_refusal_of_the_page_is_tried() -> None:
    rows = re.findall(r"^\| `(.+?)` \|", PAGE.partition("| refusal |")[2], re.MULTILINE)
    told = [row for row in rows if "may not respond as" not in row]  # in test_e2e_responder.py
    assert len(told) == len(REFUSALS)


def test_the_rights_are_those_of_the_manifest() -> None:
    _, role, *_ = documents("responder.yaml")
    assert yaml.safe_load(_yaml_block("resources: [evictionresponders]"))["rules"] == role["rules"]
