"""Reading ``status.responders``: each report with its place, its stored twin and its state.

What the rules about reports have in common. An entry that may not change at all is left to
:mod:`rules.eviction.active_reports`, and its times are not judged on top.
"""

from collections.abc import Sequence

from msgspec import Struct

from rules.api import MAX_TARGET_RESPONDERS, EvictionStatus, ResponderState, ResponderStatus
from rules.field import Path

_FIELD = Path("status.responders")
_UNSET = ResponderStatus()


class Report(Struct, frozen=True, gc=False):
    """One entry of ``status.responders`` in a write."""

    position: int
    new: ResponderStatus
    stored: ResponderStatus
    """The stored entry; one with nothing set where there was none."""
    active: bool
    """Whether the responder is Active in this write."""
    changed: bool
    """Whether the write changes the entry, or makes it."""
    locked: bool
    """Whether the entry changes although its responder is not Active."""

    @property
    def path(self) -> Path:
        """Where the entry stands."""
        return _FIELD.at(self.position)


def are_matched(status: EvictionStatus) -> bool:
    """Whether both halves have the same length, and every target responder a report."""
    names = {report.name for report in status.responders}
    return len(status.responders) == len(status.target_responders) and names.issuperset(
        [responder.name for responder in status.target_responders]
    )


def read_reports(new: EvictionStatus, old: EvictionStatus) -> Sequence[Report]:
    """Every report of ``new``; none where names are missing, repeated, or too many."""
    names = {report.name for report in new.responders}
    if (
        not are_matched(new)
        or len(names) != len(new.responders)
        or len(names) > MAX_TARGET_RESPONDERS
    ):
        return []
    # A report can lack a target only where targetResponders repeats a name, which unique-keys
    # refuses; the reference crashes there.
    states = {responder.name: responder.state for responder in new.target_responders}
    stored = {report.name: report for report in old.responders}
    return [
        _read(position, report, stored.get(report.name), states.get(report.name))
        for position, report in enumerate(new.responders)
    ]


def _read(
    position: int, report: ResponderStatus, stored: ResponderStatus | None, state: str | None
) -> Report:
    active = state == ResponderState.ACTIVE
    changed = report != stored
    locked = changed and not active and stored is not None
    return Report(position, report, stored or _UNSET, active, changed, locked)
