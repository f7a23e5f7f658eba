"""Progress on standard error, for people who watch a terminal."""

import sys
from collections.abc import Iterable, Sized
from typing import TypeVar

ItemT = TypeVar("ItemT")


def track(items: Iterable[ItemT], description: str) -> Iterable[ItemT]:
    """``items``, with a bar or a counter while they are worked off, if somebody can see it."""
    if not sys.stderr.isatty() or (isinstance(items, Sized) and len(items) == 1):
        return items
    # Imported only where it is needed: it takes longer than judging a file.
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import track as bar  # noqa: PLC0415

    return bar(items, description, console=Console(stderr=True), transient=True)
