"""Log lines: one event a line, JSON or text, whatever a caller puts into a value."""

import json
import logging
import os
import re
import sys
from bisect import bisect_right
from collections.abc import Mapping, MutableMapping
from contextlib import suppress
from typing import Any, Final, TextIO

import structlog

_MAX_WHOLE: Final = 4096
"""Bytes of a line of JSON in which no text is cut, as in nearly all lines. Our own choice."""
_MAX_VALUE: Final = 2000
"""Bytes of one text in JSON; a line should stay readable. Our own choice."""
_MAX_TRACE: Final = 8192
"""The same of the trace of a failure."""
_MAX_LINE: Final = 32 * 1024
"""Bytes that all texts of a line have together, wherever they stand: callers choose names, and much
of what a cause says. Our own choice."""


def configure(log_format: str, level: str, stream: TextIO | None = None) -> None:
    """Write lines of at least ``level`` to ``stream`` (default: standard error).

    ``log_format`` is ``json`` or ``text``; text is coloured on a terminal only, and not where
    NO_COLOR is set.
    """
    out = stream or sys.stderr
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            *(
                _json()
                if log_format == "json"
                else _text(colors=out.isatty() and not os.environ.get("NO_COLOR"))
            ),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=lambda *_: _Lines(out),
    )
    logging.basicConfig(handlers=[_Forward()], level=logging.WARNING, force=True)


def _json() -> list[Any]:
    # ASCII only: some readers take U+2028 or U+0085 for the end of a line.
    encode = json.JSONEncoder(separators=(",", ":"), default=str).encode

    def render(logger: Any, name: str, event: MutableMapping[str, Any]) -> str:
        line = encode(event)
        return line if len(line) <= _MAX_WHOLE else encode(_cut(logger, name, event))

    return [structlog.processors.format_exc_info, render]


def _text(*, colors: bool) -> list[Any]:
    # Without the values of variables, which may be anybody's.
    render = structlog.dev.ConsoleRenderer(
        colors=colors, pad_event_to=0, exception_formatter=structlog.dev.plain_traceback
    )
    return [_cut, _quote, render]


def _cut(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    room = _Room()
    for key, value in event.items():
        if key not in (*_OURS, "exc_info"):
            event[key] = room.fitted(value, _MAX_TRACE if key == "exception" else _MAX_VALUE)
    return event


class _Room:
    """What is left of a line."""

    def __init__(self) -> None:
        self._left = _MAX_LINE

    def fitted(self, value: Any, limit: int = _MAX_VALUE) -> Any:
        """``value`` with its texts cut to ``limit`` bytes each, and to what is left."""
        match value:
            case str():
                text = _cut_bytes(value, min(limit, self._left))
                self._left -= _size(text)
                return text
            case Mapping():
                return {key: self.fitted(item, limit) for key, item in value.items()}
            case list():
                return [self.fitted(item, limit) for item in value]
            case _:
                return value


def _cut_bytes(text: str, limit: int) -> str:
    """``text``, or as much of it as JSON writes in ``limit`` bytes, and an ellipsis."""
    start = text[:limit]  # a character has a byte at least
    if len(start) == len(text) and _size(text) <= limit:
        return text
    kept = bisect_right(
        range(len(start) + 1), limit - _size(_ELLIPSIS), key=lambda count: _size(start[:count])
    )
    return start[: max(kept - 1, 0)] + _ELLIPSIS


def _size(text: str) -> int:
    """Bytes of ``text`` in a line of JSON, without the quotes."""
    return len(json.dumps(text)) - len('""')


def _quote(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Put quotes around what could pass for another value, break a line or steer a terminal."""
    for key, value in event.items():
        if isinstance(value, str) and key not in _OURS and not _PLAIN(value):
            event[key] = _Quoted(value)
    return event


class _Quoted:
    """A text in quotes, for a renderer that takes the ``repr`` of everything but texts."""

    def __init__(self, text: str) -> None:
        self._text = str(text)

    def __repr__(self) -> str:
        return repr(self._text)


_OURS: Final = ("event", "level", "timestamp")
_ELLIPSIS: Final = "…"
_PLAIN: Final = re.compile(r"[\w./:@+-]+", re.ASCII).fullmatch


class _Lines:
    """Writes lines. A full disk or a closed pipe loses lines, but no verdict."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def msg(self, line: str) -> None:
        """Write ``line``."""
        with suppress(OSError):
            self._stream.write(f"{line}\n")
            self._stream.flush()

    debug = info = warning = error = critical = msg


class _Forward(logging.Handler):
    """Lines of the libraries (asyncio, for one) in the same form as our own."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write ``record``."""
        structlog.get_logger().log(
            record.levelno,
            "library",
            name=record.name,
            message=record.getMessage(),
            exc_info=record.exc_info,
        )
