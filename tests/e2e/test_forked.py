"""Forked programs end and are ended as started ones are."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.controlplane.process import ProcessError
from tests.e2e.forked import UsherProcess
from tests.e2e.waiting import eventually

pytestmark = pytest.mark.slow

_USHER: Final = (sys.executable, "-m", "cli.main")
_STAYS: Final = ("controller", "--kubeconfig", "nowhere")
"""One that ends with an error, but not at once."""


def ended(process: UsherProcess) -> str:
    try:
        process.ensure_alive()
    except ProcessError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("arguments", [("--version",), ("controller", "--nonsense"), _STAYS])
def test_status_and_words_are_those_of_a_started_one(
    tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    started = subprocess.run([*_USHER, *arguments], capture_output=True, text=True, check=False)
    process = UsherProcess("usher", tmp_path / "log")
    process.start([*_USHER, *arguments], os.environ)
    assert f"ended with status {started.returncode};" in eventually(
        lambda: ended(process), "it ends"
    )
    last = (started.stdout + started.stderr).splitlines()[-1]
    assert process.log.read_text().splitlines()[-1] == last


def test_what_is_killed_is_gone(tmp_path: Path) -> None:
    process = UsherProcess("usher", tmp_path / "log")
    process.start([*_USHER, *_STAYS], os.environ)
    pid = process.pid
    process.stop(patience=0)
    assert pid is not None
    assert not is_running(pid)


_KILLED_TEST: Final = """
import os, signal, sys
from pathlib import Path
from tests.e2e.forked import UsherProcess
process = UsherProcess("usher", Path(sys.argv.pop()))
process.start([sys.executable, "-m", "cli.main", *sys.argv[1:]], os.environ)
print(process.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_killed_tests_leave_no_process(tmp_path: Path) -> None:
    command = (sys.executable, "-c", _KILLED_TEST, *_STAYS, str(tmp_path / "log"))
    killed = subprocess.run(command, capture_output=True, text=True, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    eventually(lambda: not is_running(int(killed.stdout)), "it ends, too")


def is_running(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()
