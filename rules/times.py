"""Instants and durations as Go reads and writes them (RFC 3339, whole seconds, UTC).

Source: probes of Go 1.26's ``time.Parse(time.RFC3339, …)``, through which ``metav1.Time`` reads.
Not ``datetime.fromisoformat``: ``T`` and ``Z`` are upper case, a zone is required, 24:00 and leap
seconds do not exist; a single-digit hour and a zone offset up to 24:60 do. Fractions are cut.
"""

import re
from datetime import UTC, datetime, timedelta
from typing import Final

from rules.recall import recalled

_match = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)T(\d\d?):(\d\d):(\d\d)(?:[.,]\d+)?(?:Z|([+-])(\d\d):(\d\d))", re.ASCII
).fullmatch
TIME_HELP: Final = "must be an RFC 3339 time such as '2026-07-01T12:00:00Z'"
_MAX_ZONE_HOURS: Final = 24
_MAX_ZONE_MINUTES: Final = 60

ZERO: Final = datetime.min.replace(tzinfo=UTC)
"""Go's zero time, which ``metav1.Time`` treats as unset."""
# Go's years run from 0 to 9999 and may leave that range when converted to UTC; Python's start at 1.
# Clamping keeps the order of instants, which is all that the rules ask. The lower clamp stays
# above Go's zero time, because only that one means "unset".
_EARLIEST: Final = ZERO + timedelta(seconds=1)
_LATEST: Final = datetime.max.replace(tzinfo=UTC, microsecond=0)
# Stands in for year 0 while the rest of a date is judged: both are leap years.
_LEAP_YEAR: Final = 2000


@recalled
def parse_time(text: str) -> datetime:
    """The instant that ``text`` names, in UTC.

    Raises ValueError for anything but an RFC 3339 text with a zone.
    """
    found = _match(text)
    if found is None:
        raise ValueError(TIME_HELP)
    year, month, day, hour, minute, second = map(int, found.group(1, 2, 3, 4, 5, 6))
    instant = datetime(year or _LEAP_YEAR, month, day, hour, minute, second, tzinfo=UTC)
    offset = _zone_offset(*found.group(7, 8, 9)) if found.group(7) else None
    if year == 0:
        return _EARLIEST
    try:
        return instant - offset if offset else instant
    except OverflowError:
        return _EARLIEST if year == 1 else _LATEST


def _zone_offset(sign: str, hours: str, minutes: str) -> timedelta:
    if int(hours) > _MAX_ZONE_HOURS or int(minutes) > _MAX_ZONE_MINUTES:
        raise ValueError(f"must have a zone offset of at most {_MAX_ZONE_HOURS} hours")
    offset = timedelta(hours=int(hours), minutes=int(minutes))
    return -offset if sign == "-" else offset


def format_time(instant: datetime) -> str:
    """``instant`` as the API writes it: UTC, whole seconds."""
    return instant.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


_MAX_DURATION: Final = 64
"""In characters; nobody writes a longer one."""
_UNITS: Final = {
    "ns": 1e-9,
    "us": 1e-6,
    "\N{MICRO SIGN}s": 1e-6,
    "\N{GREEK SMALL LETTER MU}s": 1e-6,
    "ms": 1e-3,
    "s": 1,
    "m": 60,
    "h": 3600,
}
_PART: Final = rf"(\d+(?:\.\d*)?|\.\d+)({'|'.join(_UNITS)})"
_is_duration = re.compile(rf"\+?(?:{_PART})+", re.ASCII).fullmatch
_parts = re.compile(_PART, re.ASCII).findall


def parse_duration(text: str) -> float:
    """Seconds of ``text`` as Go's ``time.ParseDuration`` reads it; 0 where that isn't positive."""
    if len(text) > _MAX_DURATION or not _is_duration(text):
        return 0
    return sum(float(number) * _UNITS[unit] for number, unit in _parts(text))
