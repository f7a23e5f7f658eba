"""What the example responder does when requests fail, without a cluster."""

import argparse
import asyncio
import runpy
import shlex
import sys
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from http import HTTPStatus
from itertools import repeat
from pathlib import Path
from typing import Any, Final, Self

import pytest
from kubernetes_asyncio import client

from examples import responder
from tests.e2e.times import ago
from tests.examples.responding import NAME, PROGRAM
from tests.examples.test_responder import Document, eviction

UID: Final = "11111111-2222-4333-8444-555555555555"


def stored(**changes: Any) -> Document:
    """An Eviction as the API server has it."""
    found = eviction(startTime=ago(seconds=5), **changes)
    found["metadata"] |= {"uid": UID, "resourceVersion": "7"}
    return found


def settings(drain: str = "true", **changes: Any) -> argparse.Namespace:
    spans = {"expect": 60, "heartbeat": 60, "patience": 600} | changes
    return argparse.Namespace(
        name=NAME,
        namespace="db",
        drain=shlex.split(drain),
        hand_over=False,
        **{name: timedelta(seconds=seconds) for name, seconds in spans.items()},
    )


class Api:
    """An API server of one Eviction; ``failures`` are what the next requests come to."""

    def __init__(self, found: Document, *failures: Exception | None) -> None:
        self.found = found
        self.failures = list(failures)
        self.reports: list[Document] = []
        self.reads = 0

    def _fail(self) -> None:
        failure = self.failures.pop(0) if self.failures else None
        if failure is not None:
            raise failure

    async def get_namespaced_custom_object(self, *_: str, **__: Any) -> Document:
        self._fail()
        self.reads += 1
        return self.found

    async def patch_namespaced_custom_object_status(
        self, *_: str, body: Document, **__: Any
    ) -> None:
        self._fail()
        (report,) = body["status"]["responders"]
        assert body["metadata"]["resourceVersion"] == self.found["metadata"]["resourceVersion"]
        self.reports.append(report)


def failure(status: HTTPStatus) -> Exception:
    return client.ApiException(status=status, reason=status.phrase)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """No pause between attempts."""

    def pauses(longest: float) -> Iterator[float]:
        return repeat(0.0)

    monkeypatch.setattr(responder, "pauses", pauses)


async def work(api: Api, settings: argparse.Namespace) -> None:
    """Work on the stored Eviction, and wait for the end."""
    entry = responder.turn(api.found, NAME)
    assert entry is not None
    await responder.Work(api, settings, stored()).run(entry)


@pytest.mark.parametrize(
    "problem",
    [
        failure(HTTPStatus.CONFLICT),
        failure(HTTPStatus.TOO_MANY_REQUESTS),
        failure(HTTPStatus.INTERNAL_SERVER_ERROR),
        failure(HTTPStatus.UNPROCESSABLE_ENTITY),
        TimeoutError(),
        ConnectionResetError(),
    ],
    ids=repr,
)
async def test_a_report_that_fails_is_made_again_from_a_new_reading(problem: Exception) -> None:
    api = Api(stored(), None, problem, problem, problem)
    await work(api, settings("echo failed over", heartbeat=3600))
    assert api.reports[-1]["message"] == "Drained: failed over"
    assert "completionTime" in api.reports[-1]
    assert api.reads > len(api.reports)


async def test_nothing_is_reported_of_an_eviction_that_is_gone() -> None:
    api = Api(stored(), *repeat(failure(HTTPStatus.NOT_FOUND), 10))
    await work(api, settings())
    assert api.reports == []


async def test_nothing_is_reported_of_a_namesake() -> None:
    api = Api(stored())
    api.found["metadata"]["uid"] = "99999999-2222-4333-8444-555555555555"
    await work(api, settings())
    assert api.reports == []


async def test_nothing_is_reported_after_our_turn() -> None:
    api = Api(stored())
    task = asyncio.create_task(work(api, settings()))
    await asyncio.sleep(0)
    api.found = stored(state="Interrupted")
    await task
    assert [report for report in api.reports if "completionTime" in report] == []


async def test_too_late_is_told_and_nothing_is_run() -> None:
    api = Api(stored())
    await work(api, settings("false", patience=0))
    (report,) = api.reports
    assert report == {"name": NAME, "message": "Gave up: not begun"}


async def test_a_command_that_does_not_stop_is_killed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(responder, "STOP_SECONDS", 0.2)
    api = Api(stored())
    begun = tmp_path / "begun"
    deaf = f"sh -c \"trap '' TERM; touch {begun}; while :; do sleep 0.1; done\""
    task = asyncio.create_task(work(api, settings(deaf)))
    while not begun.exists():  # noqa: ASYNC110 - a file has no event
        await asyncio.sleep(0.01)
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    assert task.cancelled()
    assert [report for report in api.reports if report["message"].startswith("Gave up")] == []


class OldWatch:
    """What the API server does not remember."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    def stream(self, *_: Any, **__: Any) -> Self:
        return self

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Document:
        raise failure(HTTPStatus.GONE)


class Listed(Api):
    """An API server that is asked for lists, twice."""

    lists = 0

    async def list_namespaced_custom_object(self, *_: str, **__: Any) -> Document:
        self.lists += 1
        if self.lists > 2:
            raise asyncio.CancelledError
        return {"metadata": {"resourceVersion": "7"}, "items": []}


async def test_a_watch_that_is_too_old_begins_with_a_list(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(responder.watch, "Watch", OldWatch)
    api = Listed(stored())
    with suppress(asyncio.CancelledError):
        async with asyncio.TaskGroup() as group:
            await responder.Responder(api, settings(), group).run()
    assert api.lists == 3


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--heartbeat", "5"], "--heartbeat: must be at least 20"),
        (["--drain", "no-such-command"], "--drain: there is no such command"),
        (["--drain", ""], "--drain: there is no such command"),
        (["--patience", "long"], "--patience: invalid"),
        (["--kubeconfig", "missing"], "no usable configuration"),
    ],
)
def test_bad_usage(
    flags: list[str],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "argv", ["responder.py", "--name", NAME, *flags])
    with pytest.raises(SystemExit) as end:
        runpy.run_path(str(PROGRAM), run_name="__main__")
    assert end.value.code not in (None, 0)
    assert message in f"{end.value.code} {capsys.readouterr().err}"


def test_help_has_an_example(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["responder.py", "--help"])
    with pytest.raises(SystemExit):
        runpy.run_path(str(PROGRAM), run_name="__main__")
    assert "Example: responder.py --name db.acme.io/failover" in capsys.readouterr().out
