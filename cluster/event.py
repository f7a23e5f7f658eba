"""What a Kubernetes Event says, before anybody sends it. Pure."""

from dataclasses import dataclass
from enum import IntEnum


class Level(IntEnum):
    """How much is told; each level includes the ones before."""

    NONE = 0
    NOTABLE = 1
    """What goes wrong, and evictions of pods that have responders of their own."""
    ALL = 2
    """The course of every eviction: two Events and more for each pod that is drained."""


@dataclass(frozen=True, slots=True)
class Occurrence:
    """Something to tell people."""

    reason: str
    """In CamelCase, for machines."""
    message: str
    level: Level = Level.NOTABLE
    """From which level on it is told."""
    is_warning: bool = False
