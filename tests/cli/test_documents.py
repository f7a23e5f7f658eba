"""Reading files: what kubectl reads is read alike, and nothing hostile costs much."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cli.manifests.documents import MAX_BYTES, MAX_UNREADABLE, Document, Unreadable, read_documents
from rules.decode import load


def _read(text: str | bytes, name: str = "file.yaml") -> list[Document | Unreadable]:
    return list(read_documents(name, text.encode() if isinstance(text, str) else text))


def _values(text: str | bytes, name: str = "file.yaml") -> list[Any]:
    parts = _read(text, name)
    assert all(isinstance(part, Document) and not part.problems for part in parts), parts
    return [part.value for part in parts if isinstance(part, Document)]


def _unreadable(text: str | bytes, name: str = "file.yaml") -> Unreadable:
    (part,) = (part for part in _read(text, name) if isinstance(part, Unreadable))
    return part


def _problem(text: str) -> tuple[str, int, int]:
    (part,) = _read(text)
    assert isinstance(part, Document)
    (problem,) = part.problems
    return problem.message, problem.line, problem.column


# Written with \u below. Beyond the basic plane that takes surrogates, which YAML does not have;
# and its keys have at most 1024 characters.
_TEXT = st.text(st.characters(max_codepoint=0xFFFF, exclude_categories=["Cs"]), max_size=20)
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | _TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_TEXT, inner, max_size=4),
)


@given(st.lists(_JSON) | st.dictionaries(_TEXT, _JSON))
def test_json_means_the_same_when_it_is_read_as_yaml(value: Any) -> None:
    text = json.dumps(value)
    assert _values(f"--- {text}") == [load(text.encode())]


def test_documents_are_told_apart() -> None:
    assert _values("a: 1\n---\nb: 2\n") == [{"a": 1}, {"b": 2}]


def test_empty_documents_do_not_count() -> None:
    (only,) = _read("---\n---\n# nothing\n---\na: 1\n---\n")
    assert isinstance(only, Document)
    assert (only.number, only.value) == (1, {"a": 1})


@pytest.mark.parametrize("text", ["", "# a comment\n", "---\n"])
def test_nothing_is_no_document(text: str) -> None:
    assert _read(text) == []


def test_nulls_are_absent_except_in_lists() -> None:
    assert _values("a: null\nb: ~\nc:\nd: [null]\ne: {f: null}\n") == [{"d": [None], "e": {}}]


def test_times_stay_text() -> None:
    assert _values("t: 2026-07-01T12:00:00Z") == [{"t": "2026-07-01T12:00:00Z"}]


def test_the_text_tag_makes_a_number_a_text() -> None:
    assert _values("a: !!str 12") == [{"a": "12"}]


def test_a_byte_order_mark_is_allowed_in_yaml() -> None:
    assert _values("\ufeffa: 1") == [{"a": 1}]


def test_windows_line_ends() -> None:
    assert _values("a: 1\r\nb:\r\n- c\r\n---\r\nd: 2\r\n") == [{"a": 1, "b": ["c"]}, {"d": 2}]


def test_aliases_and_merge_keys_work_as_in_kubectl() -> None:
    text = """
base: &base {a: 1, b: null, c: x}
copy: *base
later: {<<: *base, a: 2}
unset: {<<: *base, c: null}
many: {<<: [*base, {a: 3, z: 1}]}
key: {&name k: 1}
"""
    assert _values(text) == [
        {
            "base": {"a": 1, "c": "x"},
            "copy": {"a": 1, "c": "x"},
            "later": {"a": 2, "c": "x"},
            "unset": {"a": 1},
            "many": {"a": 1, "c": "x", "z": 1},
            "key": {"k": 1},
        }
    ]


def test_a_quoted_merge_key_is_a_key() -> None:
    assert _values('a: {"<<": 1}') == [{"a": {"<<": 1}}]


def test_json_on_a_yaml_path_may_use_surrogate_pairs() -> None:
    assert _values('{"a": "\\ud83d\\ude00"}') == [{"a": "😀"}]


@pytest.mark.parametrize(
    ("text", "message", "place"),
    [
        ("a: 1\na: 2", "'a' stands here twice", (2, 1)),
        ("a: {b: 1,\n  b: 2}", "'b' stands here twice", (2, 3)),
        ("1: x", "the key 1 must be a text", (1, 1)),
        ("a:\n  yes: x", "the key yes must be a text", (2, 3)),
        ("~: x", "the key ~ must be a text", (1, 1)),
        ("? [a]\n: x", "a key must be a text", (1, 3)),
        ("a: {{ .Values.b }}", "render templates", (1, 5)),
        ("a: &x b\n*x : c", "a key must be a text", (2, 1)),
        ("a: !!binary aGk=", "without the tag !!binary", (1, 4)),
        ("a: !!set {b: c}", "without the tag !!set", (1, 4)),
        ("a: !!timestamp 2026-07-01", "without the tag !!timestamp", (1, 4)),
        ("a: !Ref b", "without the tag !Ref", (1, 4)),
        ("a: .nan", "no JSON number", (1, 4)),
        ("a: &x [*x]", "must name an anchor before it", (1, 8)),
        ("a: *x", "must name an anchor before it", (1, 4)),
        ("a: {<<: 5}", "must merge an object", (1, 9)),
        ("a: {<<: [5]}", "must merge an object", (1, 9)),
        ("a: " + "[" * 100 + "]" * 100, "100 levels", (1, 103)),
    ],
)
def test_what_is_not_one_json_value(text: str, message: str, place: tuple[int, int]) -> None:
    told, *found = _problem(text)
    assert message in told
    assert tuple(found) == place


def test_deep_but_not_too_deep() -> None:
    assert _values("a: " + "[" * 99 + "]" * 99)


@pytest.mark.parametrize(
    ("text", "message", "line"),
    [
        ("a: [1\n", "flow sequence", 2),
        ('a: "b', "quoted scalar", 1),
        ("a: 1\n- b", "expected key", 2),
        ("a:\n\t- b", "not with tabs", 2),
        ("a: @b", "cannot start any token", 1),
        ("a: 1\n  b: 2", "not allowed", 2),
        ("spec:\n  target: {pod: {name: x\n", "flow mapping", 3),
        ("{{ if x }} a: b", "render it first", 1),
        ("a: \x07", "control character '\\x07'", 1),
        ("a: " + "[" * 5000, "nesting depth", 1),
    ],
)
def test_what_is_no_yaml(text: str, message: str, line: int) -> None:
    found = _unreadable(text)
    assert message in found.message
    assert found.line == line


@pytest.mark.parametrize(
    ("data", "message", "place"),
    [
        (b'{"a": 1,\n "a": 2}', "duplicate key", (2, 6)),
        (b'{"a": \n NaN}', "expected value", (2, 2)),
        (b'{"a": 1e999}', "number", (1, 1)),
        (b'{"a": 1,}', "trailing comma", (1, 9)),
        (b"", "EOF", (1, 1)),
        (b'{"a": 1}\n{"b": 2}', "trailing characters", (2, 1)),
        (b"[" * 5000, "recursion", (1, 202)),
        (b"[" * 120 + b"]" * 120, "100 levels", (1, 1)),
    ],
)
def test_what_is_no_json(data: bytes, message: str, place: tuple[int, int]) -> None:
    found = _unreadable(data, "file.json")
    assert message in found.message.lower() or message in found.message
    assert (found.line, found.column)[: len(place)] == place


def test_what_is_no_utf8() -> None:
    assert _unreadable(b"a: 1\nb: \xff").line == 2
    assert "UTF-8" in _unreadable("a: 1".encode("utf-16")).message


def test_what_is_too_large() -> None:
    assert "32 MiB" in _unreadable(b"#" * (MAX_BYTES + 1)).message


def test_a_broken_document_does_not_stop_the_others() -> None:
    parts = _read("a: 1\n---\nb: [\n---\nc: 3\n---\n@\n---\nd: 4\n")
    assert [type(part) for part in parts] == [Document, Unreadable, Document, Unreadable, Document]
    assert [part.number for part in parts] == [1, 2, 3, 4, 5]
    assert [part.line for part in parts if isinstance(part, Unreadable)] == [4, 7]


def test_places_behind_a_broken_document_are_right() -> None:
    parts = _read("a: [\n---\n\nb:\n  c: 3\n")
    assert isinstance(parts[1], Document)
    assert (parts[1].place.line, parts[1].place.column) == (4, 1)


def test_a_document_with_the_error_in_its_first_line() -> None:
    parts = _read("a: 1\n--- @\n---\nb: 2\n")
    assert [type(part) for part in parts] == [Document, Unreadable, Document]


def test_reading_a_hopeless_file_ends() -> None:
    parts = _read("---\n@\n" * 50_000)
    assert len(parts) == MAX_UNREADABLE + 1
    assert isinstance(parts[-1], Unreadable)
    assert "gave up" in parts[-1].message


def _laughs(levels: int) -> str:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    for level in range(1, levels):
        below = ", ".join([f"*a{level - 1}"] * 10)
        lines.append(f"a{level}: &a{level} [{below}]")
    return "\n".join(lines)


@pytest.mark.parametrize(
    "text",
    [
        _laughs(50),
        "a: &a {b: c}\n"
        + "\n".join(f"k{i}: {{<<: [{', '.join(['*a'] * 50)}]}}" for i in range(50)),
        "[" * 1_000_000,
        "- " * 1_000_000,
        "{a: " * 100_000,
        "? " * 100_000,
        "a: " + "'" * 1_000_001,
        "&a " * 100_000,
        "!" * 1_000_000,
        "%" * 1_000_000,
        "---\n" * 200_000,
        ": " * 100_000,
        "a: |\n" + " " * 1_000_000,
    ],
    ids=lambda text: text[:12],
)
def test_hostile_yaml_comes_to_little(text: str) -> None:
    parts = _read(text)
    assert len(parts) <= MAX_UNREADABLE + 1
    for part in parts:
        # Nothing that was blown up is handed on.
        assert isinstance(part, Unreadable) or len(repr(part.value)) <= 2 * len(text)


def test_exploding_aliases_are_refused() -> None:
    (part,) = _read(_laughs(50))
    assert isinstance(part, Document)
    assert part.value is None
    assert "aliases must not expand" in part.problems[0].message
