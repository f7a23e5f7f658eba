"""The budget of each zone: how many nodes may be evicted by now, and whose turn it is.

A bucket that holds one token and is filled at the rate in force. It starts empty, for a zone that
is new and for a controller that knows nothing of its predecessor, and it is emptied while evictions
are stopped: what was not allowed is never made up for. See ADR 60.
"""

import math
import sys
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Annotated, Final, NamedTuple

from msgspec import Meta, to_builtins

from controller.node_health.planning.outage import Outage
from controller.node_health.planning.zones import Zone
from rules.api import ApiType, Time
from rules.times import format_time

CAPACITY: Final = 1.0
"""Tokens, each good for one node: there is no greater burst, however long nothing happened."""
_TOLERANCE: Final = 1e-9
"""Tokens; sums of binary fractions miss the capacity by less."""
_STORED_DIGITS: Final = 1_000_000
"""Steps per token in the stored form."""
_SECOND: Final = timedelta(seconds=1)
CLOCK_ERROR: Final = 2 * _SECOND
"""How far the clocks of two leaders may differ that both go by the API server's: it tells whole
seconds, and its answer takes a moment."""
_MILLISECONDS: Final = 1000
"""Per second: what waits are rounded up to, so that the token is there at the end of them."""
_LONGEST_WAIT: Final = 365 * 24 * 3600.0
"""Seconds; rates near zero would lead beyond what a timedelta holds."""


class Waiting(NamedTuple):
    """A node with pods that are due."""

    since: datetime
    """When the first of them became due."""
    node: str


@dataclass(frozen=True, slots=True)
class Budget:
    """What a zone may spend."""

    time: datetime
    """The instant up to which :attr:`tokens` counts."""
    tokens: float = 0.0
    """From 0 to :data:`CAPACITY`."""
    rate: float = 0.0
    """Nodes per second, in force since :attr:`time`."""
    turns: Mapping[str, datetime] = field(default_factory=dict)
    """Nodes that have had a turn and wait again → when that was."""

    def advanced(self, rate: float, now: datetime, elapsed: timedelta = timedelta.max) -> "Budget":
        """The budget at ``now``, from when on ``rate`` is in force.

        Nobody knows when between the two looks the rate changed: the lower one counts. A clock that
        was set back earns nothing, and one that was set forward not more than what has ``elapsed``
        since :attr:`time` by a clock that nobody sets.
        """
        if rate <= 0:
            return replace(self, time=now, tokens=0.0, rate=0.0)
        seconds = max(min(now - self.time, elapsed) / _SECOND, 0.0)
        earned = self.tokens + min(self.rate, rate) * seconds
        return replace(self, time=now, tokens=min(earned, CAPACITY), rate=rate)

    @property
    def allows(self) -> bool:
        """Whether a node may be evicted now."""
        return self.rate > 0 and self.tokens >= CAPACITY - _TOLERANCE

    @property
    def wait(self) -> timedelta | None:
        """How long until a node may be evicted at this rate; None: for ever."""
        if self.rate <= 0:
            return None
        if self.allows:
            return timedelta()
        seconds = min((CAPACITY - self.tokens) / self.rate, _LONGEST_WAIT)
        return timedelta(milliseconds=math.ceil(seconds * _MILLISECONDS))

    def spent(self, node: str) -> "Budget":
        """The budget after the turn of ``node``."""
        return replace(self, tokens=0.0, turns={**self.turns, node: self.time})

    def queue(self, waiting: Iterable[Waiting]) -> list[Waiting]:
        """``waiting`` in the order of their turns: who has waited longest comes first.

        A node that has had its turn, and waits nevertheless, goes to the end: the API server may
        refuse what is asked for its pods for ever, and nobody else is to wait for that.
        """

        def place(item: Waiting) -> tuple[datetime, bool, datetime, Waiting]:
            turn = self.turns.get(item.node)
            last = turn or item.since
            return max(item.since, last), turn is not None, last, item

        return sorted(waiting, key=place)

    def remembering(self, waiting: Collection[Waiting]) -> "Budget":
        """The budget without the turns of nodes that do not wait any more."""
        if not self.turns:
            return self
        names = {item.node for item in waiting}
        left = {node: time for node, time in self.turns.items() if node in names}
        return replace(self, turns=left)


class StoredBudget(ApiType):
    """A budget as it is stored; what it leaves out concerns the order, not the rate."""

    time: Time
    region: str = ""
    zone: str = ""
    tokens: Annotated[float, Meta(ge=0, le=CAPACITY)] = 0.0
    rate: Annotated[float, Meta(ge=0, le=sys.float_info.max)] = 0.0


class StoredBudgets(ApiType):
    """What the next leader starts with.

    To be stored when a zone, a rate, or a turn is new, *before* what the turn pays for is written:
    the next leader takes it that the rate has been in force ever since.
    """

    zones: tuple[StoredBudget, ...] = ()
    outage: Outage | None = None
    """The last total outage; to be stored when it begins and when it ends."""


def stored(budgets: Mapping[Zone, Budget], outage: Outage | None = None) -> StoredBudgets:
    """``budgets`` to be stored, rounded so that the rate is not exceeded after :func:`restored`."""
    return StoredBudgets(
        outage=outage,
        zones=tuple(
            StoredBudget(
                region=zone.region,
                zone=zone.name,
                time=_rounded_up(budget.time),
                tokens=math.floor(budget.tokens * _STORED_DIGITS) / _STORED_DIGITS,
                rate=budget.rate,
            )
            for zone, budget in sorted(budgets.items())
        ),
    )


def restored(state: StoredBudgets) -> dict[Zone, Budget]:
    """The budgets to go on with; ``StoredBudgets()`` is right for who knows nothing.

    Another clock may have written them: so much of the time since then does not count.
    """
    return {
        Zone(item.region, item.zone): Budget(item.time + CLOCK_ERROR, item.tokens, item.rate)
        for item in state.zones
    }


def as_document(state: StoredBudgets) -> dict[str, object]:
    """``state`` as JSON values."""
    document: dict[str, object] = {"zones": [to_builtins(zone) for zone in state.zones]}
    if (outage := state.outage) is not None:
        seen = format_time(_rounded_up(outage.seen))
        document["outage"] = {"seen": seen, "isOver": outage.is_over}
    return document


def _rounded_up(time: datetime) -> datetime:
    """The API writes whole seconds; a later one earns less."""
    whole = time.replace(microsecond=0)
    return whole if whole == time else whole + _SECOND
