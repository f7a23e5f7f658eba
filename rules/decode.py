"""From bytes to shapes. Nothing else parses JSON that came from outside.

What machines send is read straight from its bytes (:func:`read`), as Go reads it: of a repeated key
the last one counts, and ``null`` is an absent field. What people write is loaded first
(:func:`load`), which finds repeated keys, and then converted (:func:`decode_model`). In both every
type is strict: no text for a number, no fraction for an integer, no time that Go would not read.
"""

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from functools import cache
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

import jiter
import msgspec
from msgspec import structs

from rules.api import (
    GROUP,
    UNREAD_METADATA,
    VERSION,
    ApiType,
    Eviction,
    EvictionRequest,
    EvictionResponder,
    ObjectMeta,
    Pod,
)
from rules.declared import model_in
from rules.field import Path
from rules.policies import (
    POLICY_GROUP,
    POLICY_VERSION,
    ClusterResponderPolicy,
    ResponderPolicy,
)
from rules.request import Judged
from rules.times import TIME_HELP, parse_time

MAX_DEPTH: Final = 100
"""How deep JSON may nest; the deepest lawful document has about 10 levels, managedFields 20."""
_MAX_INTEGER_BITS: Final = 64
"""An API server holds no larger integers."""

ModelT = TypeVar("ModelT")


class DecodeError(ValueError):
    """The input is not what it claims to be; the text says where and what is wanted."""

    def __init__(self, detail: str, path: Path = Path()) -> None:
        super().__init__(f"{path}: {detail}" if path else detail)
        self.detail = detail
        self.path = path


def load(data: bytes) -> Any:
    """The value that the JSON text ``data`` (UTF-8, no BOM) holds, without its nulls.

    Raises DecodeError for anything that an API server would not accept or could misread: repeated
    keys, NaN, infinities, lone surrogates, huge integers, deep nesting.
    """
    try:
        value = jiter.from_json(
            data, allow_inf_nan=False, catch_duplicate_keys=True, cache_mode="keys"
        )
    except ValueError as error:
        raise DecodeError(f"must be valid JSON: {error}") from None
    _sweep(value, 0)
    return value


def _sweep(value: Any, depth: int) -> None:
    """Drop nulls from objects, in place; refuse what is too deep or out of range."""
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
    """What to judge in a document of some kind, and where it stands in it."""

    model: type[Judged]
    root: Path = Path()

    @property
    def way(self) -> list[str]:
        """The fields that lead to it."""
        return self.root.split(".") if self.root else []


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


def read_object(shape: Shape, data: bytes | msgspec.Raw) -> Judged:
    """What is to be judged in the JSON text ``data``, an object of that kind.

    Raises DecodeError with the path of a field that has a wrong type.
    """
    return _unwrapped(shape, read(_wrapped(shape), data))


def decode_object(shape: Shape, document: Mapping[str, Any]) -> Judged:
    """The same in ``document``, as :func:`load` returned it."""
    return _unwrapped(shape, decode_model(_wrapped(shape), document))


@cache
def _wrapped(shape: Shape) -> type[Any]:
    """The shape of a whole document of that kind, as far as it leads to what is judged."""
    model: type[Any] = shape.model
    for name in reversed(shape.way):
        model = msgspec.defstruct("Wrapped", [(name, model, model())], frozen=True, gc=False)
    return model


def _unwrapped(shape: Shape, document: Any) -> Judged:
    for name in shape.way:
        document = getattr(document, name)
    judged: Judged = document
    return judged


def read(model: type[ModelT], data: bytes | msgspec.Raw) -> ModelT:
    """The ``model`` that the JSON text ``data`` (UTF-8) holds.

    Raises DecodeError: for what is no JSON, and with the path of a field that has a wrong type.
    """
    decoder: msgspec.json.Decoder[ModelT] = _decoder(model)  # type: ignore[arg-type]
    try:
        return decoder.decode(data)
    except msgspec.ValidationError:
        pass  # a null, which stands for nothing, or a wrong type: a closer look tells
    except msgspec.DecodeError as error:
        raise DecodeError(f"must be valid JSON: {error}") from None
    except RecursionError:
        raise DecodeError("must not nest so deeply") from None
    document = load(bytes(data))
    try:
        return decoder.decode(msgspec.json.encode(document))
    except msgspec.ValidationError as error:
        raise _wrong_type(str(error), document, Path()) from None


@cache
def _decoder(model: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(model, dec_hook=_read_time)


def _read_time(_: type[Any], value: object) -> datetime:
    """The one type that msgspec does not read by itself is :data:`rules.api.Time`."""
    if type(value) is str:
        return parse_time(value)
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value
    raise ValueError(TIME_HELP)


def decode_model(model: type[ModelT], document: Any, root: Path = Path()) -> ModelT:
    """``document`` as a ``model``; ``root`` is where it stands, for the error.

    Raises DecodeError with the path of a field that has a wrong type.
    """
    try:
        return msgspec.convert(document, model, dec_hook=_read_time)
    except msgspec.ValidationError as error:
        raise _wrong_type(str(error), document, root) from None


Encoded: TypeAlias = bytes | msgspec.Raw | Mapping[str, Any]
"""An object of an API: as its text came over the wire, or as JSON values."""


def decode(model: type[ModelT], document: Encoded) -> ModelT:
    """``document`` as a ``model``, by :func:`read` or :func:`decode_model`. Raises DecodeError."""
    if isinstance(document, Mapping):
        return decode_model(model, document)
    return read(model, document)


def decode_responders(text: str) -> tuple[EvictionResponder, ...]:
    """The list that the annotation of a pod carries.

    Raises DecodeError if ``text`` is not a JSON list of responders.
    """
    return decode_model(tuple[EvictionResponder, ...], load(text.encode("utf-8", "surrogatepass")))


_WORDS: Final = {
    "str": "must be a string",
    "int": "must be an integer",
    "bool": "must be true or false",
    "float": "must be a number",
    "array": "must be a list",
    "object": "must be an object",
}
"""What msgspec expects → how we say it."""
_INTEGER_RANGE: Final = "must fit the integer type of the field"
_BOUNDS: Final = {"<=": "at most", ">=": "at least"}
_expected = re.compile(r"Expected `(\w+)(?: \| null)?`(?: ([<>]=) (\S+))?").match
_place = re.compile(r" - at `\$(.*)`$").search
_steps = re.compile(r"\.([^.\[]+)|\[(\d+)\]|\[\.\.\.\]").findall


def _wrong_type(message: str, document: Any, root: Path) -> DecodeError:
    place, expected = _place(message), _expected(message)
    path, value = root, document
    for name, position in _steps(place[1]) if place else ():
        step: str | int = int(position) if position else name or _wrong_key(value)
        path = path.at(step) if isinstance(step, int) else path.child(step)
        value = value[step]
    if expected is None:
        return DecodeError(message[: place.start()] if place else message, path)
    type_, comparison, bound = expected.groups()
    if comparison is None:
        return DecodeError(_WORDS[type_], path)
    if type_ == "int":
        return DecodeError(_INTEGER_RANGE, path)
    return DecodeError(f"must be {_BOUNDS[comparison]} {bound}", path)


def _wrong_key(texts: Mapping[str, Any]) -> str:
    """The key of which msgspec says only that one is wrong; all maps are of texts."""
    return next(key for key, value in texts.items() if not isinstance(value, str))


def unknown_fields(model: type[ApiType], document: Any, root: Path = Path()) -> Iterator[Path]:
    """Fields of ``document`` that ``model`` does not have, at any depth, in document order."""
    if not isinstance(document, dict):
        return
    known = {field.encode_name: field for field in structs.fields(model)}
    unread = UNREAD_METADATA if model is ObjectMeta else ()
    for name, value in document.items():
        path = root.child(name)
        if name not in known:
            if name not in unread:
                yield path
            continue
        inner = model_in(known[name].type)
        if inner is not None and isinstance(value, list):
            for position, item in enumerate(value):
                yield from unknown_fields(inner, item, path.at(position))
        elif inner is not None:
            yield from unknown_fields(inner, value, path)
