"""Reading ``status.responders``: each report with its place, its stored twin and its state.

Not a rule: what the rules about reports have in common. An entry that may not change at all is
left to :mod:`rules.eviction.active_reports`, and its times are not judged on top.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from rules.api import (
    MAX_TARGET_RESPONDERS,
    Eviction,
    EvictionStatus,
    ResponderState,
    ResponderStatus,
)
from rules.field import Path

_FIELD = Path("status.responders")
_UNSET = ResponderStatus()


@dataclass(frozen=True, slots=True)
class Report:
    """One entry of ``status.responders`` in a write."""

    path: Path
    new: ResponderStatus
    stored: ResponderStatus
    """The stored entry; one with nothing set where there was none."""
    initialised: bool
    """Whether there was a stored entry."""
    active: bool
    """Whether the responder is Active in this write."""

    @property
    def locked(self) -> bool:
        """Whether this entry changes although its responder is not Active."""
        return self.initialised and not self.active and self.new != self.stored


def are_matched(status: EvictionStatus) -> bool:
    """Whether both halves have the same length, and every target responder a report."""
    names = {report.name for report in status.responders}
    return len(status.responders) == len(status.target_responders) and all(
        responder.name in names for responder in status.target_responders
    )


def read_reports(new: Eviction, old: Eviction) -> Iterator[Report]:
    """Every report of ``new``; none where names are missing, repeated, or too many."""
    status = new.status
    names = {report.name for report in status.responders}
    if (
        not are_matched(status)
        or len(names) != len(status.responders)
        or len(names) > MAX_TARGET_RESPONDERS
    ):
        return
    states = {responder.name: responder.state for responder in status.target_responders}
    stored = {report.name: report for report in old.status.responders}
    for position, report in enumerate(status.responders):
        # A report can lack a target only where targetResponders repeats a name, which
        # unique-keys refuses; the reference crashes there.
        yield Report(
            path=_FIELD.at(position),
            new=report,
            stored=stored.get(report.name, _UNSET),
            initialised=report.name in stored,
            active=states.get(report.name) == ResponderState.ACTIVE,
        )


def changeable_reports(new: Eviction, old: Eviction) -> Iterator[Report]:
    """The reports of ``new`` whose content is to be judged."""
    return (report for report in read_reports(new, old) if not report.locked)
