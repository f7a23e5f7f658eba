"""What others wrote is cut, and can't steer a terminal."""

import pytest

from rules.texts import cut, printable


def test_a_text_that_is_too_long_ends_in_an_ellipsis() -> None:
    assert cut("abc", 3) == "abc"
    assert cut("abcd", 3) == "ab…"


@pytest.mark.parametrize(
    ("text", "shown"),
    [("plain", "plain"), ("é…", "é…"), ("a\x1b[2J", "a\\x1b[2J"), ("a\nb\x85", "a\\x0ab\\x85")],
)
def test_control_characters_are_written_out(text: str, shown: str) -> None:
    assert printable(text) == shown
