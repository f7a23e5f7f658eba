"""An event loop whose time passes only while everybody waits, and then at once.

Hours of timeouts and pauses take as long as the work in between, and whatever happens is in an
order that can be repeated.
"""

import asyncio
import selectors
import sys
from collections.abc import Coroutine
from typing import Any, TypeVar

import pytest

ResultT = TypeVar("ResultT")

_START = 1000.0
"""Seconds: nobody may take the beginning for something special."""


class _Selector(selectors.SelectSelector):
    """Nothing ever comes from outside: what is waited for is a time."""

    def __init__(self) -> None:
        super().__init__()
        self.now = _START

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None:
            raise RuntimeError("everybody waits for somebody else")
        self.now += max(timeout, 0.0)
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """Runs in its own time."""

    def __init__(self) -> None:
        self._virtual = _Selector()
        super().__init__(self._virtual)

    def time(self) -> float:
        """Seconds of the loop's own time, which is also the steady clock of all that runs in it."""
        return self._virtual.now


def run(work: Coroutine[Any, Any, ResultT], *packages: str) -> ResultT:
    """What ``work`` returns; the steady clock of all modules in ``packages`` is the loop's."""
    loop = VirtualLoop()
    with pytest.MonkeyPatch.context() as patch, asyncio.Runner(loop_factory=lambda: loop) as runner:
        for name, module in list(sys.modules.items()):
            if name.partition(".")[0] in packages and hasattr(module, "monotonic"):
                patch.setattr(module, "monotonic", loop.time)
        return runner.run(work)
