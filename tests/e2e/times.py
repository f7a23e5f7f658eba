"""Instants: tests run at the real time, their documents do not."""

import re
from datetime import UTC, datetime, timedelta
from typing import Any

from rules.times import format_time, parse_time

_is_instant = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ").fullmatch


def now() -> datetime:
    """The present, in whole seconds as the API has them."""
    return datetime.now(UTC).replace(microsecond=0)


def ago(**span: float) -> str:
    """An instant before the present; ``ago(minutes=-5)`` is one after it."""
    return format_time(now() - timedelta(**span))


def shifted(document: Any, delta: timedelta) -> Any:
    """A copy of ``document`` in which every text that is an instant is later by ``delta``."""
    if isinstance(document, dict):
        return {key: shifted(value, delta) for key, value in document.items()}
    if isinstance(document, list):
        return [shifted(value, delta) for value in document]
    if isinstance(document, str) and _is_instant(document):
        return format_time(parse_time(document) + delta)
    return document
