"""Expected values are what sigs.k8s.io/yaml 1.6.0 answers (YAMLToJSON), collected once."""

import pytest

from cli.manifests.scalars import resolve


@pytest.mark.parametrize("word", ["y", "Y", "yes", "Yes", "YES", "true", "True", "on", "On", "ON"])
def test_yaml_1_1_words_are_true(word: str) -> None:
    assert resolve(word) is True


@pytest.mark.parametrize("word", ["n", "N", "no", "No", "NO", "false", "FALSE", "off", "OFF"])
def test_yaml_1_1_words_are_false(word: str) -> None:
    assert resolve(word) is False


@pytest.mark.parametrize("word", ["", "~", "null", "Null", "NULL"])
def test_nulls(word: str) -> None:
    assert resolve(word) is None


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0),
        ("010", 8),
        ("08", 8),
        ("0o17", 15),
        ("0O17", 15),
        ("0x1F", 31),
        ("-0b11", -3),
        ("1_000", 1000),
        ("+5", 5),
        ("-0", 0),
        ("1.0", 1),
        ("1e3", 1000),
        ("1e20", 100_000_000_000_000_000_000),
        ("9223372036854775807", 2**63 - 1),
        ("18446744073709551615", 2**64 - 1),
    ],
)
def test_integers(text: str, value: int) -> None:
    assert resolve(text) == value
    assert type(resolve(text)) is int


@pytest.mark.parametrize(("text", "value"), [("1.5", 1.5), ("-.5", -0.5), ("1e21", 1e21)])
def test_floats(text: str, value: float) -> None:
    assert resolve(text) == value
    assert type(resolve(text)) is float


@pytest.mark.parametrize(
    "text",
    [
        "2026-07-01T12:00:00Z",
        "2026-07-01",
        "12:30",
        "190:20:30",
        "--5",
        "1e400",
        "+.nan",
        "nUll",
        "<<",
        "=",
        "0x",
        "1,000",
        "9" * 5000,
    ],
)
def test_everything_else_is_text(text: str) -> None:
    assert resolve(text) == text


@pytest.mark.parametrize("text", [".nan", ".NaN", ".inf", "-.Inf", "+.INF"])
def test_what_json_cannot_say_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no JSON number"):
        resolve(text)
