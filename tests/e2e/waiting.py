"""Waiting for what happens in its own time."""

import time
from collections.abc import Callable
from typing import Final, TypeVar

PATIENCE: Final = 120.0
"""Seconds after which a test gives up; far above what anything takes on a loaded machine."""
_PAUSE: Final = 0.05

T = TypeVar("T")


def eventually(condition: Callable[[], T | None], what: str) -> T:
    """Poll until ``condition`` returns something true, and return it."""
    deadline = time.monotonic() + PATIENCE
    while True:
        if found := condition():
            return found
        if time.monotonic() > deadline:
            raise AssertionError(f"not in {PATIENCE:.0f} s: {what}")
        time.sleep(_PAUSE)
