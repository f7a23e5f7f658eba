"""``usher plan``: every line is answered, in its place."""

import gzip
import json
from pathlib import Path
from typing import Any, Final

import pytest

from cli.recordings import MAX_LINE
from tests.cli.conftest import NOW, Run, Usher
from tests.controller import objects
from tests.vectors.plans import PLANS, as_want, plan_of, plan_vectors

TARGET: Final = objects.target_of(objects.pod("db-0", 1))


def _line(name: str = "drain", **changes: Any) -> str:
    request = objects.request(name, TARGET, 3, NOW, "ops.acme.io/drain", "Eviction")
    question = {
        "now": NOW,
        "sync": "request",
        "key": f"default/{name}",
        "pods": [objects.pod("db-0", 1)],
        "evictions": [],
        "evictionRequests": [request],
    }
    return json.dumps(question | changes)


def _answers(run: Run) -> list[Any]:
    return [json.loads(line) for line in run.stdout.splitlines()]


@pytest.mark.slow
def test_all_vectors_in_one_go(usher: Usher) -> None:
    run = usher("plan", "-", stdin=gzip.decompress(PLANS.read_bytes()))
    assert run.exit_code == 0
    assert run.stderr == "1500 planned\n"
    answers = _answers(run)
    assert answers == [as_want(plan_of(vector)) for vector in plan_vectors()]
    assert {type(answer.get("requeueAfterSeconds", 0)) for answer in answers} == {int}


def test_the_form_of_an_answer(usher: Usher) -> None:
    Path("snapshots.jsonl").write_text(_line() + "\n", encoding="utf-8")
    run = usher("plan", "snapshots.jsonl")
    assert run.exit_code == 0
    (answer,) = _answers(run)
    assert list(answer) == ["writes"]
    creation, status = answer["writes"]
    assert list(creation) == ["resource", "name", "apply"]
    assert list(status) == ["resource", "subresource", "name", "apply"]
    assert (creation["resource"], creation["name"]) == ("evictions", "pod-1-db-0")
    assert (status["resource"], status["subresource"]) == ("evictionrequests", "status")
    assert list(creation["apply"]) == ["apiVersion", "kind", "metadata", "spec"]


def test_when_to_look_again(usher: Usher) -> None:
    (answer,) = _answers(usher("plan", "-", stdin=_line(pods=[])))
    assert answer["requeueAfterSeconds"] == 3


def test_nulls_and_absent_lists_are_empty_lists(usher: Usher) -> None:
    absent = json.dumps({"now": NOW, "sync": "eviction", "key": "default/pod-1-db-0"})
    lines = f"{_line(evictions=None)}\n\n{absent}\n"
    run = usher("plan", "-", stdin=lines)
    assert run.exit_code == 0
    first, second = _answers(run)
    assert len(first["writes"]) == 2
    assert second == {"writes": []}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "must be valid JSON"),
        ("[]", "must be an object"),
        ('{"a": 1, "a": 2}', "uplicate key"),
        (_line(now=None), "now: must be the instant to plan at"),
        (_line(now="yesterday"), "now: must be an RFC 3339 time"),
        (_line(sync=None), "sync: must be one of eviction, request, metadata"),
        (_line(sync="status"), "sync: must be one of eviction, request, metadata"),
        (_line(key="drain"), "key: must be <namespace>/<name>"),
        (_line(key=5), "key: must be a string"),
        (_line(pods={}), "pods: must be a list"),
        (_line(evictions=[{"spec": {"target": 5}}]), "evictions[0].spec.target: must be an object"),
        ('{"' + "a" * MAX_LINE + '": 1}', "may not be longer than 8 MiB"),
    ],
    ids=lambda value: value[:30],
)
def test_a_bad_line_is_told_about_and_the_others_are_planned(
    usher: Usher, line: str, message: str
) -> None:
    run = usher("plan", "-", stdin=f"{_line('a')}\n{line}\n{_line('b')}")
    assert run.exit_code == 2
    first, bad, last = _answers(run)
    assert [answer["writes"][1]["name"] for answer in (first, last)] == ["a", "b"]
    assert list(bad) == ["file", "line", "error"]
    assert (bad["file"], bad["line"]) == ("<stdin>", 2)
    assert message in bad["error"]
    told, summary = run.stderr.splitlines()
    assert told.startswith("<stdin>:2: ")
    assert message in told
    assert summary == "2 planned; 1 lines could not be read"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "Missing argument 'FILE|-'"),
        (["missing.jsonl"], "missing.jsonl: No such file or directory"),
        (["."], ".: Is a directory"),
        (["a", "b"], "unexpected extra argument"),
    ],
)
def test_bad_usage(usher: Usher, arguments: list[str], message: str) -> None:
    run = usher("plan", *arguments)
    assert run.exit_code == 2
    assert message in run.stderr


def test_help_has_an_example(usher: Usher) -> None:
    run = usher("plan", "--help")
    assert run.exit_code == 0
    assert "\n    usher plan snapshots.jsonl" in run.stdout
