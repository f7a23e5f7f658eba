"""Limits of conditions that are too long for a case file."""

import pytest

from rules.api import Condition
from rules.meta.conditions import MAX_MESSAGE_BYTES, MAX_REASON, _judge
from rules.times import parse_time


def judged(reason: str, message: str) -> list[str]:
    present = parse_time("2026-07-01T12:00:00Z")
    condition = Condition("acme.io/Ready", "True", 0, present, reason, message)
    return [error.field for error in _judge(0, condition)]


@pytest.mark.parametrize(
    ("field", "limit", "reason", "message"),
    [("reason", MAX_REASON, "r", ""), ("message", MAX_MESSAGE_BYTES, "", "m")],
)
def test_limits(field: str, limit: int, reason: str, message: str) -> None:
    assert judged(reason * limit or "Reason", message * limit) == []
    more = limit + 1
    assert judged(reason * more or "Reason", message * more) == [f"status.conditions[0].{field}"]
