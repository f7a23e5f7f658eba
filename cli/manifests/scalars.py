"""What a plain YAML scalar means to kubectl.

kubectl and API servers read YAML with ``sigs.k8s.io/yaml``: YAML 1.1 words for booleans, Go's
notation for integers, no base 60, and dates that stay text. The result passes through JSON, where
a float without a fraction is an integer. Source: ``go.yaml.in/yaml/v2`` resolve.go, and
``encoding/json``.
"""

import math
import re
from typing import Final

Scalar = str | int | float | bool | None

_WORDS: Final[dict[str, bool | None]] = {
    **dict.fromkeys(
        ("y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"), True
    ),
    **dict.fromkeys(
        ("n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"), False
    ),
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
}
_NO_NUMBERS: Final = frozenset(
    [
        *(".nan", ".NaN", ".NAN"),
        *(f"{sign}.{word}" for sign in ("", "+", "-") for word in ("inf", "Inf", "INF")),
    ]
)

_integer = re.compile(
    r"([+-]?)(?:0[xX]([0-9a-fA-F]+)|0[bB]([01]+)|0[oO]?([0-7]+)|(0|[1-9][0-9]*))"
).fullmatch
_BASES: Final = (16, 2, 8, 10)
_float = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?").fullmatch
_MAX_DIGITS: Final = 70
"""More than any 64-bit integer has in base 2; longer ones are floats or text."""
_INT64: Final = range(-(2**63), 2**63)
_UINT64: Final = range(2**64)
_PLAIN_FLOAT_END: Final = 1e21
"""From here on JSON writes floats with an exponent, so that they are no integers any more."""


def resolve(text: str) -> Scalar:
    """The JSON value of the plain scalar ``text``.

    Raises ValueError for infinities and NaN, which JSON does not have.
    """
    if text in _WORDS:
        return _WORDS[text]
    if text in _NO_NUMBERS:
        raise ValueError(f"{text} is no JSON number; put it in quotes if it is a text")
    if text[0] not in "+-.0123456789":
        return text
    plain = text.replace("_", "")
    number: int | float | None = _integer_of(plain)
    if number is None and _float(plain) is not None:
        number = float(plain)
    if isinstance(number, float):
        if math.isinf(number):
            return text
        if number.is_integer() and abs(number) < _PLAIN_FLOAT_END:
            return int(number)
    return text if number is None else number


def _integer_of(plain: str) -> int | None:
    found = _integer(plain) if len(plain) <= _MAX_DIGITS else None
    if found is None:
        return None
    sign = found.group(1)
    value = next(
        int(digits, base)
        for digits, base in zip(found.groups()[1:], _BASES, strict=True)
        if digits is not None
    )
    signed = -value if sign == "-" else value
    return signed if signed in _INT64 or (not sign and signed in _UINT64) else None
