"""Waiting for what happens in its own time."""

import time
from collections.abc import Callable
from typing import Final, TypeVar

from tests.patience import PATIENCE

_PAUSES: Final = (0.05, 1.0)
"""The shortest and the longest time between two questions (s)."""
_PAUSE_PER_QUESTION: Final = 3
"""How much longer to pause than to ask: what is waited for needs the processor, too."""
_LATE: Final = 0.02
"""How late the end of a long wait may be seen, as part of it: the longer, the fewer questions."""

T = TypeVar("T")


def eventually(condition: Callable[[], T | None], what: str) -> T:
    """Poll until ``condition`` returns something true, and return it."""
    began = time.monotonic()
    while True:
        asked = time.monotonic()
        if found := condition():
            return found
        answered = time.monotonic()
        if answered - began > PATIENCE:
            raise AssertionError(f"not in {PATIENCE:.0f} s: {what}")
        pause = max(_PAUSE_PER_QUESTION * (answered - asked), _LATE * (answered - began))
        time.sleep(min(max(pause, _PAUSES[0]), _PAUSES[1]))


def eventually_reach(goal: int, count: Callable[[], int], what: str) -> None:
    """Poll until ``count`` is ``goal`` or more; each step may take as long as anything may."""
    seen = 0
    while seen < goal:

        def more(seen: int = seen) -> int | None:
            found = count()
            return found if found > seen else None

        seen = eventually(more, f"more than {seen} of {goal}: {what}")
