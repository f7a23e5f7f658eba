"""What zones may spend, between two plans, two writes and two leaders.

A zone saves up for its next node only while nothing is on its way to the API server for the last
one. So the rate holds for what arrives there, however long that takes. See ADR 61.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from time import monotonic

import msgspec
import structlog

from controller.node_health.planning.budget import (
    CAPACITY,
    Budget,
    StoredBudgets,
    as_document,
    restored,
    stored,
)
from controller.node_health.planning.outage import Outage
from controller.node_health.planning.zones import Zone
from rules.decode import DecodeError, decode_model, load

_log = structlog.get_logger()


class ZoneBudgets:
    """The budgets of one leader."""

    def __init__(self, now: Callable[[], datetime], margin: timedelta) -> None:
        """``now`` returns the API server's time.

        ``margin`` is for how long something may be sent after the budgets were stored last.
        """
        self.now = now
        self._margin = margin
        self.begin("")

    def begin(self, note: str) -> None:
        """Start with the ``note`` of another leader; one that can't be read is worth nothing."""
        self._budgets: dict[Zone, Budget] = {}
        self.outage: Outage | None = None
        """The last total outage, as far as it is known."""
        self._counted: float | None = None
        self._under_way: Counter[Zone] = Counter()
        self._note = note
        try:
            state = decode_model(StoredBudgets, load(note.encode())) if note else StoredBudgets()
        except DecodeError as error:
            _log.warning(
                "the budgets of zones can't be read: all begin with none", error=str(error)
            )
        else:
            self._budgets, self.outage = restored(state), state.outage

    def before(self, now: datetime) -> dict[Zone, Budget]:
        """What a plan at ``now`` starts with."""
        return self._with_none(self._budgets, now)

    @property
    def elapsed(self) -> timedelta:
        """Since the last plan, by a clock that nobody sets; for ever if there was none."""
        if self._counted is None:
            return timedelta.max
        return timedelta(seconds=monotonic() - self._counted)

    def after(self, budgets: Mapping[Zone, Budget], outage: Outage | None) -> None:
        """Take over what a plan has left."""
        self._budgets, self._counted = dict(budgets), monotonic()
        self.outage = outage

    def give_back(self, zone: Zone, node: str) -> None:
        """The turn of ``node`` did not come to be."""
        budget = self._budgets[zone]
        turns = {name: time for name, time in budget.turns.items() if name != node}
        self._budgets[zone] = replace(budget, tokens=CAPACITY, turns=turns)

    def open(self, zone: Zone) -> None:
        """A request is on its way; the zone saves up nothing until it is answered."""
        self._under_way[zone] += 1

    def close(self, zone: Zone, *, has_arrived: bool) -> None:
        """It is answered, or given up; ``has_arrived``: it may have had an effect just now."""
        if has_arrived:
            self.after(self.present(), self.outage)
            if zone in self._budgets:
                self._budgets[zone] = replace(self._budgets[zone], tokens=0.0)
        self._under_way[zone] -= 1

    def present(self) -> dict[Zone, Budget]:
        """What the zones have by now, if all rates are still in force."""
        now, elapsed = self.now(), self.elapsed
        budgets = {
            zone: budget.advanced(budget.rate, now, elapsed)
            for zone, budget in self._budgets.items()
        }
        return self._with_none(budgets, now)

    def note(self) -> str:
        """What another leader is to know. What is under way may arrive until the margin is over."""
        if self._counted is None:
            return self._note
        later = self.now() + self._margin
        budgets = {
            zone: replace(budget, time=later) if self._under_way[zone] > 0 else budget
            for zone, budget in self.present().items()
        }
        return msgspec.json.encode(as_document(stored(budgets, self.outage))).decode()

    def _with_none(self, budgets: Mapping[Zone, Budget], now: datetime) -> dict[Zone, Budget]:
        """``budgets``, those of zones with something under way empty."""
        return {
            zone: replace(budget, time=now, tokens=0.0) if self._under_way[zone] > 0 else budget
            for zone, budget in budgets.items()
        }
