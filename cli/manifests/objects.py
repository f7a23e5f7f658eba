"""From documents to the objects in them: one each, or the items of a List."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from cli.judgement.findings import ObjectName
from cli.manifests.documents import Document, Unreadable, read_documents
from cli.manifests.places import Place, locate
from cli.manifests.sources import STANDARD_INPUT, Source
from cli.manifests.yaml_values import Problem
from rules.decode import SHAPES, Shape


@dataclass(frozen=True, slots=True)
class Manifest:
    """One object of a file, whatever its kind."""

    document: Document
    value: Any
    """The object as a JSON value, without nulls."""
    problems: tuple[Problem, ...]
    """What is wrong with the text of this object; the steps of each lead from the object on."""
    item: int | None = None
    """Its place in the ``items`` of a List, counted from 0; None outside of Lists."""

    def locate(self, path: str) -> Place:
        """Where the field ``path`` of the object stands, or the nearest value around it."""
        return locate(locate(self.document.place, self._prefix), path)

    @property
    def _prefix(self) -> str:
        return "" if self.item is None else f"items[{self.item}]"

    @property
    def name(self) -> ObjectName:
        """What the object calls itself."""
        return ObjectName(
            api_version=_text(self.value, "apiVersion"),
            kind=_text(self.value, "kind"),
            namespace=_text(self._metadata, "namespace"),
            name=_text(self._metadata, "name"),
        )

    @property
    def _metadata(self) -> Any:
        return self.value.get("metadata") if isinstance(self.value, dict) else None

    @property
    def group_version(self) -> tuple[str, str]:
        """The group ("" for the core one) and the version."""
        group, _, version = _text(self.value, "apiVersion").rpartition("/")
        return group, version

    @property
    def shape(self) -> Shape | None:
        """What is judged in an object of this kind; None for kinds without rules."""
        return SHAPES.get((*self.group_version, _text(self.value, "kind")))


def read_parts(source: Source) -> Iterator[Manifest | Unreadable]:
    """Every object in the file that ``source`` names, and what cannot be read of it, in order."""
    try:
        data = source.read()
    except OSError as error:
        yield Unreadable(1, f"could not be read: {error.strerror}")
        return
    if source.path == STANDARD_INPUT and not data.strip():
        yield Unreadable(1, "is empty; did the command before the pipe fail?")
        return
    yield from read_manifests(source.name, data)


def read_manifests(name: str, data: bytes) -> Iterator[Manifest | Unreadable]:
    """Every object in the file ``name``, and what cannot be read of it, in order."""
    for document in read_documents(name, data):
        if isinstance(document, Unreadable):
            yield document
        else:
            yield from _objects(document)


def _objects(document: Document) -> Iterator[Manifest]:
    items = _items(document.value)
    if items is None:
        yield Manifest(document, document.value, document.problems)
        return
    problems = _problems_by_item(document.problems)
    api_version = _text(document.value, "apiVersion")
    kind = _text(document.value, "kind").removesuffix("List")
    for position, item in enumerate(items):
        value = item
        if kind and isinstance(item, dict):
            # API servers leave both out in typed lists, kubectl does not.
            value = {"apiVersion": api_version, "kind": kind, **item}
        yield Manifest(document, value, tuple(problems[position]), position)


def _problems_by_item(problems: Iterable[Problem]) -> defaultdict[int, list[Problem]]:
    """The problems of each item; what is wrong with the List itself is told with the first."""
    found: defaultdict[int, list[Problem]] = defaultdict(list)
    for problem in problems:
        match problem.steps:
            case ("items", int(position), *rest):
                found[position].append(replace(problem, steps=tuple(rest)))
            case _:
                found[0].append(problem)
    return found


def _items(value: Any) -> list[Any] | None:
    if not _text(value, "kind").endswith("List"):
        return None
    items = value.get("items")
    return items if isinstance(items, list) else None


def _text(value: Any, key: str) -> str:
    """The text under ``key``, "" where there is none."""
    found = value.get(key) if isinstance(value, dict) else None
    return found if isinstance(found, str) else ""
