"""A process that has imported ``usher`` and forks a program for each line that it is told.

``python -m tests.e2e.forkserver FD``, where FD is a socket; :mod:`tests.e2e.forked` talks to it.
A program that starts by itself needs a second of processor time for its imports, and the tests
start hundreds.
"""

import gc
import importlib
import json
import os
import signal
import socket
import sys
from typing import Any, Final, TextIO

from cli.main import main
from tests.controlplane.process import die_with_parent

_COMMANDS: Final = ("serve", "controller", "certs")
"""Those that run on. What only they import is imported before the first fork."""


def _serve(lines: TextIO, answers: TextIO) -> dict[str, Any] | None:
    """Answer one line after the other; None at the end, and in a fork what to run there."""
    for line in lines:
        told = json.loads(line)
        if "pid" in told:
            answer = _status(told["pid"])
        elif pid := os.fork():
            answer = pid
        else:
            job: dict[str, Any] = told
            return job
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
    return None


def _status(pid: int) -> int | None:
    """How a fork has ended, as ``Popen.returncode`` says it; None while it runs."""
    found, status = os.waitpid(pid, os.WNOHANG)
    return os.waitstatus_to_exitcode(status) if found else None


def _become(job: dict[str, Any]) -> None:
    """Make of a fork what a program of its own would be."""
    os.setsid()
    die_with_parent()
    if os.getppid() != job["server"]:
        os.kill(os.getpid(), signal.SIGKILL)  # it died before this one could be tied to it
    log = os.open(job["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    for stream in (1, 2):
        os.dup2(log, stream)
    os.close(log)
    os.chdir(job["folder"])
    os.environ.clear()
    os.environ.update(job["environment"])


if __name__ == "__main__":
    for name in _COMMANDS:
        importlib.import_module(f"cli.commands.{name}")
    gc.collect()
    gc.freeze()  # a collection in a fork need not copy all that is there already
    server = os.getpid()
    with socket.socket(fileno=int(sys.argv[1])) as connection:
        job = _serve(connection.makefile("r"), connection.makefile("w"))
    if job is not None:
        _become({**job, "server": server})
        main(job["arguments"], prog_name="usher")
