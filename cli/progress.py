"""Progress on standard error, for people who watch a terminal."""

import sys
from collections.abc import Callable, Iterable, Iterator, Sized
from contextlib import contextmanager
from functools import partial
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


@contextmanager
def counting(description: str) -> Iterator[Callable[[int], None]]:
    """Gives what is to be told numbers of things done; their sum is shown to who watches."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    # As above.
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import Progress, SpinnerColumn, TextColumn  # noqa: PLC0415

    columns = (SpinnerColumn(), TextColumn("{task.description} {task.completed:.0f}"))
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        yield partial(progress.advance, progress.add_task(description, total=None))


@contextmanager
def counter(description: str, total: float | None = None) -> Iterator[Callable[[float], None]]:
    """A function that is told how much is done, of ``total`` if that is known, and shows it."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console  # noqa: PLC0415 - see above
    from rich.progress import BarColumn, Progress, TextColumn  # noqa: PLC0415

    done = TextColumn("{task.completed:,.0f}") if total is None else BarColumn()
    columns = (TextColumn("{task.description}"), done)
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(description, total=total)
        yield lambda completed: progress.update(task, completed=completed)
