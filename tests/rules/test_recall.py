"""What is remembered is right, and bounded."""

from rules.recall import recalled

calls: list[str] = []


@recalled
def shouted(text: str) -> str:
    calls.append(text)
    return text.upper()


def test_an_answer_is_worked_out_once() -> None:
    calls.clear()
    assert [shouted("a/x"), shouted("a/x"), shouted("b/y")] == ["A/X", "A/X", "B/Y"]
    assert calls == ["a/x", "b/y"]


def test_long_texts_are_not_remembered() -> None:
    calls.clear()
    assert shouted("x" * 321) == shouted("x" * 321) == "X" * 321
    assert len(calls) == 2


def test_the_memory_is_bounded() -> None:
    for number in range(10_000):
        assert shouted(str(number)) == str(number)
    assert len(shouted.__self__) <= 2048  # type: ignore[attr-defined]
    assert shouted("9999") == "9999"
