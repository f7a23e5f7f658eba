"""What zones may spend, while time passes and requests are on their way."""

from datetime import datetime, timedelta
from typing import Final

import pytest

from controller.node_health import zone_budgets
from controller.node_health.planning.budget import CAPACITY, CLOCK_ERROR, Budget
from controller.node_health.planning.outage import Outage
from controller.node_health.zone_budgets import ZoneBudgets
from tests.controller.nodes import SECOND, START, A, B

MARGIN: Final = 10 * SECOND
RATE: Final = 0.1


class Clocks:
    """The API server's time, and a steady clock."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.time = START
        self.steady = 100.0
        monkeypatch.setattr(zone_budgets, "monotonic", lambda: self.steady)

    def now(self) -> datetime:
        return self.time

    def pass_by(self, seconds: float) -> None:
        self.time += timedelta(seconds=seconds)
        self.steady += seconds


@pytest.fixture
def clocks(monkeypatch: pytest.MonkeyPatch) -> Clocks:
    return Clocks(monkeypatch)


@pytest.fixture
def budgets(clocks: Clocks) -> ZoneBudgets:
    made = ZoneBudgets(clocks.now, MARGIN)
    made.after({zone: Budget(START, 0, RATE) for zone in (A, B)}, None)
    return made


def inherited(budgets: ZoneBudgets, clocks: Clocks) -> ZoneBudgets:
    """Those of the next leader."""
    made = ZoneBudgets(clocks.now, MARGIN)
    made.begin(budgets.note())
    return made


def test_time_goes_by(budgets: ZoneBudgets, clocks: Clocks) -> None:
    clocks.pass_by(5)
    assert budgets.present()[A].tokens == pytest.approx(0.5)


def test_a_clock_that_jumps_earns_what_has_elapsed(budgets: ZoneBudgets, clocks: Clocks) -> None:
    clocks.pass_by(5)
    clocks.time += timedelta(hours=1)
    assert budgets.present()[A].tokens == pytest.approx(0.5)


def test_what_is_on_its_way_stops_one_zone(budgets: ZoneBudgets, clocks: Clocks) -> None:
    budgets.open(A)
    clocks.pass_by(5)
    assert budgets.before(clocks.now())[A] == Budget(clocks.now(), 0, RATE)
    found = budgets.present()
    assert (found[A].tokens, found[B].tokens) == (0, pytest.approx(0.5))
    budgets.close(A, has_arrived=True)
    clocks.pass_by(2)
    found = budgets.present()
    assert (found[A].tokens, found[B].tokens) == (pytest.approx(0.2), pytest.approx(0.7))


def test_what_has_not_arrived_costs_nothing(budgets: ZoneBudgets, clocks: Clocks) -> None:
    clocks.pass_by(5)
    budgets.open(A)
    budgets.close(A, has_arrived=False)
    assert budgets.present()[A].tokens == pytest.approx(0.5)


def test_a_turn_that_did_not_come_to_be_is_given_back(budgets: ZoneBudgets) -> None:
    budgets.after({A: Budget(START, CAPACITY, RATE, {"n1": START}).spent("n2")}, None)
    budgets.give_back(A, "n2")
    assert budgets.before(START)[A] == Budget(START, CAPACITY, RATE, {"n1": START})


def test_the_next_leader_goes_on(budgets: ZoneBudgets, clocks: Clocks) -> None:
    clocks.pass_by(5)
    heir = inherited(budgets, clocks)
    found = heir.before(clocks.now())[A]
    assert (found.tokens, found.time) == (pytest.approx(0.5), clocks.now() + CLOCK_ERROR)
    assert heir.elapsed == timedelta.max
    assert heir.note() == budgets.note()  # until it has planned itself


def test_the_next_leader_waits_for_what_may_be_on_its_way(
    budgets: ZoneBudgets, clocks: Clocks
) -> None:
    budgets.open(A)
    clocks.pass_by(5)
    found = inherited(budgets, clocks).before(clocks.now())[A]
    assert (found.tokens, found.time) == (0, clocks.now() + MARGIN + CLOCK_ERROR)


@pytest.mark.parametrize("is_over", [False, True])
def test_the_next_leader_knows_of_the_last_outage(
    budgets: ZoneBudgets, clocks: Clocks, *, is_over: bool
) -> None:
    """In whole seconds, of which the later one is the careful one."""
    seen = START + timedelta(milliseconds=1)
    budgets.after(budgets.present(), Outage(seen=seen, is_over=is_over))
    assert inherited(budgets, clocks).outage == Outage(seen=START + SECOND, is_over=is_over)


def test_a_note_without_an_outage_tells_of_none(budgets: ZoneBudgets, clocks: Clocks) -> None:
    assert "outage" not in budgets.note()
    assert inherited(budgets, clocks).outage is None


@pytest.mark.parametrize("note", ["{", "[]", '{"zones": [{"tokens": 2}]}'])
def test_a_note_that_can_not_be_read_is_worth_nothing(budgets: ZoneBudgets, note: str) -> None:
    budgets.begin(note)
    assert budgets.before(START) == {}
