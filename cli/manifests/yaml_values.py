"""From YAML to JSON values and their places, as kubectl reads it, or stricter.

Built from libyaml's events, because its nodes are composed recursively and without a bound.
Aliases share what they name, so that nested ones cost nothing; what they would expand to is
counted and bounded, as is the nesting.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import yaml

from cli.manifests.places import Place
from cli.manifests.scalars import resolve
from rules.decode import MAX_DEPTH

MAX_VALUES: Final = 1_000_000
"""How many values the aliases of a document may expand to; a List of 10,000 pods has fewer."""

_STRING_TAG: Final = "tag:yaml.org,2002:str"
_MERGE: Final = "<<"
"""Merges the keys of a mapping, or of several, into this one (YAML 1.1 type repository)."""

Step = str | int


@dataclass(frozen=True, slots=True)
class Problem:
    """Why a document cannot be what it claims to be, and where."""

    message: str
    line: int
    column: int
    steps: tuple[Step, ...] = ()
    """The keys and positions that lead to the value which holds the problem."""

    @property
    def path(self) -> str:
        """The field path that the steps make."""
        parts = (f"[{step}]" if isinstance(step, int) else f".{step}" for step in self.steps)
        return "".join(parts).removeprefix(".")


@dataclass(slots=True)
class Value:
    """A JSON value without its nulls, with its places and problems."""

    value: Any
    place: Place
    problems: list[Problem] = field(default_factory=list)

    def places(self) -> Place:
        """Where the document stands, and everything in it."""
        return self.place


@dataclass(slots=True)
class _Frame:
    """A mapping or a sequence that has begun and not yet ended."""

    value: Any
    members: Any
    """The places of what it holds, a dict beside a dict and a list beside a list."""
    place: Place
    anchor: str | None
    keys: set[str] = field(default_factory=set)
    key: str | None = None
    """The key whose value comes next; None where a key does, and in sequences."""
    key_place: Place = field(default_factory=lambda: Place(0, 0))
    merging: bool = False
    """Whether the value that comes next is to be merged."""
    size: int = 1
    height: int = 0


@dataclass(frozen=True, slots=True)
class _Anchored:
    value: Any
    place: Place
    size: int
    height: int


class _Refused(Exception):  # noqa: N818 - a signal, caught where the document begins
    """Building this document would cost too much."""


def read_values(text: str, lines_before: int = 0) -> Iterator[Value]:
    """Every document of ``text`` that is not empty; it stands below so many other lines.

    Raises yaml.YAMLError where the text is no YAML; documents before that have been yielded.
    """
    builder: _Builder | None = None
    for event in yaml.parse(text, Loader=yaml.CSafeLoader):
        match event:
            case yaml.DocumentStartEvent():
                builder = _Builder(lines_before)
            case yaml.DocumentEndEvent() if builder is not None:
                if not builder.is_empty:
                    yield builder.result
            case yaml.StreamStartEvent() | yaml.StreamEndEvent():
                pass
            case _ if builder is not None:
                builder.add(event)


class _Builder:
    """Builds the value of one document, event by event."""

    def __init__(self, lines_before: int) -> None:
        self._lines_before = lines_before
        self.result = Value(None, Place(1, 1))
        self._frames: list[_Frame] = []
        self._anchors: dict[str, _Anchored] = {}
        self._expanded = 0
        self._abandoned = False

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing in the document, not even a problem."""
        return self.result.value is None and not self.result.problems

    def add(self, event: yaml.Event) -> None:
        """Take the next event of the document."""
        if self._abandoned:
            return
        try:
            self._add(event)
        except _Refused:
            self._abandoned = True
            self.result.value = None

    def _add(self, event: yaml.Event) -> None:
        match event:
            case yaml.ScalarEvent():
                self._add_scalar(event)
            case yaml.AliasEvent():
                self._add_alias(event)
            case yaml.MappingStartEvent():
                self._open({}, {}, event)
            case yaml.SequenceStartEvent():
                self._open([], [], event)
            case _:
                frame = self._frames.pop()
                self._put(frame.value, frame.place, frame.anchor, frame.size, frame.height + 1)

    def _open(self, value: Any, members: Any, event: yaml.CollectionStartEvent) -> None:
        place = self._place_of(event)
        if event.tag is not None:
            self._complain_of_tag(event.tag, place)
        if len(self._frames) >= MAX_DEPTH:
            self._complain(f"must not nest deeper than {MAX_DEPTH} levels", place)
            raise _Refused
        if self._wants_key:
            self._complain("a key must be a text; render templates in '{{ }}' first", place)
            raise _Refused
        place.members = members
        self._frames.append(_Frame(value, members, place, event.anchor))

    @property
    def _wants_key(self) -> bool:
        frame = self._frames[-1] if self._frames else None
        return (
            frame is not None
            and isinstance(frame.value, dict)
            and frame.key is None
            and not frame.merging
        )

    def _add_scalar(self, event: yaml.ScalarEvent) -> None:
        place = self._place_of(event)
        plain = event.implicit[0]
        if event.tag not in (None, _STRING_TAG):
            self._complain_of_tag(event.tag, place)
        if self._wants_key and plain and event.value == _MERGE:
            self._frames[-1].merging = True
            return
        value: Any = event.value
        if plain:
            try:
                value = resolve(event.value)
            except ValueError as error:
                self._complain(str(error), place)
        if self._wants_key:
            self._take_key(value, event.value, place)
            if event.anchor is not None:
                self._anchors[event.anchor] = _Anchored(value, place, 1, 0)
            return
        if event.style == "|":
            place.text, place.text_line = event.value, place.line + 1
        self._put(value, place, event.anchor, 1, 0)

    def _take_key(self, value: Any, text: str, place: Place) -> None:
        frame = self._frames[-1]
        if not isinstance(value, str):
            self._complain(f"the key {text or 'null'} must be a text; put it in quotes", place)
        if text in frame.keys:
            self._complain(f"the key '{text}' stands here twice; keep one of them", place)
        frame.keys.add(text)
        frame.key, frame.key_place = text, place

    def _add_alias(self, event: yaml.AliasEvent) -> None:
        place = self._place_of(event)
        anchored = self._anchors.get(event.anchor or "")
        if anchored is None:
            self._complain(f"the alias '*{event.anchor}' must name an anchor before it", place)
            raise _Refused
        if self._wants_key:
            self._complain("a key must be a text, not an alias", place)
            raise _Refused
        self._expanded += anchored.size
        if self._expanded > MAX_VALUES or len(self._frames) + anchored.height > MAX_DEPTH:
            self._complain(
                f"aliases must not expand to more than {MAX_VALUES} values or "
                f"{MAX_DEPTH} levels; write out what you need",
                place,
            )
            raise _Refused
        place.members = anchored.place.members
        place.text, place.text_line = anchored.place.text, anchored.place.text_line
        self._put(anchored.value, place, None, anchored.size, anchored.height)

    def _put(self, value: Any, place: Place, anchor: str | None, size: int, height: int) -> None:
        """Put a complete value where it belongs."""
        if anchor is not None:
            self._anchors[anchor] = _Anchored(value, place, size, height)
        if not self._frames:
            self.result.value, self.result.place = value, place
            return
        frame = self._frames[-1]
        frame.size += size
        frame.height = max(frame.height, height)
        if frame.merging:
            frame.merging = False
            self._merge(frame, value, place)
        elif frame.key is not None:
            key = frame.key_place
            named = Place(key.line, key.column, place.members, place.text, place.text_line)
            self._set(frame, frame.key, value, named)
            frame.key = None
        else:
            frame.value.append(value)
            frame.members.append(place)

    def _merge(self, frame: _Frame, value: Any, place: Place) -> None:
        # As kubectl does: keys that follow win over merged ones, merged ones over those before;
        # in a list of mappings the first one wins.
        sources = [(value, place)] if isinstance(value, dict) else []
        if isinstance(value, list) and isinstance(place.members, list):
            sources = list(zip(value, place.members, strict=True))[::-1]
        if not sources or not all(isinstance(source, dict) for source, _ in sources):
            self._complain("'<<' must merge an object or a list of objects", place)
            return
        for source, source_place in sources:
            for key, item in source.items():
                self._set(frame, key, item, source_place.members[key])  # type: ignore[index]

    @staticmethod
    def _set(frame: _Frame, key: str, value: Any, place: Place) -> None:
        frame.members[key] = place
        if value is None:
            frame.value.pop(key, None)
        else:
            frame.value[key] = value

    def _complain_of_tag(self, tag: str, place: Place) -> None:
        short = tag.replace("tag:yaml.org,2002:", "!!")
        self._complain(f"must be plain JSON values, without the tag {short}", place)

    def _complain(self, message: str, place: Place) -> None:
        keys = (
            frame.key if isinstance(frame.value, dict) else len(frame.value)
            for frame in self._frames
        )
        steps = tuple(key for key in keys if key is not None)
        self.result.problems.append(Problem(message, place.line, place.column, steps))

    def _place_of(self, event: yaml.Event) -> Place:
        mark: Any = event.start_mark  # libyaml sets it on every event
        return Place(mark.line + 1 + self._lines_before, mark.column + 1)
