"""How long to wait before the next attempt."""

from collections.abc import Iterator
from itertools import repeat
from random import uniform  # noqa: TID251 - no verdict depends on it
from typing import Final

from cluster.failures import Busy, ClusterFailure, ServerFailure, Unreachable

JITTER: Final = 0.2
"""The share by which a wait is longer at most, so that those who failed together do not all come
back together. Our own choice; client-go has 0.1 to 1.2, by the kind of wait."""

TRANSIENT: Final = (Busy, ServerFailure, Unreachable)
"""What may be gone when a question is asked again: an API server of three that restarts resets its
connections, and priority and fairness lets a busy one answer 429."""
_FIRST_SECONDS: Final = 0.1
"""The first wait before a question is asked again; each further one is twice as long. Our own
choice: with priority and fairness a place mostly comes free within that."""
_LONGEST_SECONDS: Final = 2.0
"""The longest such wait that the API server has not asked for. Our own choice."""


def jittered(seconds: float) -> float:
    """``seconds``, or up to a fifth longer."""
    return seconds * uniform(1.0, 1.0 + JITTER)  # noqa: S311 - nobody must not guess it


def waits() -> Iterator[float]:
    """How long to wait before each further try, in seconds, where nobody says how long."""
    seconds = _FIRST_SECONDS
    while seconds < _LONGEST_SECONDS:
        yield seconds
        seconds *= 2
    yield from repeat(_LONGEST_SECONDS)


def pause(failure: ClusterFailure, wait: float) -> float:
    """How long to wait after ``failure``, in seconds: never as long as others do.

    It is what the API server has asked for, and between half of ``wait`` and all of it.
    """
    told = failure.retry_after if isinstance(failure, Busy | ServerFailure) else None
    return (told or 0) + uniform(wait / 2, wait)  # noqa: S311 - nobody has to guess it
