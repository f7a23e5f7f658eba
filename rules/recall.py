"""Memory for pure functions of short texts: names, reasons and instants repeat in every write."""

from collections.abc import Callable
from typing import Final, TypeVar

_SIZE: Final = 2048
"""Answers kept for each function; the names and reasons of a cluster are far fewer."""
_MAX_LENGTH: Final = 320
"""In characters: the longest lawful key has 317. Longer texts could fill any memory, and are
worked out each time."""

ResultT = TypeVar("ResultT")


class _Memory(dict[str, ResultT]):
    """What a function has answered. Looking it up runs no Python: a heartbeat does so 40 times."""

    def __init__(self, function: Callable[[str], ResultT]) -> None:
        super().__init__()
        self._function = function

    def __missing__(self, text: str) -> ResultT:
        result = self._function(text)
        if len(text) <= _MAX_LENGTH:
            if len(self) >= _SIZE:
                self.clear()  # what is still in use is soon known again
            self[text] = result
        return result


def recalled(function: Callable[[str], ResultT]) -> Callable[[str], ResultT]:
    """``function`` with a memory of its answers about short texts; under 2 MB when full."""
    return _Memory(function).__getitem__
