"""``usher nodes`` on a terminal: who waits sees that it goes on; who reads a pipe sees nothing."""

import os
import pty
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

import pytest

from tests.cli.test_nodes import NODES, NOW, PODS, dump

pytestmark = pytest.mark.slow

COMMAND: Final = [sys.executable, "-m", "cli.main", "nodes", "cluster.json", *NOW]
ROOT: Final = Path(__file__).parents[2]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "cluster.json").write_text(dump([*NODES, *PODS]))
    return tmp_path


def started(folder: Path, stderr: int) -> subprocess.Popen[bytes]:
    environment = os.environ | {"PYTHONPATH": str(ROOT), "TERM": "xterm"}
    return subprocess.Popen(
        COMMAND, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=stderr
    )


def test_a_terminal_is_told_how_far_it_is(folder: Path) -> None:
    ours, theirs = pty.openpty()
    shown = b""
    with started(folder, theirs) as process:
        os.close(theirs)
        with suppress(OSError):  # how a terminal says that its other end is closed
            while part := os.read(ours, 4096):
                shown += part
        printed, _ = process.communicate()
    os.close(ours)
    assert process.returncode == 0
    assert b"reading cluster.json" in shown
    assert b"simulating" in shown
    assert printed.startswith(b"ZONE")
    assert b"simulating" not in printed


def test_a_pipe_is_told_nothing(folder: Path) -> None:
    with started(folder, subprocess.PIPE) as process:
        printed, told = process.communicate()
    assert (process.returncode, told) == (0, b"")
    assert printed.startswith(b"ZONE")
