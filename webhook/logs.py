"""Log lines: one event a line, JSON or text, whatever a caller puts into a value."""

import json
import logging
import os
import re
import sys
from collections.abc import MutableMapping
from contextlib import suppress
from functools import partial
from typing import Any, Final, TextIO

import structlog

from webhook.review import cut

_MAX_VALUE: Final = 2000
"""Characters of one value; a line should stay readable. Our own choice."""


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
            _cut,
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
    serialize = partial(json.dumps, separators=(",", ":"), default=str)
    return [
        structlog.processors.format_exc_info,
        structlog.processors.JSONRenderer(serializer=lambda event, **_: serialize(event)),
    ]


def _text(*, colors: bool) -> list[Any]:
    # Without the values of variables, which may be anybody's.
    render = structlog.dev.ConsoleRenderer(
        colors=colors, pad_event_to=0, exception_formatter=structlog.dev.plain_traceback
    )
    return [_quote, render]


def _cut(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    for key, value in event.items():
        if isinstance(value, str):
            event[key] = cut(value, _MAX_VALUE)
    return event


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
