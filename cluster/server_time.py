"""The API server's time, by a clock that nobody sets.

Every answer of an API server bears its ``Date``. That tells the time at one moment between question
and answer, to a second; a steady clock carries it on. The machine's own clock counts for nothing,
so that it may be wrong, or be set, without anybody being interrupted too early. See ADR 46.
"""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from time import monotonic
from typing import Final, NamedTuple

from cluster import clock
from rules.states import CLOCK_SKEW, HEARTBEAT_DEADLINE

SETTLING: Final = HEARTBEAT_DEADLINE
"""How long the API server's time must have agreed with itself after a jump before anything may end
by it: what was reported before the jump says nothing about silence, and who lives has reported
again by then. Our own choice."""
_RESOLUTION: Final = 1.0
"""Seconds to which ``Date`` is told; what is cut off was up to so much later (RFC 9110, 5.6.7)."""


class _Offset(NamedTuple):
    """What the steady clock is to be set forward by, in seconds since 1970: between these two."""

    least: float
    most: float


class ServerTime:
    """What the answers tell, and what follows from that."""

    def __init__(self, steady: Callable[[], float] = monotonic) -> None:
        """``steady`` is a clock that never jumps, in seconds."""
        self._steady = steady
        self._offset: _Offset | None = None
        self._text: str | None = None
        self._told = 0.0
        self.jumps = 0
        """How often it has jumped, as far as was heard."""
        self._first = 0.0
        """When it was heard first, by the steady clock."""
        self._steady_since = float("-inf")
        """Since when it has agreed with itself, as far as anybody knows, by the steady clock."""

    def heard(self, date: str, asked: float, answered: float) -> timedelta:
        """Take note of the ``Date`` of an answer; ``asked`` and ``answered`` by the steady clock.

        Returns by how much the API server's time has jumped against all that it has told before;
        zero if it has not, or if ``date`` is no date, as something in between may have taken it
        away.
        """
        if date != self._text:
            try:
                self._told = parsedate_to_datetime(date).timestamp()
            except ValueError:
                return timedelta()
            self._text = date
        told = _Offset(self._told - answered, self._told + _RESOLUTION - asked)
        if self._offset is None:
            self._first = answered
        known = self._offset or told
        both = _Offset(max(known.least, told.least), min(known.most, told.most))
        if both.least <= both.most:
            self._offset = both
            return timedelta()
        # Clocks run a little faster or slower, and the API servers of a cluster differ by a moment.
        self._offset = told
        ahead = told.least - known.most
        jump = timedelta(seconds=ahead if ahead > 0 else told.most - known.least)
        if abs(jump) < CLOCK_SKEW:
            return timedelta()
        self._steady_since = answered
        self.jumps += 1
        return jump

    def now(self) -> datetime:
        """The present: never later than the API server's, and not two seconds earlier.

        As long as it is not known, the machine's clock.
        """
        if self._offset is None:
            return clock.now()
        return datetime.fromtimestamp(self._offset.least + self._steady(), UTC)

    @property
    def is_known(self) -> bool:
        """Whether an API server has told it."""
        return self._offset is not None

    @property
    def is_settled(self) -> bool:
        """Whether something may end because of its age: it is known, and has not jumped lately."""
        return self.is_known and self._is_past(self._steady_since)

    @property
    def steady_since(self) -> datetime | None:
        """Since when it has agreed with itself, by itself; None: nobody knows of a jump."""
        if self._steady_since == float("-inf"):
            return None
        return self.now() - timedelta(seconds=self._steady() - self._steady_since)

    def inherit(self, told: datetime, steady_since: datetime | None) -> None:
        """Learn from somebody to whom it was ``told`` a moment ago, and who knew as much of it.

        Who has just begun knows of no jump. If it has gone on since otherwise than by a moment, it
        may have jumped now; the other one may also have been gone for long.
        """
        present = self.now()
        if self.is_known and self._is_past(max(self._first, self._steady_since)):
            return  # we know as much ourselves
        if abs(present - told) >= CLOCK_SKEW:
            self._steady_since = self._steady()
        elif steady_since is not None:
            since = self._steady() - (present - steady_since).total_seconds()
            self._steady_since = max(self._steady_since, since)

    def _is_past(self, since: float) -> bool:
        return self._steady() - since >= SETTLING.total_seconds()
