"""Every format of ``usher validate`` is what its readers expect."""

import json
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any, Final
from xml.etree import ElementTree as ET

import jsonschema_rs
import pytest
import xmlschema

from cli.reference import entries
from tests.cli.conftest import NOW, Usher

SCHEMAS: Final = Path(__file__).parent / "schemas"
ROOT: Final = Path(__file__).parents[2]

MANIFESTS: Final = {
    "clean.yaml": """\
apiVersion: lifecycle.k8s.io/v1alpha1
kind: EvictionRequest
metadata: {name: drain-db-0, namespace: shop}
spec:
  target: {pod: {name: db-0, uid: 9b0a7a5e-5f0c-4b52-9f0c-6f2a1f0e7d11}}
  requester: ops.acme.io/drain
  intent: Eviction
""",
    "dir/50%, a:b <&>'\".yaml": """\
apiVersion: v1
kind: List
items:
- kind: Secret
- apiVersion: v1
  kind: Pod
  metadata: {name: "50%, <&>\\r\\nx"}
  spec:
    evictionResponders:
    - {name: "<a href='x'>\\uffff\\x01%\\n", priority: 1, prio: 2}
---
apiVersion: lifecycle.k8s.io/v1alpha1
kind: EvictionRequst
---
a: [
""",
}


@pytest.fixture
def manifests(usher: Usher) -> None:
    """Files with every kind of finding, under names that need escaping."""
    for name, content in MANIFESTS.items():
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).write_text(content, encoding="utf-8")


def _run(usher: Usher, format_: str, *arguments: str) -> str:
    run = usher("validate", "-o", format_, "--now", NOW, *arguments, ".")
    if format_ not in ("text", "github"):
        summary = run.stderr.splitlines()[0]
        assert summary == "2 files, 5 documents: 4 errors, 1 warning, 1 skipped"
    assert run.exit_code == 2
    return run.stdout


@pytest.mark.usefixtures("manifests")
def test_json(usher: Usher) -> None:
    report = json.loads(_run(usher, "json"))
    assert list(report) == ["now", "summary", "findings"]
    assert report["now"] == NOW
    assert report["findings"][0] == {
        "file": "dir/50%, a:b <&>'\".yaml",
        "document": 1,
        "item": 1,
        "line": 10,
        "column": 8,
        "object": {
            "apiVersion": "v1",
            "kind": "Pod",
            "namespace": "",
            "name": r"50%, <&>\x0d\x0ax",
        },
        "field": "spec.evictionResponders[0].name",
        "rule": "prefixed-keys",
        "type": "FieldValueInvalid",
        "severity": "error",
        "message": report["findings"][0]["message"],
    }
    assert report["findings"][-1] | {"message": ""} == {
        "file": "dir/50%, a:b <&>'\".yaml",
        "document": 3,
        "item": None,
        "line": 16,
        "column": 1,
        "object": {"apiVersion": "", "kind": "", "namespace": "", "name": ""},
        "field": "",
        "rule": "readable-file",
        "type": "",
        "severity": "error",
        "message": "",
    }


@pytest.mark.usefixtures("manifests")
def test_junit_is_valid_and_complete(usher: Usher) -> None:
    text = _run(usher, "junit")
    schema = xmlschema.XMLSchema(str(SCHEMAS / "junit-10.xsd"))
    schema.validate(text)
    suites = ET.fromstring(text)
    assert suites.attrib == {
        "name": "usher validate",
        "tests": "5",
        "failures": "1",
        "errors": "2",
    }
    clean, other = suites
    assert clean.attrib["name"] == "clean.yaml"
    assert [case.attrib["name"] for case in other] == [
        "Secret (document 1 item 0)",
        r"Pod 50%, <&>\x0d\x0ax (document 1 item 1)",
        "EvictionRequst (document 2)",
        "(document 3)",
    ]
    assert [[child.tag for child in case] for case in other] == [
        ["skipped"],
        ["failure", "failure", "system-out"],
        ["error"],
        ["error"],
    ]
    assert other[1][0].attrib["type"] == "prefixed-keys"


@pytest.mark.usefixtures("manifests")
def test_sarif_is_valid_and_complete(usher: Usher) -> None:
    log = json.loads(_run(usher, "sarif"))
    schema = json.loads((SCHEMAS / "sarif-2.1.0.json").read_bytes())
    jsonschema_rs.validate(schema, log)
    (run,) = log["runs"]
    rules = run["tool"]["driver"]["rules"]
    for result in run["results"]:
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
    assert {rule["id"] for rule in rules} <= set(entries())
    assert all(rule["help"]["text"] for rule in rules)
    levels = [(result["ruleId"], result["level"]) for result in run["results"]]
    assert levels == [
        ("prefixed-keys", "error"),
        ("unreserved-priorities", "error"),
        ("known-fields", "warning"),
        ("known-kind", "error"),
        ("readable-file", "error"),
    ]
    place = run["results"][0]["locations"][0]
    assert place["physicalLocation"] == {
        "artifactLocation": {"uri": "dir/50%25%2C%20a%3Ab%20%3C%26%3E%27%22.yaml"},
        "region": {"startLine": 10, "startColumn": 8},
    }


def test_sarif_without_findings(usher: Usher) -> None:
    Path("clean.yaml").write_text(MANIFESTS["clean.yaml"], encoding="utf-8")
    run = usher("validate", "-o", "sarif", "clean.yaml")
    log = json.loads(run.stdout)
    jsonschema_rs.validate(json.loads((SCHEMAS / "sarif-2.1.0.json").read_bytes()), log)
    assert log["runs"][0]["results"] == []


def test_sarif_names_absolute_paths_as_uris(usher: Usher, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("a: [", encoding="utf-8")
    run = usher("validate", "-o", "sarif", tmp_path / "a.yaml")
    result: Any = json.loads(run.stdout)["runs"][0]["results"][0]
    uri = result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
    assert uri == (tmp_path / "a.yaml").as_uri()


@pytest.mark.usefixtures("manifests")
def test_github_commands_are_escaped(usher: Usher) -> None:
    *commands, summary = _run(usher, "github").splitlines()
    assert len(commands) == 5
    assert summary == "2 files, 5 documents: 4 errors, 1 warning, 1 skipped"
    assert commands[0].startswith(
        "::error file=dir/50%25%2C a%3Ab <&>'\".yaml,line=10,col=8,"
        r"title=prefixed-keys Pod 50%25%2C <&>\x0d\x0ax::spec.evictionResponders[0].name: "
        "Invalid value: \"<a href='x'>\uffff"
    )
    assert r"\u0001%25\n" in commands[0]
    assert commands[2].startswith("::warning file=")


def test_github_notices(usher: Usher) -> None:
    text = MANIFESTS["clean.yaml"].replace("ops.acme.io", "a.k8s.io")
    run = usher("validate", "--audit-only", "-o", "github", "-", stdin=text)
    assert run.stdout.startswith("::notice file=<stdin>,line=6,")


def _on_a_terminal(*arguments: str, env: dict[str, str]) -> bytes:
    """What ``usher`` writes when its output and standard error are a terminal."""
    terminal, other_end = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "cli.main", *arguments],
        cwd=ROOT,
        env={"PATH": os.environ["PATH"], "TERM": "xterm", **env},
        stdin=subprocess.DEVNULL,
        stdout=other_end,
        stderr=other_end,
    ) as process:
        os.close(other_end)
        written = b""
        try:
            while part := os.read(terminal, 65536):
                written += part
        except OSError:  # how Linux reports the end of a terminal
            pass
        process.wait()
    os.close(terminal)
    return written


@pytest.mark.slow
@pytest.mark.usefixtures("manifests")
def test_colours_on_a_terminal_only_and_never_with_no_color(tmp_path: Path, usher: Usher) -> None:
    directory = str(tmp_path)
    assert "\x1b" not in _run(usher, "text")
    assert b"\x1b[31m" in _on_a_terminal("validate", directory, env={})
    assert b"Judging" in _on_a_terminal("validate", directory, env={})
    plain = _on_a_terminal("validate", directory, env={"NO_COLOR": "1"})
    assert b"[prefixed-keys]" in plain
    assert b"\x1b[31m" not in plain
    assert b"\x1b[1m" not in _on_a_terminal("explain", "max-items", env={"NO_COLOR": "1"})
