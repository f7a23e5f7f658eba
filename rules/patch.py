"""JSON Patch (RFC 6902) by hand: what to set in a document, and the step that sets it elsewhere.

There is one kind of step: ``add`` to a member of an object, which replaces the member that is there
already (RFC 6902, 4.1). A step that adds no list item and removes nothing does the same whether it
is taken once or twice, and applies to every document in which its parent exists: so missing parents
are part of its value. A patch that did not apply would refuse the request, even where failures are
to be ignored.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

Document: TypeAlias = Mapping[str, Any]
"""An object of JSON, without nulls, as :func:`rules.decode.load` returns it."""


class Step(NamedTuple):
    """Set the member at ``path``, a JSON Pointer (RFC 6901), to ``value``."""

    path: str
    value: Any


def assign(document: Document, way: Sequence[str], value: Any) -> tuple[Document, Step]:
    """``document`` with ``value`` at the end of ``way``, and the step that does the same.

    ``way`` leads through objects; ``document`` itself stays as it is.
    """
    name, rest = way[0], way[1:]
    if rest and name in document:
        inner, step = assign(document[name], rest, value)
        return {**document, name: inner}, Step(f"/{_escaped(name)}{step.path}", step.value)
    for missing in reversed(rest):
        value = {missing: value}
    return {**document, name: value}, Step(f"/{_escaped(name)}", value)


def _escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")  # in this order: RFC 6901, 3


def render(steps: Sequence[Step]) -> bytes:
    """``steps`` as a JSON Patch document."""
    return as_text([{"op": "add", "path": path, "value": value} for path, value in steps]).encode()


def as_text(value: Any) -> str:
    """``value`` as JSON.

    Whatever :func:`rules.decode.load` reads; msgspec does not write integers below -(2**63).
    """
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
