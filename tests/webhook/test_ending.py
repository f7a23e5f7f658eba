"""The program as a whole: how it goes down, and what it takes."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.patience import PATIENCE
from tests.webhook.reviews import creation
from tests.webhook.running import eventually
from tests.webhook.served import served

REQUESTS = "usher_webhook_requests_total"


def memory(pid: int) -> int:
    """Return the resident memory of a process in MiB."""
    status = Path(f"/proc/{pid}/status").read_text()
    (line,) = (line for line in status.splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) // 1024


@pytest.mark.slow
def test_going_down_serves_on_and_then_ends(tmp_path: Path) -> None:
    with served(tmp_path, "--drain-seconds", "600") as program:
        with program.connect() as idle:
            program.process.send_signal(signal.SIGTERM)
            eventually(lambda: program.health("/readyz").status == 503)
            reply = program.call(creation())
            assert reply.response["allowed"] is True
            eventually(lambda: program.call(creation()).headers.get("Connection") == "close")
            assert program.end(signal.SIGINT) == 0
            assert idle.recv(1) == b""
        with pytest.raises(ConnectionRefusedError):
            program.connect()


_KILLED_TEST = """
import os, signal, sys
from pathlib import Path
from tests.webhook.served import served
with served(Path(sys.argv[1]), "--drain-seconds", "0"):
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.slow
def test_killed_tests_leave_no_webhook(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _KILLED_TEST, str(tmp_path)]
    # Whoever is left would keep the pipe open, and this waiting.
    found = subprocess.run(command, stdout=subprocess.PIPE, check=False, timeout=PATIENCE)
    assert found.returncode == -signal.SIGKILL


@pytest.mark.slow
def test_a_server_takes_little_memory(tmp_path: Path) -> None:
    with served(tmp_path, "--drain-seconds", "0") as program:
        for _ in range(3):
            assert program.call(creation()).response["allowed"] is True
        assert program.metric(REQUESTS) == 3
        assert memory(program.process.pid) < 100
        assert program.end(signal.SIGINT) == 0
