"""What a field's annotation says, taken apart."""

from types import NoneType, UnionType
from typing import Annotated, Any, TypeAlias, Union, get_args, get_origin

from msgspec.structs import FieldInfo

Schema: TypeAlias = dict[str, Any]
"""Part of an OpenAPI v3 schema."""


def unwrap(info: FieldInfo) -> tuple[Any, tuple[Any, ...]]:
    """The bare type of a field, and everything that its annotation says about it."""
    annotation: Any = info.type
    facts: list[Any] = []
    while True:
        origin = get_origin(annotation)
        if origin is Annotated:
            annotation, *more = get_args(annotation)
            facts += more
        elif origin in (Union, UnionType):
            (annotation,) = (inner for inner in get_args(annotation) if inner is not NoneType)
        else:
            return annotation, tuple(facts)
