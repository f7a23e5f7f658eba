"""Where the fields of a document stand in its text.

A document has a tree of places beside its value: the same shape, with a line and a column where
the value has a leaf. A member's place is that of its key, an item's that of its first character.
"""

import json
import re
from bisect import bisect_right
from dataclasses import dataclass
from typing import Final

_STEP: Final = re.compile(r"\[([^\]]*)\]|([^.\[]+)")
"""The key or position in brackets, or the member, with which a path goes on."""
_JSON_TOKEN: Final = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[{}\[\]]|[^\s{}\[\],:"]+', re.DOTALL)
"""Commas and colons say nothing that the order of the rest does not."""


@dataclass(slots=True)
class Place:
    """Where one value stands, both counted from 1, and where its members or items do."""

    line: int
    column: int
    members: "dict[str, Place] | list[Place] | None" = None
    text: str | None = None
    """The text of a block scalar that keeps its lines, None for all other values."""
    text_line: int = 0
    """The line where that text starts."""


def locate(root: Place, path: str) -> Place:
    """The place of the field ``path``, or of the nearest value around it that exists.

    ``path`` is a field path such as ``status.responders[0].startTime``. A path that leads into the
    text of an annotation is followed there if that text is JSON over several lines.
    """
    place, rest = root, path
    while rest:
        members = place.members or _inside(place)
        rest = rest.removeprefix(".")
        if isinstance(members, dict) and rest in members:  # also a key that contains dots
            return members[rest]
        step = _STEP.match(rest)
        if step is None:
            break
        child: Place | None = None
        if isinstance(members, dict):
            child = members.get(step[1] or step[2])
        elif isinstance(members, list) and (step[1] or "").isdecimal():
            child = members[int(step[1])] if int(step[1]) < len(members) else None
        if child is None:
            break
        place, rest = child, rest[step.end() :]
    return place


def _inside(place: Place) -> "dict[str, Place] | list[Place] | None":
    if place.text is None:
        return None
    try:
        json.loads(place.text)
    except (ValueError, RecursionError):
        return None
    return json_places(place.text, place.text_line).members


def json_places(text: str, first_line: int = 1) -> Place:
    """The places in ``text``, which must be valid JSON and start at ``first_line``."""
    breaks = [found.start() for found in re.finditer("\n", text)]
    root = Place(first_line, 1)
    open_places: list[Place] = []
    key: Place | None = None
    name = ""
    for found in _JSON_TOKEN.finditer(text):
        word, offset = found.group(), found.start()
        if word in "}]":
            open_places.pop()
            continue
        line = bisect_right(breaks, offset - 1)
        place = Place(first_line + line, offset - (breaks[line - 1] if line else -1))
        parent = open_places[-1].members if open_places else None
        if isinstance(parent, dict) and key is None:
            name, key = json.loads(word), place
            continue
        if isinstance(parent, dict) and key is not None:
            place, key = key, None
            parent[name] = place
        elif isinstance(parent, list):
            parent.append(place)
        else:
            root = place
        if word in "{[":
            place.members = {} if word == "{" else []
            open_places.append(place)
    return root
