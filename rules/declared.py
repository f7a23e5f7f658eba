"""Applies the limits that models declare, to what changed.

An unchanged value is never judged again, so that a stored object which predates a limit can still
be updated elsewhere. List items are compared with the stored item of the same key, wherever it
stands. Source: apimachinery ``pkg/api/validate/each.go`` and the generated walkers (1.37.2).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, get_args, get_origin

from msgspec import structs

from rules.api import ApiType
from rules.constraints import Constraint, Unique
from rules.field import FieldError, Path


@dataclass(frozen=True, slots=True)
class Declared:
    """An error together with the id of the declared limit that it breaks."""

    rule: str
    error: FieldError


@dataclass(frozen=True, slots=True)
class Field:
    """What one field of a model declares, prepared for walking."""

    attribute: str
    name: str
    decisive: tuple[Constraint, ...]
    others: tuple[Constraint, ...]
    key: str | None
    """The attribute by which list items are matched, None where the field is no keyed list."""
    is_list: bool
    model: type[ApiType] | None
    """The model that the field holds, directly, optionally, or as list items."""

    @classmethod
    def of(cls, info: structs.FieldInfo) -> "Field":
        """The plan for the field that msgspec describes by ``info``."""
        bare, *facts = get_args(info.type) if get_origin(info.type) is Annotated else (info.type,)
        limits = [fact for fact in facts if isinstance(fact, Constraint)]
        return cls(
            attribute=info.name,
            name=info.encode_name,
            decisive=tuple(limit for limit in limits if limit.decisive),
            others=tuple(limit for limit in limits if not limit.decisive),
            key=next((limit.key for limit in limits if isinstance(limit, Unique)), None),
            is_list=get_origin(bare) is tuple,
            model=model_in(info.type),
        )

    def walk(self, path: Path, value: Any, old: Any, *, updating: bool) -> Iterator[Declared]:
        """Judge a ``value`` that differs from ``old``, and whatever it contains."""
        stopped = False
        for limit in self.decisive:
            for error in limit.check(path, value, old, updating=updating):
                stopped = True
                yield Declared(limit.rule, error)
        if stopped or value is None:
            return
        for limit in self.others:
            for error in limit.check(path, value, old, updating=updating):
                yield Declared(limit.rule, error)
        if isinstance(value, ApiType):
            yield from walk(path, value, old, updating=updating)
        elif self.key is not None:
            yield from self._walk_items(path, value, old or (), updating=updating)
        elif self.model is not None and _walkable(self.model):
            # Items without a key have no twins: a list of these is judged as a whole.
            for position, item in enumerate(value):
                yield from walk(path.at(position), item, None, updating=updating)

    def _walk_items(
        self, path: Path, items: Any, old: Any, *, updating: bool
    ) -> Iterator[Declared]:
        stored: dict[str, Any] = {}
        for item in old:
            stored.setdefault(getattr(item, self.key or ""), item)
        for position, item in enumerate(items):
            twin = stored.get(getattr(item, self.key or ""))
            if item != twin:
                yield from walk(path.at(position), item, twin, updating=updating)


@cache
def fields_of(model: type[ApiType]) -> tuple[Field, ...]:
    """Every field of ``model`` in declaration order."""
    return tuple(map(Field.of, structs.fields(model)))


@cache
def _walkable(model: type[ApiType]) -> tuple[Field, ...]:
    """The fields under which a limit can be found at any depth."""
    return tuple(
        field
        for field in fields_of(model)
        if field.decisive or field.others or (field.model and _walkable(field.model))
    )


def model_in(annotation: Any) -> type[ApiType] | None:
    """The model that a field's annotation holds: directly, optionally, or as list items."""
    if isinstance(annotation, type) and issubclass(annotation, ApiType):
        return annotation
    inner = (model_in(argument) for argument in getattr(annotation, "__args__", ()))
    return next((model for model in inner if model is not None), None)


def walk(path: Path, new: ApiType, old: ApiType | None, *, updating: bool) -> Iterator[Declared]:
    """Yield every declared limit that ``new`` breaks and ``old``, its stored twin, did not.

    ``path`` is where ``new`` stands; ``old`` is None on CREATE (``updating`` False) and for a list
    item that was not there before.
    """
    for field in _walkable(type(new)):
        value = getattr(new, field.attribute)
        twin = getattr(old, field.attribute) if old is not None else None
        if old is None or value != twin:
            yield from field.walk(path.child(field.name), value, twin, updating=updating)
