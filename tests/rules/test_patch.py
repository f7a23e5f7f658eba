"""JSON Patch by hand: every document, every name, missing parents."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rules.patch import Step, assign, render
from tests.rules.json_patch import PatchError, apply_patch

NAMES = st.text(st.sampled_from("a/~01-"), max_size=4)
DOCUMENTS = st.recursive(
    st.dictionaries(NAMES, st.integers()),
    lambda inner: st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.parametrize(
    ("document", "way", "step"),
    [
        ({}, ["a"], Step("/a", 7)),
        ({"a": 1}, ["a"], Step("/a", 7)),
        ({"a": {}}, ["a", "b"], Step("/a/b", 7)),
        ({}, ["a", "b", "c"], Step("/a", {"b": {"c": 7}})),
        ({"a": {"x": 1}}, ["a", "b", "c"], Step("/a/b", {"c": 7})),
        ({"a": {}}, ["a", "b.io/c"], Step("/a/b.io~1c", 7)),
        ({}, ["~/"], Step("/~0~1", 7)),
        ({}, ["~1"], Step("/~01", 7)),
        ({"": {}}, ["", ""], Step("//", 7)),
    ],
)
def test_a_step_names_the_highest_parent_that_is_missing(
    document: dict[str, object], way: list[str], step: Step
) -> None:
    assert assign(document, way, 7)[1] == step


@given(DOCUMENTS, st.lists(NAMES, min_size=1, max_size=4), st.integers() | st.lists(NAMES))
def test_the_step_does_what_was_done_here_once_or_twice(
    document: dict[str, object], way: list[str], value: object
) -> None:
    before = json.dumps(document)
    try:
        changed, step = assign(document, way, value)
    except TypeError:
        return  # the way leads through a number, which no shape lets pass
    patch = render([step])
    assert json.dumps(document) == before
    assert apply_patch(document, patch) == changed
    assert apply_patch(changed, patch) == changed
    found: object = changed
    for name in way:
        assert isinstance(found, dict)
        found = found[name]
    assert found == value


def test_no_steps_are_an_empty_list() -> None:
    assert render([]) == b"[]"


@pytest.mark.parametrize(
    "patch",
    [
        b'[{"op": "add", "path": "/a/b", "value": 1}]',
        b'[{"op": "replace", "path": "/a", "value": 1}]',
        b'[{"op": "remove", "path": "/a"}]',
        b'[{"op": "add", "path": "a", "value": 1}]',
        b'[{"op": "add", "path": "/list/7", "value": 1}]',
        b'[{"op": "move", "path": "/list", "from": "/a"}]',
    ],
)
def test_the_reference_is_strict(patch: bytes) -> None:
    with pytest.raises(PatchError):
        apply_patch({"list": []}, patch)
