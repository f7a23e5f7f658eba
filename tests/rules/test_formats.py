"""Formats count bytes and refuse what only looks right."""

import pytest

from rules import formats


@pytest.mark.parametrize(
    ("accepts", "good", "bad"),
    [
        (formats.is_short_name, ("a", "a-1", "a" * 63), ("", "A", "a.b", "-a", "a" * 64, "a\n")),
        (formats.is_long_name, ("a.b-c.1", "a" * 253), ("", "a..b", ".a", "a.", "a" * 254, "ä")),
        (formats.is_qualified_name, ("a", "A.b_c", "a.io/B"), ("", "/a", "a/", "a/b/c", "A.io/a")),
        (formats.is_prefixed_key, ("a/b", "a.io/B_1.c"), ("a", "a/", "/a", "a/b/c", "a/b\n")),
        (formats.is_label_value, ("", "a", "A_1.b"), ("-a", "a b", "a" * 64, "a\n")),
        (formats.is_path_segment, ("a", "Ä b"), (".", "..", "a/b", "a%b")),
        (formats.is_condition_reason, ("A", "A:b,c_", "Ab9"), ("", "9a", "a,", "a b", "A\n")),
    ],
)  # fmt: skip
def test_formats(accepts: object, good: tuple[str, ...], bad: tuple[str, ...]) -> None:
    assert callable(accepts)
    assert [text for text in good if not accepts(text)] == []
    assert [text for text in bad if accepts(text)] == []


def test_lengths_are_bytes() -> None:
    assert formats.fits("ä" * 5, 10)
    assert not formats.fits("ä" * 5, 9)
    assert formats.byte_length("\ud800") == 3
