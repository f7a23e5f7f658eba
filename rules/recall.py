"""Memory for pure functions of short texts: names, reasons and instants repeat in every write."""

from collections.abc import Callable
from functools import lru_cache, wraps
from typing import Final, TypeVar

_SIZE: Final = 2048
"""Answers kept for each function; the names and reasons of a cluster are far fewer."""
_MAX_LENGTH: Final = 320
"""In characters: the longest lawful key has 317. Longer texts could fill any memory, and are
worked out each time."""

ResultT = TypeVar("ResultT")


def recalled(function: Callable[[str], ResultT]) -> Callable[[str], ResultT]:
    """``function`` with a memory of its latest answers about short texts; under 2 MB when full."""
    remembered = lru_cache(maxsize=_SIZE)(function)

    @wraps(function)
    def recall(text: str) -> ResultT:
        return remembered(text) if len(text) <= _MAX_LENGTH else function(text)

    return recall
