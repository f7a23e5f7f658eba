"""What values.yaml says: every value, its default, and the comment that explains it."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, cast

import yaml

from tests.examples.shell import ROOT

CHART: Final = ROOT / "charts" / "usher"
Values = dict[str, Any]

_SECTION: Final = "# -- "


@dataclass(frozen=True, slots=True)
class Section:
    """A heading between values."""

    title: str


@dataclass(frozen=True, slots=True)
class Value:
    """One value, or a group of them (``default`` is None then)."""

    path: tuple[str, ...]
    default: str | None
    """As it stands in the file, on one line."""
    text: str
    """Its comment, on one line."""


def values() -> list[Section | Value]:
    """What values.yaml says, in its order."""
    source = (CHART / "values.yaml").read_text(encoding="utf-8")
    root = yaml.compose(source, Loader=yaml.SafeLoader)
    return list(_values(cast("yaml.MappingNode", root), source.splitlines(), ()))


def _values(
    mapping: yaml.MappingNode, lines: list[str], above: tuple[str, ...]
) -> Iterator[Section | Value]:
    for key, node in mapping.value:
        title, text = _comment(lines, key.start_mark.line)
        if title:
            yield Section(title)
        path = (*above, key.value)
        is_group = isinstance(node, yaml.MappingNode) and not node.flow_style
        if is_group and _comment(lines, node.value[0][0].start_mark.line)[1]:
            yield Value(path, None, text)
            yield from _values(node, lines, path)
        else:
            yield Value(path, _default(node), text)


def _comment(lines: list[str], line: int) -> tuple[str, str]:
    """The section that begins above ``line``, if any, and the comment of what stands there."""
    above = line
    while above > 0 and lines[above - 1].lstrip().startswith("#"):
        above -= 1
    words = " ".join(each.strip().removeprefix("#").strip() for each in lines[above:line])
    head = next((each for each in reversed(lines[:above]) if each.strip()), "")
    return (head.removeprefix(_SECTION) if head.startswith(_SECTION) else "", words)


def _default(node: yaml.Node) -> str:
    data = yaml.SafeLoader("").construct_document(node)
    if isinstance(data, str):
        return json.dumps(data, ensure_ascii=False) if data in ("", "1.2") else data
    text = yaml.safe_dump(data, default_flow_style=True, sort_keys=False, width=10_000)
    return text.removesuffix("\n").removesuffix("\n...")


VALUES: Final = [each for each in values() if isinstance(each, Value)]
DEFAULTS: Final[Values] = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))


def leaves(found: Values, above: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Values by path, down to where values.yaml ends."""
    ends = {each.path for each in VALUES if each.default is not None}
    for name, value in found.items():
        path = (*above, name)
        if path in ends:
            yield path, value
        else:
            yield from leaves(value, path)
