"""How long to wait before the next attempt."""

from random import uniform  # noqa: TID251 - no verdict depends on it
from typing import Final

JITTER: Final = 0.2
"""The share by which a wait is longer at most, so that those who failed together do not all come
back together. Our own choice; client-go has 0.1 to 1.2, by the kind of wait."""


def jittered(seconds: float) -> float:
    """``seconds``, or up to a fifth longer."""
    return seconds * uniform(1.0, 1.0 + JITTER)  # noqa: S311 - nobody must not guess it
