"""From bytes to shapes. Nothing else parses JSON that came from outside.

Strict where Python's ``json`` is not: duplicate keys, NaN and infinities, lone surrogates, invalid
UTF-8, huge integers and deep nesting are errors. ``null`` means the same as an absent field.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeVar

import jiter
import orjson
from pydantic import BaseModel, TypeAdapter, ValidationError

from rules.api import GROUP, VERSION, Eviction, EvictionRequest, EvictionResponder, Pod
from rules.declared import model_in
from rules.field import Path
from rules.policies import (
    POLICY_GROUP,
    POLICY_VERSION,
    ClusterResponderPolicy,
    ResponderPolicy,
)
from rules.request import Judged

MAX_DEPTH: Final = 100
"""How deep JSON may nest; the deepest lawful document has about 10 levels, managedFields 20."""
_MAX_INTEGER_BITS: Final = 64
"""An API server holds no larger integers."""

ModelT = TypeVar("ModelT", bound=BaseModel)


class DecodeError(ValueError):
    """The input is not what it claims to be; the text says where and what is wanted."""

    def __init__(self, detail: str, path: Path = Path()) -> None:
        super().__init__(f"{path}: {detail}" if path else detail)
        self.detail = detail
        self.path = path


def load(data: bytes) -> Any:
    """The value that the JSON text ``data`` (UTF-8, no BOM) holds, without its nulls.

    Raises DecodeError for anything that an API server would not accept or could misread.
    """
    value = _load_canonical(data)
    if value is None:
        try:
            value = jiter.from_json(
                data, allow_inf_nan=False, catch_duplicate_keys=True, cache_mode="keys"
            )
        except ValueError as error:
            raise DecodeError(f"must be valid JSON: {error}") from None
    elif b"null" not in data and data.count(b"{") + data.count(b"[") <= MAX_DEPTH:
        return value  # too few brackets to be deep, no null, and no number out of range
    _sweep(value, 0)
    return value


def _load_canonical(data: bytes) -> Any:
    """The value of a text that reads and writes back to the same bytes; None for any other.

    What API servers send is of that kind. It has no repeated keys and no number that was rounded,
    which takes twice the time to find out by looking closely.
    """
    try:
        value = orjson.loads(data)
        return value if orjson.dumps(value) == data.rstrip(b"\n") else None
    except (orjson.JSONDecodeError, orjson.JSONEncodeError):
        return None  # the closer look words the error


def _sweep(value: Any, depth: int) -> None:
    """Drop nulls from objects, in place; refuse what is too deep or out of range.

    A good part of a small request's cost, hence the exact types and no work for texts.
    """
    if type(value) is dict:
        items: Iterable[Any] = value.values()
    elif type(value) is list:
        items = value
    else:
        _check_number(value)
        return
    if depth == MAX_DEPTH:
        raise DecodeError(f"must not nest deeper than {MAX_DEPTH} levels")
    has_nulls = False
    for item in items:
        if item is None:
            has_nulls = True
        elif type(item) is not str:
            _sweep(item, depth + 1)
    if has_nulls and type(value) is dict:
        for key in [key for key, item in value.items() if item is None]:
            del value[key]


def _check_number(value: Any) -> None:
    if type(value) is int and value.bit_length() > _MAX_INTEGER_BITS:
        raise DecodeError(f"must not hold integers of more than {_MAX_INTEGER_BITS} bits")
    if type(value) is float and math.isinf(value):
        raise DecodeError("must not hold numbers beyond the range of a double")


class Shape(NamedTuple):
    """Which shape to judge in a document of some kind, and where it stands in it."""

    model: type[Judged]
    root: Path = Path()


def _template(*path: str) -> Shape:
    return Shape(Pod, Path(".".join(path)))


SHAPES: Final[Mapping[tuple[str, str, str], Shape]] = MappingProxyType(
    {
        (GROUP, VERSION, "Eviction"): Shape(Eviction),
        (GROUP, VERSION, "EvictionRequest"): Shape(EvictionRequest),
        (POLICY_GROUP, POLICY_VERSION, "ResponderPolicy"): Shape(ResponderPolicy),
        (POLICY_GROUP, POLICY_VERSION, "ClusterResponderPolicy"): Shape(ClusterResponderPolicy),
        ("", "v1", "Pod"): Shape(Pod),
        ("", "v1", "PodTemplate"): _template("template"),
        ("", "v1", "ReplicationController"): _template("spec", "template"),
        ("apps", "v1", "DaemonSet"): _template("spec", "template"),
        ("apps", "v1", "Deployment"): _template("spec", "template"),
        ("apps", "v1", "ReplicaSet"): _template("spec", "template"),
        ("apps", "v1", "StatefulSet"): _template("spec", "template"),
        ("batch", "v1", "Job"): _template("spec", "template"),
        ("batch", "v1", "CronJob"): _template("spec", "jobTemplate", "spec", "template"),
    }
)
"""(group, version, kind) → what is judged in it. The group tells this API's Eviction from the one
of ``policy/v1``; a kind that is not here is none of ours."""


def decode_object(shape: Shape, document: Mapping[str, Any]) -> Judged:
    """The shape that stands in ``document``, as :func:`load` returned it.

    Raises DecodeError with the path of the first field that has a wrong type.
    """
    part: Any = document
    for name in shape.root.split(".") if shape.root else ():
        part = part.get(name, {}) if isinstance(part, dict) else part
    return decode_model(shape.model, part, shape.root)


def decode_model(model: type[ModelT], document: Any, root: Path = Path()) -> ModelT:
    """``document`` as a ``model``; ``root`` is where it stands, for the error."""
    try:
        return model.model_validate(document)
    except ValidationError as error:
        raise _wrong_type(error, root) from None


_RESPONDERS: Final = TypeAdapter(list[EvictionResponder])


def decode_responders(text: str) -> tuple[EvictionResponder, ...]:
    """The list that the annotation of a pod carries.

    Raises DecodeError if ``text`` is not a JSON list of responders.
    """
    try:
        return tuple(_RESPONDERS.validate_python(load(text.encode("utf-8", "surrogatepass"))))
    except ValidationError as error:
        raise _wrong_type(error, Path()) from None


_WANTED: Final = {
    "string_type": "must be a string",
    "int_type": "must be an integer",
    "bool_type": "must be true or false",
    "tuple_type": "must be a list",
    "list_type": "must be a list",
    "dict_type": "must be an object",
    "model_type": "must be an object",
    "greater_than_equal": "must fit the integer type of the field",
    "less_than_equal": "must fit the integer type of the field",
}


def _wrong_type(error: ValidationError, root: Path) -> DecodeError:
    first = error.errors(include_url=False, include_input=False)[0]
    path = root
    for step in first["loc"]:
        path = path.at(step) if isinstance(step, int) else path.child(step)
    return DecodeError(_WANTED.get(first["type"], first["msg"]), path)


def unknown_fields(model: type[BaseModel], document: Any, root: Path = Path()) -> Iterator[Path]:
    """Fields of ``document`` that ``model`` does not have, at any depth, in document order."""
    if not isinstance(document, dict):
        return
    known = {info.alias or name: info for name, info in model.model_fields.items()}
    for name, value in document.items():
        path = root.child(name)
        if name not in known:
            yield path
            continue
        inner = model_in(known[name].annotation)
        if inner is not None and isinstance(value, list):
            for position, item in enumerate(value):
                yield from unknown_fields(inner, item, path.at(position))
        elif inner is not None:
            yield from unknown_fields(inner, value, path)
