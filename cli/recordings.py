"""Recordings: JSON lines of admission requests, and of the answers to them."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import IO, Any, Final

from rules.decode import DecodeError, load
from rules.field import Path
from rules.times import parse_time

MAX_LINE: Final = 8 * 2**20
"""The longest line that is read, in bytes. API servers send up to about 7 MiB: two objects at
etcd's limit with their managedFields."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line that is not blank."""

    file: str
    number: int
    """Counted from 1."""
    data: bytes
    """Without the rest of a line that is longer than :data:`MAX_LINE`."""

    def load(self) -> Any:
        """The JSON value of the line, without nulls. Raises DecodeError."""
        if len(self.data) > MAX_LINE:
            raise DecodeError(f"may not be longer than {MAX_LINE >> 20} MiB")
        return load(self.data)

    def __str__(self) -> str:
        return f"{self.file}:{self.number}"


def read_lines(name: str, file: IO[bytes]) -> Iterator[Line]:
    """The lines of ``file`` that are not blank, one at a time."""
    number = 0
    while data := file.readline(MAX_LINE + 1):
        number += 1
        if len(data) > MAX_LINE and not data.endswith(b"\n"):
            while (rest := file.readline(MAX_LINE)) and not rest.endswith(b"\n"):
                pass
        if data.strip():
            yield Line(name, number, data)


def read_review(line: Line, now: datetime) -> tuple[Any, datetime]:
    """The AdmissionReview of a line, and the instant to judge it at: its own, or ``now``.

    Raises DecodeError.
    """
    value = line.load()
    if not isinstance(value, dict) or "review" not in value:
        return value, now
    own = value.get("now")
    if own is None:
        return value["review"], now
    try:
        return value["review"], parse_time(own if isinstance(own, str) else "")
    except ValueError as error:
        raise DecodeError(str(error), _NOW) from None


_NOW: Final = Path("now")


@dataclass(frozen=True, slots=True)
class Answer:
    """What an answer decides: the parts that do not depend on anybody's wording."""

    uid: str
    allowed: bool
    causes: frozenset[tuple[str, str]]
    """(type, field) of each cause."""


def read_answer(value: Any) -> Answer:
    """The decision in an AdmissionReview with a response, or in ``{"review": …}`` with one.

    Raises DecodeError.
    """
    outer = value.get("review", value) if isinstance(value, dict) else value
    response = outer.get("response") if isinstance(outer, dict) else None
    if not isinstance(response, dict) or not isinstance(response.get("allowed"), bool):
        raise DecodeError("must be an AdmissionReview with a response")
    status = response.get("status", {})
    details = status.get("details", {}) if isinstance(status, dict) else {}
    causes = details.get("causes", []) if isinstance(details, dict) else []
    return Answer(
        uid=str(response.get("uid", "")),
        allowed=response["allowed"],
        causes=frozenset(
            (str(cause.get("reason", "")), str(cause.get("field", "")))
            for cause in causes
            if isinstance(cause, dict)
        ),
    )


def differences(recorded: Answer, now: Answer) -> Iterator[str]:
    """What differs between the recorded answer and the one that is given now."""
    if recorded.uid and recorded.uid != now.uid:
        yield f"uid: recorded '{recorded.uid}', the request has '{now.uid}'"
    if recorded.allowed != now.allowed:
        words = {True: "allowed", False: "denied"}
        yield f"recorded {words[recorded.allowed]}, now {words[now.allowed]}"
    for title, causes in (
        ("only recorded", recorded.causes - now.causes),
        ("only now", now.causes - recorded.causes),
    ):
        for type_, field in sorted(causes):
            yield f"{title}: {type_} {field}".rstrip()
