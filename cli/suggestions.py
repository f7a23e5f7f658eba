"""What a mistyped word was meant to be."""

import difflib
from collections.abc import Iterable


def nearest(word: str, words: Iterable[str]) -> str:
    """A hint such as "; did you mean 'port'?", or ""."""
    close = difflib.get_close_matches(word, words)
    quoted = " or ".join(f"'{match}'" for match in close)
    return f"; did you mean {quoted}?" if close else ""
