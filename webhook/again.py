"""Asks an API server again what was throttled or cut off: questions change nothing.

One API server of three that restarts resets its connections, and priority and fairness lets a busy
one answer 429. The next try would succeed, and the caller is still waiting.
"""

from collections.abc import Iterator
from itertools import repeat
from random import uniform  # noqa: TID251 - when something is asked decides no verdict
from typing import Final

from cluster.failures import Busy, ClusterFailure, ServerFailure, Unreachable

TRANSIENT: Final = (Busy, ServerFailure, Unreachable)
"""What may be gone at the next try."""
_FIRST_SECONDS: Final = 0.1
"""The first wait; each further one is twice as long. Our own choice: with priority and fairness a
place mostly comes free within that."""
_LONGEST_SECONDS: Final = 2.0
"""The longest wait that the API server has not asked for. Our own choice."""


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
