"""The store: lists, watches and own writes tell the same story, whatever comes first."""

from typing import Any

import pytest

from cluster.key import Key
from cluster.store import Change, Entry, Index, Store, entry_of, version_of

KEY = Key("n", "a")


def entry(version: int, value: str = "", *, name: str = "a", uid: str = "1") -> Entry[str]:
    return Entry(Key("n", name), uid, version, value or str(version))


def store(*entries: Entry[str], version: int = 10) -> Store[str]:
    made: Store[str] = Store(value=Index(lambda entry: entry.value or None))
    made.replace(entries, version)
    return made


def test_a_list_tells_what_has_changed() -> None:
    known = store(entry(1), entry(2, name="b"), entry(3, name="c"))
    listed = [entry(1), entry(12, name="b"), entry(11, name="d")]
    changes = known.replace(listed, 12)
    assert changes == [
        Change(entry(3, name="c"), None),
        Change(entry(2, name="b"), entry(12, name="b")),
        Change(None, entry(11, name="d")),
    ]
    assert len(known) == 3


def test_a_namesake_is_another_object() -> None:
    known = store(entry(1))
    other = entry(12, uid="2")
    assert known.replace([other], 12) == [Change(entry(1), None), Change(None, other)]
    assert known.delete(KEY, "1", 13) == []  # word of the first one's end comes late
    assert known.get(KEY) == other


def test_an_own_write_is_known_before_the_watch_tells() -> None:
    known = store(entry(1))
    assert known.learn(entry(12)) == [Change(entry(1), entry(12))]
    assert known.put(entry(11)) == []  # somebody else's write before ours
    assert known.put(entry(12)) == []
    assert known.put(entry(13)) == [Change(entry(12), entry(13))]


def test_a_list_that_comes_late_takes_no_own_write_back() -> None:
    known = store(entry(1), entry(2, name="b"))
    known.learn(entry(14))
    known.learn(entry(15, name="c"))
    assert known.replace([entry(1)], 13) == [Change(entry(2, name="b"), None)]
    assert known.get(KEY) == entry(14)
    known.saw(20)  # the watch has told of both
    assert known.replace([], 21) == [Change(entry(14), None), Change(entry(15, name="c"), None)]


def test_an_answer_that_comes_late_is_no_news() -> None:
    known = store()
    known.put(entry(11))
    known.delete(KEY, "1", 13)
    assert known.learn(entry(12)) == []
    known.saw(20)
    assert known.learn(entry(20, name="b")) == []
    assert list(known) == []


def test_versions_that_are_no_numbers_are_never_compared() -> None:
    known = store(entry(1))
    assert version_of("v7") == -1
    assert known.learn(entry(-1, "x")) == []
    assert known.put(entry(-1, "y")) == [Change(entry(1), entry(-1, "y"))]


def test_indexes_follow() -> None:
    known = store(entry(1, "x"), entry(2, "x", name="b"))
    assert known.find("value", "x") == (entry(1, "x"), entry(2, "x", name="b"))
    known.put(entry(11, "y"))
    known.delete(Key("n", "b"), "1", 12)
    assert known.find("value", "x") == ()
    assert known.find("value", "y") == (entry(11, "y"),)


def test_an_index_has_an_order_and_thousands_of_entries() -> None:
    known: Store[str] = Store(all=Index(lambda _: 1, lambda e: (e.value, e.key)))
    for number in range(3000):
        known.put(entry(number, str(number % 7), name=f"n{number:04}"))
    assert [e.value for e in known.find("all", 1, most=500)] == ["0"] * 429 + ["1"] * 71
    known.put(entry(4000, "7", name="n0000"))
    assert known.find("all", 1, most=1) == (entry(7, "0", name="n0007"),)
    for number in range(3000):
        known.delete(Key("n", f"n{number:04}"), "1", 5000 + number)
    assert known.find("all", 1) == ()


def test_what_was_deleted_is_remembered_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cluster.store.MAX_DELETED", 2)
    known = store(entry(1, uid="1"), entry(2, uid="2", name="b"), entry(3, uid="3", name="c"))
    assert not known.was_deleted("1")
    known.delete(Key("n", "a"), "1", 4)  # by an event
    known.delete(Key("n", "x"), "never-known", 5)
    assert known.was_deleted("1")
    assert known.was_deleted("never-known")
    known.put(entry(6, uid="22", name="b"))  # by a namesake
    assert known.was_deleted("2")
    assert not known.was_deleted("1")
    known.replace([entry(6, uid="22", name="b")], 7)  # by a list without it
    assert known.was_deleted("3")
    assert not known.was_deleted("22")


def test_a_list_of_a_restored_cluster_counts() -> None:
    known = store(entry(100, "new"), entry(101, "later", uid="2", name="b"))
    known.saw(120)
    known.learn(entry(130, "own", uid="3", name="c"))
    changes = known.replace([entry(50, "old")], 60)
    assert {e.new.value if e.new else None for e in changes} == {None, "old"}
    assert list(known) == [entry(50, "old")]
    assert known.seen == 60
    assert known.learn(entry(61, "own again")) != []


def test_an_entry_is_made_from_metadata() -> None:
    document: Any = {
        "metadata": {"namespace": "n", "name": "a", "uid": "1", "resourceVersion": "5"}
    }
    assert entry_of(document, "5") == entry(5)
