"""Texts of others, made fit to be shown."""

import unicodedata
from typing import Final

ELLIPSIS: Final = "…"
"""The mark of what was cut."""


def cut(text: str, limit: int) -> str:
    """``text`` with at most ``limit`` characters; the last of a longer one becomes an ellipsis."""
    return text if len(text) <= limit else text[: limit - len(ELLIPSIS)] + ELLIPSIS


def printable(text: str) -> str:
    r"""``text`` with its control characters written out, such as ``\x1b``."""
    if text.isprintable():
        return text
    return "".join(f"\\x{ord(char):02x}" if is_control(char) else char for char in text)


def is_control(character: str) -> bool:
    """Whether ``character`` steers a terminal instead of being seen."""
    return unicodedata.category(character) == "Cc"
