"""Field paths, error types and field errors in Kubernetes' own words.

Source of the vocabulary: apimachinery ``pkg/util/validation/field`` (``ErrorType``, ``Path`` and
``Error.ErrorBody``), Kubernetes 1.37.2. Clients compare cause types and field paths literally.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Final

import msgspec

from rules.times import format_time

# A refused value is shown to whoever wrote it; longer ones drown the message they should explain.
# Our own choice, in characters.
MAX_SHOWN_VALUE: Final = 200


class ErrorType(StrEnum):
    """The ``reason`` of one cause in ``status.details.causes``."""

    REQUIRED = "FieldValueRequired"
    INVALID = "FieldValueInvalid"
    DUPLICATE = "FieldValueDuplicate"
    NOT_SUPPORTED = "FieldValueNotSupported"
    FORBIDDEN = "FieldValueForbidden"
    TOO_LONG = "FieldValueTooLong"
    TOO_MANY = "FieldValueTooMany"


_LEADS: Final = {
    ErrorType.REQUIRED: "Required value",
    ErrorType.INVALID: "Invalid value",
    ErrorType.DUPLICATE: "Duplicate value",
    ErrorType.NOT_SUPPORTED: "Unsupported value",
    ErrorType.FORBIDDEN: "Forbidden",
    ErrorType.TOO_LONG: "Too long",
    ErrorType.TOO_MANY: "Too many",
}


class Path(str):
    """A field path such as ``status.responders[0].startTime``; it *is* its own rendering."""

    __slots__ = ()

    def child(self, name: str) -> "Path":
        """The member ``name`` of this object."""
        return Path(f"{self}.{name}" if self else name)

    def at(self, position: int) -> "Path":
        """The list item at ``position``, counted from 0."""
        return Path(f"{self}[{position}]")

    def key(self, key: str) -> "Path":
        """The value under ``key`` of this map."""
        return Path(f"{self}[{key}]")


@dataclass(frozen=True, slots=True)
class FieldError:
    """One field that breaks one rule.

    ``shown`` is the offending value as text, ready to print, or None where a value says nothing
    (a missing field). ``detail`` says what is allowed.
    """

    type: ErrorType
    field: Path
    detail: str = ""
    shown: str | None = None

    @property
    def message(self) -> str:
        """The cause's message: error type, value and detail, without the field path."""
        parts = (_LEADS[self.type], self.shown, self.detail)
        return ": ".join(part for part in parts if part)

    def __str__(self) -> str:
        return f"{self.field}: {self.message}"


def required(field: Path, detail: str = "must be set") -> FieldError:
    """``field`` is missing or empty."""
    return FieldError(ErrorType.REQUIRED, field, detail)


def invalid(field: Path, value: object, detail: str) -> FieldError:
    """``value`` breaks the rule that ``detail`` states."""
    return FieldError(ErrorType.INVALID, field, detail, show(value))


def forbidden(field: Path, detail: str) -> FieldError:
    """``field`` may not be written like this now, whatever its value."""
    return FieldError(ErrorType.FORBIDDEN, field, detail)


def duplicate(field: Path, key: str) -> FieldError:
    """The list item at ``field`` repeats the ``key`` of an earlier one."""
    return FieldError(ErrorType.DUPLICATE, field, shown=show(key))


def not_supported(field: Path, value: str, supported: Iterable[str]) -> FieldError:
    """``value`` is none of the ``supported`` ones."""
    listed = ", ".join(show(choice) for choice in supported)
    return FieldError(ErrorType.NOT_SUPPORTED, field, f"supported values: {listed}", show(value))


def too_long(field: Path, limit: int, unit: str) -> FieldError:
    """The text at ``field`` has more than ``limit`` of ``unit`` ("bytes" or "characters")."""
    return FieldError(ErrorType.TOO_LONG, field, f"may not be more than {limit} {unit}")


def too_many(field: Path, count: int, limit: int) -> FieldError:
    """The list at ``field`` has ``count`` items, ``limit`` are allowed."""
    return FieldError(ErrorType.TOO_MANY, field, f"must have at most {limit} items", str(count))


def show(value: object) -> str:
    """``value`` as JSON would write it, cut to :data:`MAX_SHOWN_VALUE` characters."""
    text = _as_json(value)
    return text if len(text) <= MAX_SHOWN_VALUE else f"{text[:MAX_SHOWN_VALUE]}…"


def _plain(value: object) -> Any:
    if isinstance(value, datetime):
        return format_time(value)
    if isinstance(value, msgspec.Struct):
        return msgspec.to_builtins(value)
    return str(value)


_as_json: Final = json.JSONEncoder(ensure_ascii=False, default=_plain).encode
