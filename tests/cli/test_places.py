"""Field paths lead to the right line and column, however a document is written."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cli.manifests.documents import Document, read_documents
from cli.manifests.places import json_places, locate


def _locate(text: str, path: str, name: str = "file.yaml") -> tuple[int, int]:
    (document,) = read_documents(name, text.encode())
    assert isinstance(document, Document)
    place = locate(document.place, path)
    return place.line, place.column


BLOCK = """\
# a comment
metadata:
  annotations:
    usher.dev/eviction-responders: '[{"name": "a.io/x"}]'
    other: |
      [
        {"name": "a.io/x",
         "priority": 5}
      ]
  labels: {app.kubernetes.io/name: web, b: c}
status:
  responders:
  - name: a.io/x
    startTime: 2026-07-01T12:00:00Z

  - {name: b.io/y,
     message: "several
       lines"}
  - - nested
"""


@pytest.mark.parametrize(
    ("path", "place"),
    [
        ("", (2, 1)),
        ("metadata", (2, 1)),
        ("metadata.name", (2, 1)),
        ("metadata.annotations", (3, 3)),
        ("metadata.annotations[usher.dev/eviction-responders]", (4, 5)),
        ("metadata.annotations[usher.dev/eviction-responders][0].priority", (4, 5)),
        ("metadata.annotations[missing]", (3, 3)),
        ("metadata.annotations[other]", (5, 5)),
        ("metadata.annotations[other][0]", (7, 3)),
        ("metadata.annotations[other][0].name", (7, 4)),
        ("metadata.annotations[other][0].priority", (8, 4)),
        ("metadata.annotations[other][7]", (5, 5)),
        ("metadata.labels", (10, 3)),
        ("metadata.labels.app.kubernetes.io/name", (10, 12)),
        ("metadata.labels.b", (10, 41)),
        ("status.responders", (12, 3)),
        ("status.responders[0]", (13, 5)),
        ("status.responders[0].startTime", (14, 5)),
        ("status.responders[0].completionTime", (13, 5)),
        ("status.responders[1]", (16, 5)),
        ("status.responders[1].message", (17, 6)),
        ("status.responders[2][0]", (19, 7)),
        ("status.responders[3]", (12, 3)),
        ("status.responders[x]", (12, 3)),
        ("status.responders.name", (12, 3)),
        ("spec.target.pod", (2, 1)),
        ("[", (2, 1)),
    ],
)
def test_block_style(path: str, place: tuple[int, int]) -> None:
    assert _locate(BLOCK, path) == place


def test_windows_line_ends() -> None:
    assert _locate(BLOCK.replace("\n", "\r\n"), "status.responders[1].message") == (17, 6)


def test_columns_count_characters() -> None:
    assert _locate('{"ü😀": 1, b: {c: 1}}', "b.c") == (1, 15)


def test_a_later_document_counts_from_the_top_of_the_file() -> None:
    documents = list(read_documents("file.yaml", b"a: 1\n---\n\nb:\n- c: 1\n"))
    assert isinstance(documents[1], Document)
    assert locate(documents[1].place, "b[0].c").line == 5


def test_an_alias_stands_where_it_is_used_and_its_content_where_it_is_defined() -> None:
    text = "a: &a\n  b: 1\nc: *a\nd:\n  <<: *a\n"
    assert _locate(text, "c") == (3, 1)
    assert _locate(text, "c.b") == (2, 3)
    assert _locate(text, "d.b") == (2, 3)


JSON = """\
{"metadata": {"name": "a \\" b, c: {"},
 "spec":
  {"list": [1, {"x": -1.5e3},
            "text"], "empty": {}, "none": []},
\t"😀": true}
"""


@pytest.mark.parametrize(
    ("path", "place"),
    [
        ("", (1, 1)),
        ("metadata.name", (1, 15)),
        ("spec", (2, 2)),
        ("spec.list[0]", (3, 13)),
        ("spec.list[1].x", (3, 17)),
        ("spec.list[2]", (4, 13)),
        ("spec.empty.x", (4, 22)),
        ("spec.none[0]", (4, 35)),
        ("😀", (5, 2)),
    ],
)
def test_json(path: str, place: tuple[int, int]) -> None:
    assert _locate(JSON, path, "file.json") == place


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
)


@given(_JSON, st.sampled_from([None, 1]), st.booleans())
def test_every_place_in_json_is_right(value: Any, indent: int | None, ascii_only: bool) -> None:  # noqa: FBT001
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_only)
    lines = text.split("\n")
    pending = [(json_places(text), value)]
    while pending:
        place, value = pending.pop()
        if isinstance(value, dict):
            assert isinstance(place.members, dict)
            assert list(place.members) == list(value)
            for key, member in place.members.items():
                rest = lines[member.line - 1][member.column - 1 :]
                assert rest.startswith(json.dumps(key, ensure_ascii=ascii_only))
                pending.append((member, value[key]))
        elif isinstance(value, list):
            assert isinstance(place.members, list)
            pending += zip(place.members, value, strict=True)
        else:
            assert place.members is None
