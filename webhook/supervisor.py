"""Several processes: started, replaced when they crash, and taken down together.

The parent runs no event loop and no threads, so that it can fork at any time; it sleeps until a
signal comes. Forked processes share the imported code, and start in milliseconds.
"""

import os
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Final

import structlog

_log = structlog.get_logger()

_STOP: Final = frozenset({signal.SIGTERM, signal.SIGINT})
_AWAITED: Final = _STOP | {signal.SIGCHLD}
_STEADY_SECONDS: Final = 60.0
"""A process that lived so long was not crashing in a row. Our own choice, as are the next two."""
_FIRST_PAUSE_SECONDS: Final = 0.5
_MAX_PAUSE_SECONDS: Final = 30.0
"""Between the starts of a process that crashes in a row: doubled each time, but no more."""


@dataclass(slots=True)
class Child:
    """A process to keep running."""

    name: str
    main: Callable[[], None]
    """What it does, until it gets a SIGTERM."""
    last: bool = False
    """Whether it goes down only when all others are down."""
    down: Callable[[], None] = lambda: None
    """Called in the parent when it has ended."""
    pid: int = 0
    """0 while it does not run."""
    started: float = 0.0
    due: float = 0.0
    """When to start it next (``monotonic``)."""
    pause: float = 0.0


class Supervisor:
    """Keeps ``children`` running until the process is told to stop."""

    def __init__(
        self, children: Sequence[Child], patience: float, stopping: Callable[[], None]
    ) -> None:
        """Call ``stopping`` first when told to stop, and wait ``patience`` seconds for the end."""
        self._children = children
        self._patience = patience
        self._stopping = stopping
        self._deadline: float | None = None

    def run(self) -> None:
        """Return when all children have ended after SIGTERM or SIGINT."""
        signal.pthread_sigmask(signal.SIG_BLOCK, _AWAITED)
        try:
            while self._deadline is None or self._running():
                self._step()
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _AWAITED)

    def _step(self) -> None:
        now = monotonic()
        if self._deadline is None:
            for child in self._children:
                if not child.pid and child.due <= now:
                    _start(child)
        elif now >= self._deadline:
            self._send(signal.SIGKILL)
        received = signal.sigtimedwait(_AWAITED, self._nap(now))
        if received is None:
            return
        if received.si_signo in _STOP:
            self._stop()
        self._reap()

    def _nap(self, now: float) -> float:
        """How long nothing is to do unless a signal comes."""
        if self._deadline is not None:
            return max(self._deadline - now, _FIRST_PAUSE_SECONDS)
        due = [child.due for child in self._children if not child.pid]
        return max(min(due, default=now + _MAX_PAUSE_SECONDS) - now, 0.0)

    def _running(self) -> list[Child]:
        return [child for child in self._children if child.pid]

    def _stop(self) -> None:
        if self._deadline is None:
            self._stopping()
            self._deadline = monotonic() + self._patience
        self._send(signal.SIGTERM)

    def _send(self, number: int) -> None:
        running = self._running()
        first = [child for child in running if not child.last]
        for child in first or running:
            os.kill(child.pid, number)

    def _reap(self) -> None:
        for child in self._running():
            pid, status = os.waitpid(child.pid, os.WNOHANG)
            if pid:
                self._ended(child, os.waitstatus_to_exitcode(status))
        if self._deadline is not None and all(child.last for child in self._running()):
            self._send(signal.SIGTERM)

    def _ended(self, child: Child, code: int) -> None:
        child.down()
        pid, child.pid = child.pid, 0
        if self._deadline is not None:
            return
        now = monotonic()
        if now - child.started >= _STEADY_SECONDS:
            child.pause = 0.0
        child.due = now + child.pause
        _log.error("process ended", process=child.name, pid=pid, code=code, restart=child.pause)
        child.pause = min(max(child.pause * 2, _FIRST_PAUSE_SECONDS), _MAX_PAUSE_SECONDS)


def _start(child: Child) -> None:
    child.started = monotonic()
    child.pid = os.fork()
    if child.pid:
        return
    code = 1
    try:
        # A terminal sends its SIGINT to all processes; only the parent decides what it means.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _AWAITED)
        child.main()
        code = 0
    except BaseException:  # noqa: BLE001 - nothing may return into the parent's code
        _log.exception("process failed", process=child.name)
    finally:
        os._exit(code)
