"""``usher serve`` as a program of its own."""

import contextlib
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from certs.issue import issue_authority, issue_serving
from tests.controlplane.process import ending_with_parent
from tests.patience import PATIENCE
from tests.webhook.running import (
    HOST,
    NAMES,
    Site,
    eventually,
    today,
    trusting,
    write_pair,
)


@dataclass
class Served(Site):
    """A running program, and its log."""

    process: "subprocess.Popen[bytes]"
    output: Path

    @property
    def log(self) -> str:
        """All that it has written so far."""
        return self.output.read_text()

    def lines(self, event: str) -> list[dict[str, Any]]:
        """The whole log lines of ``event``."""
        return parsed(self.log, event)

    def end(self, number: int = signal.SIGTERM) -> int:
        """Tell it to end, and return its exit code."""
        self.process.send_signal(number)
        return self.process.wait(PATIENCE)


def parsed(log: str, event: str) -> list[dict[str, Any]]:
    whole = [json.loads(line) for line in log.split("\n")[:-1]]
    return [line for line in whole if line["event"] == event]


@contextlib.contextmanager
def served(folder: Path, *flags: str, ports: tuple[int, int] = (0, 0)) -> Iterator[Served]:
    """Run the program with ``flags``. With ``ports`` of 0 the log must say which ones it took."""
    authority = issue_authority(today())
    write_pair(folder, issue_serving(authority, NAMES, today()))
    command = [
        *(sys.executable, "-m", "cli.main", "serve", "--log-format", "json"),
        *("--bind", HOST, "--health-bind", HOST),
        *("--port", str(ports[0]), "--health-port", str(ports[1])),
        *("--tls-cert", str(folder / "tls.crt"), "--tls-key", str(folder / "tls.key")),
        *(() if "--kubeconfig" in flags else ("--offline",)),
        *flags,
    ]
    output = folder / "log"
    with output.open("wb") as log:
        process = subprocess.Popen(
            command,
            stderr=log,
            stdin=subprocess.DEVNULL,
            preexec_fn=ending_with_parent(),  # noqa: PLW1509 - one system call, no lock
        )
    try:
        port, health_port = ports if all(ports) else eventually(lambda: _said(output.read_text()))
        program = Served(port, health_port, trusting(authority), process, output)
        eventually(lambda: program.health("/readyz").status == 200)
        yield program
    finally:
        process.kill()
        process.wait(PATIENCE)
    assert "Traceback" not in output.read_text()


def _said(log: str) -> list[int]:
    """The ports in the line that says where it serves; none before that line."""
    return [
        int(line[key][0].rpartition(":")[2])
        for line in parsed(log, "serving")
        for key in ("addresses", "health")
    ]
