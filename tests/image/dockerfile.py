"""Reads our Dockerfile: stages, and their instructions with the variables filled in."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction; a continued line is one line."""

    name: str
    value: str

    @property
    def words(self) -> list[str]:
        """The value as a shell would split it."""
        return shlex.split(self.value)


@dataclass(slots=True)
class Stage:
    """What stands between two FROM."""

    base: str
    name: str
    instructions: list[Instruction] = field(default_factory=list)

    def all(self, name: str) -> list[Instruction]:
        """The instructions called ``name``, in order."""
        return [found for found in self.instructions if found.name == name]

    def one(self, name: str) -> Instruction:
        """The only instruction called ``name``."""
        (found,) = self.all(name)
        return found


def read() -> list[Stage]:
    """The stages, in order; bases that are arguments are replaced by their defaults."""
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    arguments: dict[str, str] = {}
    stages: list[Stage] = []
    for instruction in _instructions(text):
        if instruction.name == "FROM":
            base, _, name = instruction.value.partition(" AS ")
            stages.append(Stage(_filled(base, arguments), name))
        elif stages:
            stages[-1].instructions.append(instruction)
        else:
            name, _, value = instruction.value.partition("=")
            arguments[name] = value
    return stages


def _instructions(text: str) -> Iterator[Instruction]:
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    for line in re.sub(r"\\\n\s*", "", "\n".join(lines)).splitlines():
        if line.strip():
            name, _, value = line.partition(" ")
            yield Instruction(name, value.strip())


def _filled(text: str, arguments: dict[str, str]) -> str:
    return re.sub(r"\${(\w+)}", lambda found: arguments[found[1]], text)
