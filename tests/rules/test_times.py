"""Instants are read as Go reads them; the table was made with Go 1.26's ``time.Parse``."""

import pytest

from rules.times import ZERO, format_time, parse_duration, parse_time


@pytest.mark.parametrize(
    ("text", "instant"),
    [
        ("2026-07-01T12:00:00Z", "2026-07-01T12:00:00Z"),
        ("2026-07-01T12:00:00.999Z", "2026-07-01T12:00:00Z"),
        ("2026-07-01T12:00:00,5Z", "2026-07-01T12:00:00Z"),
        ("2026-07-01T1:00:00Z", "2026-07-01T01:00:00Z"),
        ("2026-07-01T12:00:00+02:30", "2026-07-01T09:30:00Z"),
        ("2026-07-01T12:00:00-02:30", "2026-07-01T14:30:00Z"),
        ("2026-07-01T12:00:00-00:00", "2026-07-01T12:00:00Z"),
        ("2026-07-01T12:00:00+24:00", "2026-06-30T12:00:00Z"),
        ("2026-07-01T12:00:00+24:60", "2026-06-30T11:00:00Z"),
        ("2024-02-29T00:00:00Z", "2024-02-29T00:00:00Z"),
    ],
)
def test_accepted(text: str, instant: str) -> None:
    assert format_time(parse_time(text)) == instant


@pytest.mark.parametrize(
    "text",
    [
        "2026-07-01T12:00:00z", "2026-07-01t12:00:00Z", "2026-07-01 12:00:00Z",
        "2026-07-01T12:00:00", "2026-07-01T12:00Z", "2026-07-01T24:00:00Z", "2026-07-01T23:59:60Z",
        "2026-02-29T00:00:00Z", "0000-13-01T00:00:00Z", "10000-01-01T00:00:00Z", "2026-07-01",
        "2026-07-01T12:00:00.Z", "2026-07-01T12:00:00+25:00", "2026-07-01T12:00:00+00:61",
        " 2026-07-01T12:00:00Z", "2026-07-01T12:00:00Z\n", "٢٠٢٦-07-01T12:00:00Z",
        "",
    ],
)  # fmt: skip
def test_refused(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - Python words some of these
        parse_time(text)


def test_years_beyond_python_keep_their_place_in_the_order() -> None:
    first = parse_time("0000-02-29T00:00:00Z")
    early = parse_time("0001-01-01T00:00:00+01:00")
    late = parse_time("9999-12-31T23:59:59-01:00")
    assert ZERO < first == early < parse_time("0001-01-01T00:00:02Z")
    assert parse_time("9999-12-31T23:59:58Z") < late
    assert parse_time("0001-01-01T00:00:00Z") == ZERO


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("10s", 10.0), ("+1m30s", 90.0), ("1.5s", 1.5), (".5s", 0.5), ("300ms", 0.3),
        ("1h1m1s", 3661.0), ("", 0.0), ("10", 0.0), ("-5s", 0.0), ("soon", 0.0), ("1s ", 0.0),
        ("\u0661s", 0.0), ("1s" * 10_000, 0.0),
    ],
)  # fmt: skip
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration(text) == pytest.approx(seconds)
