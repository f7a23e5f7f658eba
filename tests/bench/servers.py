"""The webhooks that are compared, each on one core, with the same certificate."""

import os
import socket
import ssl
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from certs.issue import issue_authority, issue_serving
from tests.controlplane.build import binary_path
from tests.controlplane.ports import free_port
from tests.controlplane.process import ending_with_parent
from tests.patience import PATIENCE

SERVER_CORE: Final = "0"
LOAD_CORE: Final = "1"

_TICKS: Final = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Server:
    """A running webhook."""

    name: str
    url: str
    process: "subprocess.Popen[bytes]"
    ready_seconds: float
    """From the start of the process to its first answer over TLS."""

    def memory(self) -> float:
        """Resident memory in MiB, of the process and its children."""
        return sum(_resident(pid) for pid in _family(self.process.pid)) / 1024

    def processor_seconds(self) -> float:
        """Processor time so far, of the process and its children."""
        return sum(_processor_ticks(pid) for pid in _family(self.process.pid)) / _TICKS


def issue_certificates(folder: Path) -> Path:
    """Write ``tls.crt``, ``tls.key`` and ``ca.crt`` into ``folder``; return the last."""
    now = datetime.now(UTC)
    authority = issue_authority(now)
    serving = issue_serving(authority, ("localhost", "127.0.0.1"), now)
    (folder / "tls.crt").write_bytes(serving.certificate)
    (folder / "tls.key").write_bytes(serving.key)
    (folder / "ca.crt").write_bytes(authority.pair.certificate)
    return folder / "ca.crt"


@contextmanager
def running(name: str, folder: Path) -> Iterator[Server]:
    """Run the webhook ``name`` ("usher", "go" or "bare") with the certificates of ``folder``."""
    port = free_port()
    began = time.monotonic()
    with (folder / f"{name}.log").open("wb") as log:
        process = subprocess.Popen(
            ["taskset", "-c", SERVER_CORE, *_command(name, port, folder)],
            env={"GOMAXPROCS": "1", "PATH": "/usr/bin:/bin"},
            stdout=subprocess.DEVNULL,
            stderr=log,
            preexec_fn=ending_with_parent(),  # noqa: PLW1509 - one system call, no lock
        )
    try:
        _wait_for(port, folder / "ca.crt", process)
        ready = time.monotonic() - began
        yield Server(name, f"https://localhost:{port}/validate", process, ready)
    finally:
        process.terminate()
        process.wait()


def _command(name: str, port: int, folder: Path) -> list[str]:
    if name == "go":
        return [str(binary_path("gowebhook")), f"--port={port}", f"--cert-dir={folder}"]
    if name == "bare":
        return [sys.executable, "-m", "tests.bench.bare", str(port), str(folder)]
    return [
        str(Path(sys.executable).parent / "usher"), "serve", "--bind", "127.0.0.1",
        "--port", str(port), "--health-bind", "127.0.0.1", "--health-port", str(free_port()),
        "--tls-cert", str(folder / "tls.crt"), "--tls-key", str(folder / "tls.key"),
        "--drain-seconds", "0", "--log-format", "json", "--offline",
    ]  # fmt: skip


def _wait_for(port: int, authority: Path, process: "subprocess.Popen[bytes]") -> None:
    trust = ssl.create_default_context(cafile=str(authority))
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with (
                socket.create_connection(("127.0.0.1", port), timeout=1) as plain,
                trust.wrap_socket(plain, server_hostname="localhost"),
            ):
                return
        except OSError:
            time.sleep(0.01)
    raise RuntimeError(f"the webhook on port {port} did not start")


def _family(pid: int) -> list[int]:
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [pid, *(member for child in text.split() for member in _family(int(child)))]


def _resident(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    return 0


def _processor_ticks(pid: int) -> int:
    # The command stands in brackets and may hold spaces; utime and stime are the 12th and 13th
    # fields behind it (proc(5)).
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def ask(server: Server, folder: Path, body: bytes) -> bytes:
    """Send one review and return the answer."""
    trust = ssl.create_default_context(cafile=str(folder / "ca.crt"))
    request = urllib.request.Request(server.url, body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, context=trust) as answer:
        content: bytes = answer.read()
    return content
