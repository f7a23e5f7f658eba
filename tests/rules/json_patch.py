"""JSON Patch as RFC 6902 has it, strictly: what does not apply is an error.

Written from the RFC and apart from ``rules.patch``, to check that one.
"""

import copy
import json
from typing import Any


class PatchError(Exception):
    """The patch does not apply."""


def apply_patch(document: Any, patch: bytes) -> Any:
    """Return a copy of ``document`` with all steps of ``patch`` taken."""
    result = copy.deepcopy(document)
    for step in json.loads(patch):
        parent, last = _parent(result, _tokens(step["path"]))
        value = copy.deepcopy(step.get("value"))
        match step["op"], parent:
            case "add", dict():
                parent[last] = value
            case "add", list():
                parent.insert(len(parent) if last == "-" else _index(last, len(parent)), value)
            case (("replace" | "remove"), dict()) if last not in parent:
                raise PatchError(f"nothing at {step['path']}")
            case "replace", dict():
                parent[last] = value
            case "remove", dict():
                del parent[last]
            case _:
                raise PatchError(f"unlawful step {step}")
    return result


def _tokens(pointer: str) -> list[str]:
    if not pointer.startswith("/"):
        raise PatchError(f"no pointer to a member: {pointer!r}")
    return [token.replace("~1", "/").replace("~0", "~") for token in pointer[1:].split("/")]


def _parent(document: Any, tokens: list[str]) -> tuple[Any, str]:
    *way, last = tokens
    for token in way:
        try:
            document = (
                document[_index(token, len(document))]
                if isinstance(document, list)
                else document[token]
            )
        except (KeyError, TypeError):
            raise PatchError(f"no parent at {token!r}") from None
    return document, last


def _index(token: str, size: int) -> int:
    if not token.isdecimal() or int(token) > size:
        raise PatchError(f"no index {token!r}")
    return int(token)
