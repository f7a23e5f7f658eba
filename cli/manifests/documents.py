"""From a file's bytes to its documents: JSON values with the places of their fields."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import yaml

from cli.manifests.places import Place, json_places
from cli.manifests.yaml_values import Problem, read_values
from rules.decode import DecodeError, load

MAX_BYTES: Final = 32 * 2**20
"""The largest file that is read, in bytes. A List of 5,000 pods has about 25 MiB."""

MAX_UNREADABLE: Final = 100
"""How often reading goes on behind a syntax error in one file; nobody reads more of them."""

_next_document = re.compile(r"^---(?=\s|\Z)", re.MULTILINE)
_json_place = re.compile(r" at line (\d+) column (\d+)\Z")
_not_yaml = re.compile(r"[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that may not stand in YAML (YAML 1.2 § 5.1)."""


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A part of a file that is no document."""

    number: int
    """The document that would be there."""
    message: str
    line: int = 1
    column: int = 1


class Document:
    """One document of a file: a JSON value without its nulls, and where its fields stand."""

    def __init__(
        self, number: int, value: Any, places: Callable[[], Place], problems: tuple[Problem, ...]
    ) -> None:
        self.number = number
        """Counted from 1; empty documents do not count."""
        self.value = value
        self.problems = problems
        """Why the value is not what the text means to everybody; empty for a sound document."""
        self._places = places

    @cached_property
    def place(self) -> Place:
        """Where the document stands, and everything in it; found when first asked for."""
        return self._places()


def read_documents(name: str, data: bytes) -> Iterator[Document | Unreadable]:
    """The documents of the file ``name``, and what cannot be read of it, in order.

    A file is JSON if its name ends so, or if its text is valid JSON; everything else is YAML.
    """
    if len(data) > MAX_BYTES:
        yield Unreadable(1, f"may not be larger than {MAX_BYTES >> 20} MiB; split it up")
        return
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        yield Unreadable(1, f"must be text in UTF-8; byte {error.start} is not", line)
        return
    is_json = name.endswith(".json")
    if is_json or text.lstrip().startswith("{"):
        try:
            value = load(data)
        except DecodeError as error:
            if is_json:
                yield _json_error(error)
                return
        else:
            yield Document(1, value, lambda: json_places(text), ())
            return
    yield from _read_yaml(text)


def _json_error(error: DecodeError) -> Unreadable:
    found = _json_place.search(error.detail)
    if found is None:
        return Unreadable(1, error.detail)
    return Unreadable(1, error.detail[: found.start()], int(found[1]), int(found[2]) or 1)


def _read_yaml(text: str) -> Iterator[Document | Unreadable]:
    forbidden = _not_yaml.search(text)
    if forbidden is not None:
        # libyaml reads ahead and would refuse the documents before it, too.
        before = text[: forbidden.start()]
        yield Unreadable(
            len(_next_document.findall(before)) + 1,
            f"may not contain the control character {forbidden.group()!a}",
            before.count("\n") + 1,
            len(before) - before.rfind("\n"),
        )
        text = _not_yaml.sub("\ufffd", text)
    number, offset, lines, failed_at = 0, 0, 0, -1
    for _ in range(MAX_UNREADABLE):
        try:
            for value in read_values(text[offset:], lines):
                number += 1
                yield Document(number, value.value, value.places, tuple(value.problems))
        except yaml.MarkedYAMLError as error:
            mark: Any = error.problem_mark  # libyaml sets it on every error
            failure = offset + mark.index
            if failure != failed_at:  # else the same error, met again from nearer by
                number += 1
                yield _yaml_error(number, error, text, failure)
        else:
            return
        following = _next_document.search(text, max(failure, offset + 1))
        if following is None:
            return
        lines += text.count("\n", offset, following.start())
        offset, failed_at = following.start(), failure
    yield Unreadable(number + 1, f"has {MAX_UNREADABLE} unreadable documents; gave up here", lines)


def _yaml_error(number: int, error: yaml.MarkedYAMLError, text: str, index: int) -> Unreadable:
    start = text.rfind("\n", 0, index) + 1
    context = f"{error.context}, " if error.context else ""
    if error.context_mark is not None and error.problem_mark is not None:
        lines_before = error.problem_mark.line - error.context_mark.line
        if lines_before:
            context = f"{error.context} that starts {lines_before} lines before, "
    message = f"must be valid YAML: {context}{error.problem}"
    if "{{" in text[start:].partition("\n")[0]:
        message += "; this looks like a template: render it first"
    elif text[index : index + 1] == "\t":
        message += "; indent with spaces, not with tabs"
    return Unreadable(number, message, text.count("\n", 0, index) + 1, index - start + 1)
