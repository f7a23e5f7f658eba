"""``usher`` as a process that needs no second for its imports; see :mod:`tests.e2e.forkserver`."""

import atexit
import functools
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from tests.controlplane.process import ChildProcess, Process, ending_with_parent

_PROGRAM: Final = (sys.executable, "-m", "cli.main")
"""How the command lines begin whose processes can be forked."""
_LOOK_SECONDS: Final = 0.02


class UsherProcess(ChildProcess):
    """``python -m cli.main …``, forked; what its command line begins with otherwise is started."""

    def _spawn(self, command: Sequence[str], environment: Mapping[str, str]) -> Process:
        if tuple(command[: len(_PROGRAM)]) != _PROGRAM:
            return super()._spawn(command, environment)
        self.log.touch()
        job = {
            "arguments": list(command[len(_PROGRAM) :]),
            "environment": dict(environment),
            "folder": str(Path.cwd()),
            "log": str(self.log.absolute()),
        }
        return _Forked(_server().ask(job))


class _Forked:
    """As much of ``Popen`` as a :class:`ChildProcess` needs."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._status: int | None = None

    def poll(self) -> int | None:
        """How it has ended; None while it runs."""
        if self._status is None:
            self._status = _server().ask({"pid": self.pid})
        return self._status

    def wait(self, timeout: float | None = None) -> int:
        """Wait until it has ended. Raises ``TimeoutExpired``."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while (status := self.poll()) is None:
            if timeout is not None and deadline is not None and time.monotonic() > deadline:
                raise subprocess.TimeoutExpired("usher", timeout)
            time.sleep(_LOOK_SECONDS)
        return status

    def terminate(self) -> None:
        """Ask it to end."""
        self._send(signal.SIGTERM)

    def kill(self) -> None:
        """End it."""
        self._send(signal.SIGKILL)

    def _send(self, number: int) -> None:
        # As long as nobody has asked how it ended no other process gets its number.
        if self.poll() is None:
            os.kill(self.pid, number)


class _Server:
    """The one that forks, for this process."""

    def __init__(self) -> None:
        ours, its = socket.socketpair()
        with its:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.e2e.forkserver", str(its.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[its.fileno()],
                start_new_session=True,
                preexec_fn=ending_with_parent(),  # noqa: PLW1509 - one system call, no lock
            )
        self._connection = ours
        self._lines = ours.makefile("r")
        self._lock = threading.Lock()

    def ask(self, told: Mapping[str, Any]) -> Any:
        """Say something, and return the answer."""
        with self._lock:
            self._connection.sendall(json.dumps(told).encode() + b"\n")
            return json.loads(self._lines.readline())

    def close(self) -> None:
        """End it; all that it has forked ends with it."""
        self._lines.close()
        self._connection.close()
        self._process.wait()


@functools.cache
def _server() -> _Server:
    server = _Server()
    atexit.register(server.close)
    return server
