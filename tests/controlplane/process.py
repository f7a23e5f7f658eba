"""Child processes that never outlive the tests."""

import contextlib
import ctypes
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from http.client import HTTPException
from pathlib import Path
from typing import Protocol

from tests.patience import PATIENCE

_STOP_SECONDS = 5.0
"""Patience after SIGTERM; an API server with open watches would take a minute to drain."""
_POLL_SECONDS = 0.1
_PR_SET_PDEATHSIG = 1
_TAIL_LINES = 30
_LIBC = ctypes.CDLL(None)
_HAS_PRCTL = sys.platform == "linux"


class ProcessError(Exception):
    """A program of the control plane died or never became ready; the message shows its log."""


def die_with_parent() -> None:
    """Tie a child to the thread that forks it; for ``preexec_fn``, on Linux."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def ending_with_parent() -> Callable[[], None] | None:
    """What ``preexec_fn`` has to be for a child that ends with this program, however that ends.

    None where that can't be: elsewhere than on Linux, and in other threads than the main one,
    because the child would end with the thread.
    """
    is_main_thread = threading.current_thread() is threading.main_thread()
    return die_with_parent if _HAS_PRCTL and is_main_thread else None


class Process(Protocol):
    """As much of ``Popen`` as is needed here."""

    pid: int

    def poll(self) -> int | None:
        """How it has ended; None while it runs."""

    def wait(self, timeout: float | None = None) -> int:
        """Wait until it has ended. Raises ``TimeoutExpired``."""

    def terminate(self) -> None:
        """Ask it to end."""

    def kill(self) -> None:
        """End it."""


class ChildProcess:
    """One program, its output in ``log``."""

    def __init__(self, name: str, log: Path) -> None:
        self.name = name
        self.log = log
        self._process: Process | None = None

    def start(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        """Start ``command`` in a process group of its own, appending to the log."""
        self._process = self._spawn(command, environment)

    def _spawn(self, command: Sequence[str], environment: Mapping[str, str]) -> Process:
        with self.log.open("ab") as output:
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,  # Ctrl-C must reach this program first, not the child
                preexec_fn=ending_with_parent(),  # noqa: PLW1509 - one system call, no lock
            )

    @property
    def pid(self) -> int | None:
        """Process id while it runs."""
        return None if self._process is None else self._process.pid

    def ensure_alive(self) -> None:
        """Raise ``ProcessError`` with the end of the log if the program has ended."""
        if self._process is None:
            raise ProcessError(f"{self.name} was not started")
        status = self._process.poll()
        if status is not None:
            raise ProcessError(f"{self.name} ended with status {status}; {self.last_words()}")

    def last_words(self) -> str:
        """Return the end of the log, for error messages."""
        return f"the end of its log:\n{self.tail()}"

    def tail(self, lines: int = _TAIL_LINES) -> str:
        """Return the last lines of the log."""
        if not self.log.exists():
            return ""
        with self.log.open(errors="replace") as text:
            return "".join(deque(text, maxlen=lines))

    def stop(self, patience: float = _STOP_SECONDS) -> None:
        """Ask the program to end, kill it after ``patience`` seconds. Does nothing twice."""
        process, self._process = self._process, None
        if process is None:
            return
        if patience > 0:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(patience)
                return
        process.kill()
        process.wait()


def wait_until(is_ready: Callable[[], bool], *processes: ChildProcess) -> None:
    """Poll until ready; raise ``ProcessError`` when one of ``processes`` dies or time is up."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        for process in processes:
            process.ensure_alive()
        try:
            if is_ready():
                return
        except (OSError, HTTPException):
            pass  # not listening yet
        time.sleep(_POLL_SECONDS)
    first = processes[0]
    raise ProcessError(f"{first.name} not ready in {PATIENCE:.0f} s; {first.last_words()}")
