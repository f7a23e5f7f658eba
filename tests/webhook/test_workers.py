"""Several processes behind one port."""

import os
import signal
import socket
import ssl
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.patience import PATIENCE
from tests.webhook.reviews import creation, encoded, refused_creation
from tests.webhook.running import HOST, JSON, answer, eventually, head
from tests.webhook.served import Served, served

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="SO_REUSEPORT as Linux has it")

REQUESTS = "usher_webhook_requests_total"
STARTS = "usher_webhook_worker_starts_total"
CALL = encoded(creation())


def memory(pid: int) -> int:
    """Return the resident memory of a process in MiB."""
    status = Path(f"/proc/{pid}/status").read_text()
    (line,) = (line for line in status.splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) // 1024


def work(program: Served, calls: int) -> None:
    for _ in range(calls):
        assert program.call(creation()).response["allowed"] is True


@pytest.mark.slow
def test_the_workers_share_the_calls_and_their_numbers_add_up(tmp_path: Path) -> None:
    with served(tmp_path, "--workers", "3", "--drain-seconds", "0") as program:
        assert len(program.children()) == 4
        work(program, 60)
        program.call(refused_creation())
        assert program.metric(REQUESTS) == 61
        assert program.metric(REQUESTS, decision="deny") == 1
        assert program.metric("usher_webhook_request_duration_seconds_count") == 61
        assert program.metric("usher_webhook_violations_total") == 1
        assert program.metric(STARTS) == 3
        (denied,) = program.lines("denied")
        assert denied["worker"] in range(3)
        with ExitStack() as stack:
            for _ in range(60):
                stack.enter_context(program.connect())
            eventually(lambda: program.metric("usher_webhook_connections") == 60)
        eventually(lambda: program.metric("usher_webhook_connections") == 0)
        for child in program.children():
            assert memory(child) < 100
        assert program.end() == 0
        assert len(program.lines("ended")) == 1


@pytest.mark.slow
def test_a_killed_worker_is_replaced(tmp_path: Path) -> None:
    with served(tmp_path, "--workers", "2", "--drain-seconds", "0") as program:
        work(program, 40)
        for turn in range(1, 3):
            before = program.children()
            victim = before[0]
            os.kill(victim, signal.SIGKILL)
            eventually(lambda turn=turn: program.metric(STARTS) == 2 + turn)
            eventually(lambda: program.health("/readyz").status == 200)
            after = program.children()
            assert victim not in after
            assert len(after) == 3
            work(program, 20)
            assert program.metric(REQUESTS) == 40 + 20 * turn
        assert len(program.lines("process ended")) == 2
        assert program.end() == 0


@pytest.mark.slow
def test_the_health_process_is_replaced(tmp_path: Path) -> None:
    with served(tmp_path, "--workers", "2", "--drain-seconds", "0") as program:
        work(program, 10)
        health = program.children()[-1]
        os.kill(health, signal.SIGKILL)
        eventually(lambda: health not in program.children() and len(program.children()) == 3)
        eventually(lambda: program.metric(REQUESTS) == 10)


def call_on(plain: socket.socket, client: ssl.SSLContext) -> int:
    """The status of a call on a connection whose handshake is still to come."""
    with client.wrap_socket(plain, server_hostname="localhost") as connection:
        connection.sendall(
            head("POST", "/validate", {**JSON, "Content-Length": str(len(CALL))}) + CALL
        )
        return answer(connection).status


@pytest.mark.slow
def test_connections_that_queue_for_a_crashed_worker_are_served(tmp_path: Path) -> None:
    with served(tmp_path, "--workers", "2", "--drain-seconds", "0") as program:
        workers = program.children()[:2]
        for worker in workers:
            os.kill(worker, signal.SIGSTOP)
        with ThreadPoolExecutor(10) as pool:
            # All at once: the time for a handshake runs from the moment a worker takes over.
            statuses = [
                pool.submit(
                    call_on,
                    socket.create_connection((HOST, program.port), PATIENCE),
                    program.client,
                )
                for _ in range(10)
            ]
            for worker in workers:
                os.kill(worker, signal.SIGKILL)
            assert [status.result() for status in statuses] == [200] * 10


@pytest.mark.slow
@pytest.mark.parametrize("workers", ["1", "2"])
def test_going_down_serves_on_and_then_ends(tmp_path: Path, workers: str) -> None:
    flags = ("--workers", workers, "--drain-seconds", "600")
    with served(tmp_path, *flags) as program:
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
        assert not Path(f"/proc/{program.process.pid}").exists() or not program.children()


@pytest.mark.slow
def test_workers_do_not_outlive_their_parent(tmp_path: Path) -> None:
    with served(tmp_path, "--workers", "2", "--drain-seconds", "0") as program:
        children = program.children()
        program.process.kill()
        program.process.wait(PATIENCE)
        eventually(lambda: not any(Path(f"/proc/{child}").exists() for child in children))


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
def test_one_process_is_enough_for_one_worker(tmp_path: Path) -> None:
    with served(tmp_path, "--drain-seconds", "0") as program:
        assert program.children() == []
        work(program, 3)
        assert program.metric(REQUESTS) == 3
        assert memory(program.process.pid) < 100
        assert program.end(signal.SIGINT) == 0
