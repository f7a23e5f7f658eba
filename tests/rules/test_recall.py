"""Answers are remembered, and memory stays small."""

from rules.recall import _MAX_LENGTH, _SIZE, recalled


class Counted:
    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, text: str) -> int:
        self.calls += 1
        return len(text)


def test_a_short_text_is_worked_out_once() -> None:
    counted = Counted()
    function = recalled(counted)
    assert [function("a"), function("a"), function("bc")] == [1, 1, 2]
    assert counted.calls == 2


def test_a_long_text_is_worked_out_each_time() -> None:
    counted = Counted()
    function = recalled(counted)
    for length in (_MAX_LENGTH, _MAX_LENGTH + 1):
        assert [function("a" * length) for _ in range(2)] == [length] * 2
    assert counted.calls == 3


def test_a_full_memory_begins_anew() -> None:
    counted = Counted()
    function = recalled(counted)
    for number in range(_SIZE + 1):
        function(str(number))
    assert function(str(_SIZE)) == len(str(_SIZE))
    assert counted.calls == _SIZE + 1
    function("0")
    assert counted.calls == _SIZE + 2
