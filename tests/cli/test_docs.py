"""Every command of docs/ci.md does what the page says."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import jsonschema_rs
import pytest
import xmlschema
import yaml

from cli.main import usher as group
from tests.cli.conftest import Usher
from tests.cli.test_validate import EVICTION, HEARTBEAT, REQUEST

pytestmark = pytest.mark.slow

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = (ROOT / "docs" / "ci.md").read_text(encoding="utf-8")
SCHEMAS: Final = Path(__file__).parent / "schemas"


def _blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)


def _yaml_block(mark: str) -> Any:
    (block,) = (block for block in _blocks("yaml") if mark in block)
    return yaml.safe_load(block)


KUBECTL: Final = """#!/bin/sh
case "$*" in
  "get evictionrequests -A -o yaml") cat "$FAKE/requests.yaml";;
  "get eviction pod-1-db-0 -o yaml") cat "$FAKE/eviction.yaml";;
  *) echo "unexpected: kubectl $*" >&2; exit 1;;
esac
"""


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A git repository with manifests, whose branch is one lawful change ahead of origin/main."""
    fake = tmp_path / "fake"
    fake.mkdir()
    (fake / "usher").write_text(f'#!/bin/sh\nexec {sys.executable} -m cli.main "$@"\n')
    (fake / "kubectl").write_text(KUBECTL)
    for program in ("usher", "kubectl"):
        (fake / program).chmod(0o755)
    items = "".join(f"  {line}\n" for line in REQUEST.splitlines())
    (fake / "requests.yaml").write_text(f"apiVersion: v1\nkind: List\nitems:\n-\n{items}")
    (fake / "eviction.yaml").write_text(EVICTION)
    work = tmp_path / "work"
    (work / "manifests").mkdir(parents=True)
    (work / "manifests" / "drain.yaml").write_text(REQUEST)
    (work / "changed.yaml").write_text(HEARTBEAT)
    (work / "requests.jsonl").write_text("")
    (work / "usher.yaml").write_text(next(b for b in _blocks("yaml") if "# usher.yaml" in b))
    script = """
        git init -q -b main && git add manifests && git commit -qm one
        git update-ref refs/remotes/origin/main HEAD
        sed -i 's/intent: Eviction/intent: Withdrawn/' manifests/drain.yaml
    """
    _shell(script, work)
    return work


def _shell(script: str, directory: Path) -> subprocess.CompletedProcess[str]:
    identity = {
        f"GIT_{who}_{what}": "a@example.com"
        for who in ("AUTHOR", "COMMITTER")
        for what in ("NAME", "EMAIL")
    }
    fake = directory.parent / "fake"
    return subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=directory,
        env=os.environ
        | identity
        | {"PATH": f"{fake}:{os.environ['PATH']}", "FAKE": str(fake), "PYTHONPATH": str(ROOT)}
        | {"USHER_NOW": "2026-07-01T12:00:00Z"},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("script", _blocks("sh"), ids=lambda script: script.splitlines()[-1])
def test_every_shell_block_runs(repository: Path, script: str) -> None:
    run = _shell(script, repository)
    assert run.returncode == 0, run.stdout + run.stderr


@pytest.mark.parametrize("script", _blocks("sh")[2:4])
def test_the_old_and_new_blocks_find_a_forbidden_change(repository: Path, script: str) -> None:
    assert "--old" in script
    _shell("sed -i s/ops.acme.io/vpa.acme.io/ manifests/drain.yaml", repository)
    run = _shell(script, repository)
    assert run.returncode == 1
    assert "[immutable-fields]" in run.stdout


def _own_steps(steps: list[str]) -> list[str]:
    """Without the installation, which needs the network."""
    return [step for step in steps if not step.startswith("pip install")]


def test_github_actions(repository: Path) -> None:
    workflow = _yaml_block("codeql-action")
    steps = workflow["jobs"]["usher"]["steps"]
    annotate, upload = _own_steps([step["run"] for step in steps if "run" in step])
    assert _shell(annotate, repository).returncode == 0
    _shell("sed -i s/Withdrawn/x/ manifests/drain.yaml", repository)
    run = _shell(annotate, repository)
    assert run.returncode == 1
    assert run.stdout.startswith("::error file=manifests/drain.yaml,line=9,col=3,")
    assert _shell(upload, repository).returncode == 1
    (name,) = (
        step["with"]["sarif_file"] for step in steps if "upload-sarif" in step.get("uses", "")
    )
    log = json.loads((repository / name).read_bytes())
    jsonschema_rs.validate(json.loads((SCHEMAS / "sarif-2.1.0.json").read_bytes()), log)
    location = log["runs"][0]["results"][0]["locations"][0]["physicalLocation"]
    assert location["artifactLocation"]["uri"] == "manifests/drain.yaml"


def test_gitlab(repository: Path) -> None:
    job = _yaml_block("reports:")["manifests"]
    (script,) = _own_steps(job["script"])
    assert _shell(script, repository).returncode == 0
    report = repository / job["artifacts"]["reports"]["junit"]
    xmlschema.XMLSchema(str(SCHEMAS / "junit-10.xsd")).validate(str(report))


def test_the_pre_commit_hook(repository: Path) -> None:
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_bytes())
    used = _yaml_block(".pre-commit-config")["repos"][0]["hooks"][0]
    assert hook["id"] == used["id"]
    command = f"{hook['entry']} {' '.join(used['args'])} manifests/drain.yaml"
    assert _shell(command, repository).returncode == 0


def test_the_json_example_is_what_comes_out(usher: Usher) -> None:
    (example,) = map(json.loads, _blocks("json"))
    Path("manifests").mkdir()
    Path("manifests/drain.yaml").write_text(REQUEST.replace("intent: Eviction", "intent: evict"))
    run = usher("validate", "-o", "json", "--now", example["now"], "manifests")
    assert json.loads(run.stdout) == example


def test_every_flag_that_the_page_names_exists() -> None:
    import click  # noqa: PLC0415

    known = {"--help"}
    for name in ("validate", "replay", "explain"):
        command = group.get_command(click.Context(group), name)
        assert command is not None
        known |= {option for parameter in command.params for option in parameter.opts}
    ours = re.sub(r"^(git|kubectl) .*?(\||$)", "", PAGE, flags=re.MULTILINE)
    assert set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", ours)) <= known


def test_the_configuration_example(repository: Path) -> None:
    run = _shell("usher validate --config usher.yaml manifests/", repository)
    assert run.returncode == 0, run.stderr
