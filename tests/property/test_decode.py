"""Any bytes and any JSON either decode or fail with our own error."""

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rules.decode import (
    MAX_DEPTH,
    SHAPES,
    DecodeError,
    decode_object,
    decode_responders,
    load,
    unknown_fields,
)

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)
# The names that the shapes know, so that values land where types are checked.
NAMES = st.sampled_from(
    (
        "metadata", "spec", "status", "target", "pod", "name", "uid", "labels", "annotations",
        "conditions", "type", "lastTransitionTime", "observedGeneration", "targetResponders",
        "priority", "state", "responders", "startTime", "requesters", "template", "jobTemplate",
        "evictionResponders", "ownerReferences", "controller", "finalizers",
    )
)  # fmt: skip
DOCUMENTS = st.recursive(
    JSON,
    lambda inner: st.dictionaries(NAMES, inner, max_size=5) | st.lists(inner, max_size=3),
    max_leaves=40,
).filter(lambda value: isinstance(value, dict))


@given(st.binary(max_size=200))
def test_any_bytes(data: bytes) -> None:
    with suppress(DecodeError):  # any other exception is a fault
        load(data)


@given(JSON)
def test_what_python_writes_is_read_back_without_its_nulls(value: Any) -> None:
    def has_huge(item: Any) -> bool:
        if isinstance(item, dict | list):
            return any(map(has_huge, item.values() if isinstance(item, dict) else item))
        return isinstance(item, int) and item.bit_length() > 64

    def swept(item: Any) -> Any:
        if isinstance(item, dict):
            return {key: swept(inner) for key, inner in item.items() if inner is not None}
        return [swept(inner) for inner in item] if isinstance(item, list) else item

    text = json.dumps(value).encode()
    if has_huge(value):
        with pytest.raises(DecodeError):
            load(text)
    else:
        assert load(text) == swept(value)


@given(st.sampled_from(sorted(SHAPES)), DOCUMENTS)
def test_any_document(kind: tuple[str, str, str], document: dict[str, Any]) -> None:
    shape = SHAPES[kind]
    with suppress(DecodeError):  # any other exception is a fault
        decode_object(shape, document)
    assert all(isinstance(path, str) for path in unknown_fields(shape.model, document))


@given(JSON)
def test_any_annotation(value: Any) -> None:
    with suppress(DecodeError):  # any other exception is a fault
        decode_responders(json.dumps(value))


@given(st.integers(1, 300), st.sampled_from(["[", '{"a":']))
def test_nesting_is_bounded(depth: int, opening: str) -> None:
    closing = "]" if opening == "[" else "}"
    text = f"{opening * depth}1{closing * depth}".encode()
    if depth <= MAX_DEPTH:
        load(text)
    else:
        with pytest.raises(DecodeError, match=r"nest|recursion"):
            load(text)
