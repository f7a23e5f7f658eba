"""Building with a stand-in for Go: what is built when, and what happens without it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.controlplane import BINARIES, BuildError, NoToolchainError, binary_path
from tests.controlplane.availability import skip_or_fail
from tests.controlplane.build import ASSETS_VARIABLE, CACHE_VARIABLE

_FAKE_GO = """#!/bin/sh
if [ "$1" = env ]; then echo "$GO_TEST_VERSION $GOTOOLCHAIN"; exit 0; fi
if [ "$1" = list ]; then echo "$GO_TEST_MODULE"; exit 0; fi
echo "$@" >> "$GO_TEST_CALLS"
if [ -n "$GO_TEST_FAILURE" ]; then echo "$GO_TEST_FAILURE"; exit 1; fi
while [ "$1" != -o ]; do shift; done
sleep 0.2
echo program > "$2"
chmod +x "$2"
"""


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A fake Go in front of the path and an empty cache; the file lists its builds."""
    go = tmp_path / "bin" / "go"
    go.parent.mkdir()
    go.write_text(_FAKE_GO)
    go.chmod(0o755)
    log = tmp_path / "calls"
    log.touch()
    monkeypatch.delenv(ASSETS_VARIABLE, raising=False)
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", f"{go.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("GO_TEST_CALLS", str(log))
    monkeypatch.setenv("GO_TEST_VERSION", "go1")
    return log


def test_a_second_request_builds_nothing(calls: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = binary_path("kubectl")
    assert "building kubectl 1.37.2 (about" in capsys.readouterr().err
    assert binary_path("kubectl") == first
    assert len(calls.read_text().splitlines()) == 1
    assert capsys.readouterr().err == ""


def test_the_version_is_stamped(calls: Path) -> None:
    binary_path("kubectl")
    assert "version.gitVersion=v1.37.2" in calls.read_text()
    assert "version.gitMinor=37" in calls.read_text()


def test_programs_have_places_of_their_own(calls: Path) -> None:
    assert binary_path("kubectl").parent != binary_path("oracle").parent


def test_files_of_a_tool_lie_beside_it(
    calls: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool = BINARIES["kwok"].tool
    assert tool is not None
    for file in tool.files:
        path = tmp_path / "module" / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(file)
    monkeypatch.setenv("GO_TEST_MODULE", str(tmp_path / "module"))
    program = binary_path("kwok")
    found = {path.read_text() for path in program.parent.glob("*.yaml")}
    assert found == set(tool.files)
    assert calls.read_text().splitlines()[0].endswith(f"/kwok {tool.package}")


def test_two_runs_at_once_build_once(calls: Path) -> None:
    command = [sys.executable, "-m", "tests.controlplane", "path", "etcd"]
    root = Path(__file__).parents[2]
    runs = [subprocess.Popen(command, cwd=root) for _ in range(2)]
    assert [run.wait() for run in runs] == [0, 0]
    assert len(calls.read_text().splitlines()) == 1


def test_a_failed_build_shows_why_and_leaves_nothing(
    calls: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GO_TEST_FAILURE", "main.go:1: syntax error")
    with pytest.raises(BuildError, match="syntax error"):
        binary_path("etcd")
    monkeypatch.delenv("GO_TEST_FAILURE")
    assert binary_path("etcd").read_text() == "program\n"


def test_assets_stand_in_where_they_exist(
    calls: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asset = tmp_path / "etcd"
    asset.write_text("asset")
    asset.chmod(0o755)
    monkeypatch.setenv(ASSETS_VARIABLE, str(tmp_path))
    assert binary_path("etcd") == asset
    assert binary_path("kubectl") != tmp_path / "kubectl"


def test_without_go_the_message_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(ASSETS_VARIABLE, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(
        NoToolchainError, match="Go is not installed; install it, or point KUBEBUILDER_ASSETS"
    ):
        binary_path("etcd")


def test_a_skip_is_a_failure_under_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="no Go"):
        skip_or_fail("no Go")


@pytest.mark.slow
def test_a_skip_is_explained_once(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    result = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-p",
            "no:cacheprovider",
            "-o",
            "addopts=",
            "tests/oracle",
        ],
        cwd=root,
        env={"PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout
    assert result.stdout.count("end-to-end tests were skipped: Go is not installed") == 1
