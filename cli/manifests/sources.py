"""From the paths of a command line to files and their bytes."""

import os
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cli.exits import InputError
from cli.manifests.documents import MAX_BYTES
from rules.texts import printable

STANDARD_INPUT: Final = "-"
_SUFFIXES: Final = (".yaml", ".yml", ".json")


@dataclass(frozen=True, slots=True)
class Source:
    """A file, or standard input."""

    path: str
    """``-`` for standard input."""

    @property
    def name(self) -> str:
        """What to call it in a report; printable, whatever bytes a file system allows."""
        if self.path == STANDARD_INPUT:
            return "<stdin>"
        return printable(os.fsencode(self.path).decode("utf-8", "backslashreplace"))

    def read(self) -> bytes:
        """Its content, or one byte more than :data:`cli.manifests.documents.MAX_BYTES` of it.

        Raises OSError.
        """
        if self.path == STANDARD_INPUT:
            return sys.stdin.buffer.read(MAX_BYTES + 1)
        with Path(self.path).open("rb") as file:
            return file.read(MAX_BYTES + 1)


def find_sources(paths: Iterable[str]) -> list[Source]:
    """The files that ``paths`` name: files, directories with all below them, ``-``; in order.

    Raises InputError for a path that does not exist and for a directory without manifests.
    """
    found: list[Source] = []
    for path in dict.fromkeys(paths):
        if path == STANDARD_INPUT or Path(path).is_file():
            found.append(Source(path))
        elif Path(path).is_dir():
            inside = sorted(_manifests_below(path))
            if not inside:
                suffixes = ", ".join(f"*{suffix}" for suffix in _SUFFIXES)
                raise InputError(f"{path}: no {suffixes} in this directory or below")
            found += map(Source, inside)
        elif Path(path).exists():  # a pipe, such as the shell makes of <(command)
            found.append(Source(path))
        else:
            raise InputError(f"{path}: no such file or directory")
    return found


def _manifests_below(directory: str) -> Iterator[str]:
    for parent, _, names in os.walk(directory):
        yield from (str(Path(parent, name)) for name in names if name.endswith(_SUFFIXES))
