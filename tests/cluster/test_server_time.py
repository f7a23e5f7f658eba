"""The API server's time is what its answers tell, whatever the machine's clock says."""

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from cluster import clock
from cluster.server_time import SETTLING, ServerTime

START = datetime(2026, 7, 1, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)


class Clocks:
    """A steady clock, an API server's, and what is known of it."""

    def __init__(self) -> None:
        self.passed = 1000.0
        self.server = START
        self.time = ServerTime(lambda: self.passed)

    def go_on(self, seconds: float) -> None:
        self.passed += seconds
        self.server += timedelta(seconds=seconds)

    def ask(self, there: float = 0.0, back: float = 0.0) -> timedelta:
        """Ask, with so many seconds on the way ``there`` and ``back``."""
        asked = self.passed
        self.go_on(there)
        date = format_datetime(self.server, usegmt=True)
        self.go_on(back)
        return self.time.heard(date, asked, self.passed)

    def error(self) -> float:
        return (self.time.now() - self.server).total_seconds()


@pytest.fixture
def clocks(monkeypatch: pytest.MonkeyPatch) -> Clocks:
    monkeypatch.setattr(clock, "now", lambda: START + timedelta(minutes=25))
    return Clocks()


def test_until_it_is_known_the_machines_clock_has_to_do(clocks: Clocks) -> None:
    assert not clocks.time.is_known
    assert not clocks.time.is_settled
    assert clocks.time.now() == START + timedelta(minutes=25)
    assert clocks.time.heard("", 0, 0) == clocks.time.heard("yesterday", 0, 0) == timedelta()
    assert not clocks.time.is_known


@pytest.mark.parametrize(("there", "back"), [(0.0, 0.0), (0.7, 0.1), (0.1, 0.7), (3.0, 0.0)])
def test_it_is_never_late_and_hardly_early(clocks: Clocks, there: float, back: float) -> None:
    clocks.go_on(0.4)
    clocks.ask(there, back)
    assert clocks.time.is_settled
    assert -1.0 - back <= clocks.error() <= 0
    clocks.go_on(3600.0)
    assert -1.0 - back <= clocks.error() <= 0


def test_each_answer_makes_it_more_exact(clocks: Clocks) -> None:
    for _ in range(50):
        clocks.go_on(0.37)
        assert clocks.ask() == timedelta()
    assert clocks.error() == pytest.approx(0, abs=0.05)


def test_clocks_that_drift_apart_are_followed_without_a_word(clocks: Clocks) -> None:
    for _ in range(1000):
        clocks.go_on(60)
        clocks.server += 0.03 * SECOND  # 500 millionths, as much as NTP corrects at a time
        assert clocks.ask() == timedelta()
        assert -1.1 <= clocks.error() <= 0
    assert clocks.time.is_settled


@pytest.mark.parametrize("minutes", [25, 5, -5, -25])
def test_after_a_jump_nothing_may_end_for_a_while(clocks: Clocks, minutes: int) -> None:
    clocks.ask()
    clocks.go_on(100)
    clocks.server += timedelta(minutes=minutes)
    assert abs(clocks.ask() - timedelta(minutes=minutes)) <= SECOND
    assert clocks.error() == pytest.approx(0, abs=1.0)
    assert clocks.time.is_known
    assert not clocks.time.is_settled
    clocks.go_on(SETTLING.total_seconds() - 1)
    assert clocks.ask() == timedelta()
    assert not clocks.time.is_settled
    clocks.go_on(1)
    assert clocks.time.is_settled


def test_api_servers_that_differ_by_a_moment_are_no_jump(clocks: Clocks) -> None:
    for number in range(10):
        clocks.server += (5 if number % 2 else -5) * SECOND
        clocks.go_on(1)
        assert clocks.ask() == timedelta()
    assert clocks.time.is_settled


# --- what others knew ----------------------------------------------------------------------------


def _now(clocks: Clocks) -> datetime:
    clocks.ask()
    return clocks.server


def test_who_has_just_begun_learns_of_a_jump_before(clocks: Clocks) -> None:
    now = _now(clocks)
    clocks.time.inherit(now - 5 * SECOND, now - timedelta(minutes=15))
    assert not clocks.time.is_settled
    assert clocks.time.steady_since is not None
    assert abs(clocks.time.steady_since - (now - timedelta(minutes=15))) <= 2 * SECOND
    clocks.go_on(5 * 60 + 2)
    assert clocks.time.is_settled


def test_who_has_just_begun_learns_that_there_was_none(clocks: Clocks) -> None:
    clocks.time.inherit(_now(clocks) - 20 * SECOND, None)
    assert clocks.time.is_settled
    assert clocks.time.steady_since is None


@pytest.mark.parametrize("minutes", [-25, -5, 5, 25])
def test_who_has_just_begun_sees_that_it_has_jumped(clocks: Clocks, minutes: int) -> None:
    clocks.time.inherit(_now(clocks) + timedelta(minutes=minutes), None)
    assert not clocks.time.is_settled
    clocks.go_on(SETTLING.total_seconds())
    assert clocks.time.is_settled


def test_who_has_listened_for_long_knows_as_much(clocks: Clocks) -> None:
    clocks.ask()
    clocks.go_on(SETTLING.total_seconds())
    clocks.time.inherit(clocks.server - timedelta(hours=1), clocks.server)
    assert clocks.time.is_settled


def test_an_own_jump_is_not_forgotten_for_an_older_one(clocks: Clocks) -> None:
    clocks.ask()
    clocks.server += timedelta(minutes=5)
    now = _now(clocks)
    clocks.time.inherit(now, now - timedelta(hours=1))
    assert not clocks.time.is_settled
