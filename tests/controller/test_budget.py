"""Budgets and queues: never more than the rate, whoever leads, and nobody waits for ever."""

from dataclasses import replace
from datetime import timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.node_health.planning.budget import (
    CAPACITY,
    CLOCK_ERROR,
    Budget,
    StoredBudgets,
    Waiting,
    as_document,
    restored,
    stored,
)
from controller.node_health.planning.zones import EVICTION_RATE
from rules.decode import DecodeError, decode_model
from tests.controller.nodes import SECOND, START, A, B

RATES = st.sampled_from([0.0, 0.01, 0.1, 0.1, 3.0])
SPANS = st.floats(0, 500).map(lambda seconds: timedelta(seconds=seconds))
STEPS = st.lists(st.tuples(SPANS, RATES, st.booleans()), max_size=60)


def test_not_more_than_one_node_in_10_seconds() -> None:
    budget, turns = Budget(START), []
    for tenth in range(1000):
        now = START + SECOND * tenth / 10
        budget = budget.advanced(EVICTION_RATE, now)
        if budget.allows:
            budget = budget.spent("node")
            turns.append(now)
    assert turns == [START + 10 * SECOND * n for n in range(1, 10)]


def test_a_long_idle_time_is_good_for_one_node() -> None:
    budget = Budget(START, CAPACITY, EVICTION_RATE).advanced(EVICTION_RATE, START + 9999 * SECOND)
    assert budget.allows
    budget = budget.spent("a")
    assert not budget.allows
    assert budget.wait == 10 * SECOND


@given(STEPS)
def test_never_more_than_the_rate_in_any_window(steps: list[tuple[timedelta, float, bool]]) -> None:
    """One node at once, and beyond that what the rates in force add up to; leaders come and go."""
    budget, now = Budget(START), START
    earned, turns = 0.0, []
    rate_before = 0.0
    for span, rate, is_leader_new in steps:
        now, earned = now + span, earned + rate_before * span.total_seconds()
        if is_leader_new:
            budget = restored(decode_model(StoredBudgets, as_document(stored({A: budget}))))[A]
        budget, rate_before = budget.advanced(rate, now), rate
        if budget.allows:
            budget = budget.spent("node")
            turns.append(earned)
    for first in range(len(turns)):
        for last in range(first, len(turns)):
            assert last - first + 1 <= CAPACITY + turns[last] - turns[first] + 1e-6


@given(STEPS, st.integers(0, 60))
def test_a_leader_who_knows_nothing_keeps_the_rate(
    steps: list[tuple[timedelta, float, bool]], change: int
) -> None:
    budget, now, turns = Budget(START, CAPACITY, EVICTION_RATE), START, []
    for number, (span, _, _) in enumerate(steps):
        now += span
        if number == change:
            budget = Budget(now)
        budget = budget.advanced(EVICTION_RATE, now)
        if budget.allows:
            budget = budget.spent("node")
            turns.append(now)
    assert all(later - earlier >= 9.999 * SECOND for earlier, later in pairwise(turns))


@given(st.floats(0, CAPACITY), st.sampled_from([0.001, 0.01, 0.1, 0.3, 7.0, 1000.0]))
def test_after_the_wait_there_is_a_token(tokens: float, rate: float) -> None:
    budget = Budget(START, tokens, rate)
    assert budget.wait is not None
    assert budget.advanced(rate, START + budget.wait).allows


def test_the_lower_rate_counts_between_two_looks() -> None:
    slow = Budget(START, 0, 0.01)
    assert slow.advanced(0.1, START + 50 * SECOND).tokens == pytest.approx(0.5)
    assert Budget(START, 0, 0.1).advanced(0.01, START + 50 * SECOND).tokens == pytest.approx(0.5)


def test_what_was_stopped_is_not_made_up_for() -> None:
    stopped = Budget(START, CAPACITY, 0.1).advanced(0, START + SECOND)
    assert (stopped.allows, stopped.wait) == (False, None)
    again = stopped.advanced(0.1, START + 900 * SECOND)
    assert (again.allows, again.wait) == (False, 10 * SECOND)


def test_a_clock_that_was_set_back_earns_nothing() -> None:
    assert Budget(START, 0.25, 0.1).advanced(0.1, START - 60 * SECOND).tokens == 0.25


def test_a_clock_that_was_set_forward_earns_what_has_elapsed() -> None:
    set_forward = START + 3600 * SECOND
    assert Budget(START, 0.25, 0.1).advanced(0.1, set_forward, 5 * SECOND).tokens == 0.75
    assert Budget(START, 0.25, 0.1).advanced(0.1, set_forward).tokens == CAPACITY


def test_a_rate_near_zero_is_a_long_wait() -> None:
    wait = Budget(START, 0, 1e-12).wait
    assert wait is not None
    assert wait.days == 365


def test_stored_budgets_are_rounded_down() -> None:
    budgets = {B: Budget(START + 0.3 * SECOND, 0.1234567, 0.1), A: Budget(START, CAPACITY, 0.01)}
    document = as_document(stored(budgets))
    assert document == {
        "zones": [
            {
                "region": "eu-1",
                "zone": "a",
                "time": "2026-07-01T12:00:00Z",
                "tokens": 1,
                "rate": 0.01,
            },
            {
                "region": "eu-1",
                "zone": "b",
                "time": "2026-07-01T12:00:01Z",
                "tokens": 0.123456,
                "rate": 0.1,
            },
        ]
    }
    later = CLOCK_ERROR
    assert restored(decode_model(StoredBudgets, document)) == {
        A: Budget(START + later, CAPACITY, 0.01),
        B: Budget(START + SECOND + later, 0.123456, 0.1),
    }


@pytest.mark.parametrize("tokens", [-1, 1.5, "1"])
def test_a_store_that_was_tampered_with_is_no_store(tokens: object) -> None:
    zone = {"region": "", "zone": "", "time": "2026-07-01T12:00:00Z", "tokens": tokens}
    with pytest.raises(DecodeError):
        decode_model(StoredBudgets, {"zones": [zone]})


def test_who_has_waited_longest_comes_first() -> None:
    waiting = [Waiting(START + SECOND, "a"), Waiting(START, "c"), Waiting(START, "b")]
    assert [item.node for item in Budget(START).queue(waiting)] == ["b", "c", "a"]


def test_whoever_had_a_turn_in_vain_goes_to_the_end() -> None:
    waiting = [Waiting(START, "a"), Waiting(START + SECOND, "b"), Waiting(START + 9 * SECOND, "c")]
    budget = Budget(START + 5 * SECOND, CAPACITY, 0.1).spent("a")
    assert [item.node for item in budget.queue(waiting)] == ["b", "a", "c"]
    assert budget.remembering(waiting[1:]).turns == {}
    assert budget.remembering(waiting).turns == {"a": START + 5 * SECOND}


def test_whoever_fails_anew_after_a_turn_has_the_place_of_then() -> None:
    waiting = [Waiting(START + 9 * SECOND, "a"), Waiting(START + 7 * SECOND, "b")]
    budget = Budget(START + 5 * SECOND, CAPACITY, 0.1).spent("a")
    assert [item.node for item in budget.queue(waiting)] == ["b", "a"]


def test_of_two_that_fail_anew_at_once_the_longer_turnless_comes_first() -> None:
    waiting = [Waiting(START + 9 * SECOND, "a"), Waiting(START + 9 * SECOND, "b")]
    budget = Budget(START + 1 * SECOND, CAPACITY, 0.1).spent("b")
    budget = replace(budget, time=START + 9 * SECOND).spent("a")
    assert [item.node for item in budget.queue(waiting)] == ["b", "a"]
