"""The controllers that are compared, each as a process whose use of the machine is measured."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.controlplane import binary_path
from tests.controlplane.ports import HOST
from tests.controlplane.process import ChildProcess

_TICKS: Final = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Contender:
    """One of the controllers, by what it calls itself to an API server."""

    name: str
    user_agent: str

    def command(self, kubeconfig: Path) -> list[str]:
        """Its command line; it leads at once."""
        if self is REFERENCE:
            program = str(binary_path("reference-controllers"))
            return [program, f"--kubeconfig={kubeconfig}", f"--user-agent={self.user_agent}"]
        return [
            *(sys.executable, "-m", "cli.main", "controller", "--kubeconfig", str(kubeconfig)),
            *("--no-leader-elect", "--health-bind", HOST, "--health-port", "0"),
        ]


USHER: Final = Contender("usher", "usher-controller")
REFERENCE: Final = Contender("reference", "reference-controllers")
CONTENDERS: Final = (USHER, REFERENCE)


@contextmanager
def started(contender: Contender, kubeconfig: Path, folder: Path) -> Iterator[ChildProcess]:
    """Run a controller until the block ends."""
    process = ChildProcess(contender.name, folder / f"{contender.name}.log")
    process.start(contender.command(kubeconfig), os.environ)
    try:
        yield process
    finally:
        process.stop(patience=0)


def processor_seconds(pid: int) -> float:
    """Processor time of a process so far."""
    # The command stands in brackets and may hold spaces; utime and stime are the 12th and 13th
    # fields behind it (proc(5)).
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def peak_megabytes(pid: int) -> float:
    """The most memory that a process has had at once."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    peak = next(line for line in lines if line.startswith("VmHWM:"))
    return int(peak.split()[1]) / 1024
