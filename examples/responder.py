"""An example responder, to copy from: drains a pod by a command before the pod is evicted.

It watches Evictions. While its entry is Active it runs the command, shows life, and reports the
end. All that it has to remember stands in the Eviction, so that it may be killed at any time: its
successor begins the drain again, which must do no harm. See docs/responders.md.
"""

import argparse
import asyncio
import logging
import os
import shlex
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from typing import Any, Final

import aiohttp
from kubernetes_asyncio import client, config, watch

Document = dict[str, Any]

API: Final = ("lifecycle.k8s.io", "v1alpha1")
HEARTBEAT_SPACING: Final = timedelta(seconds=20)
"""Heartbeats should not come more often (API reference, ``heartbeatTime``)."""
ENDS: Final = {"TargetEvicted", "Failed"}
"""Conditions either of which, when True, ends an eviction."""
MAX_WORDS: Final = 1000
"""Bytes of the command's output in a message; the API takes 4000 characters for the whole."""
WATCH_SECONDS: Final = 240
REQUEST_SECONDS: Final = 30
STOP_SECONDS: Final = 10.0
"""How long the command may take to end after SIGTERM; less than the pod's grace period."""
FAILURES: Final = (client.ApiException, aiohttp.ClientError, OSError)
"""What a request to the API server may raise; a timeout is an OSError."""

_log = logging.getLogger("responder")


# --- what to say and when: decided from the Eviction and the time alone ---------------------------


def turn(eviction: Document, name: str) -> Document | None:
    """The entry of the responder ``name`` in ``status.responders``, if it has work to do."""
    status = eviction.get("status") or {}
    true = {each["type"] for each in status.get("conditions") or () if each["status"] == "True"}
    states = {each["name"]: each["state"] for each in status.get("targetResponders") or ()}
    if true & ENDS or states.get(name) != "Active":
        return None
    entries = (entry for entry in status.get("responders") or () if entry["name"] == name)
    entry: Document | None = next(entries, None)
    return entry if entry and "startTime" in entry and "completionTime" not in entry else None


def silent(entry: Document, message: str) -> Document:
    """A report without a sign of life."""
    # With all that we have said before, as an apply removes what it leaves out. Without startTime:
    # that one is the controller's.
    kept = {key: value for key, value in entry.items() if key in ("name", "heartbeatTime")}
    return kept | {"message": message}


def alive(entry: Document, message: str, expect: timedelta, now: datetime) -> Document:
    """The report that the drain goes on; no new heartbeat soon after the last one."""
    report = silent(entry, message)
    start = _parsed(entry["startTime"])
    present = max(now, start)  # the clock of who has set the start may be ahead
    last = entry.get("heartbeatTime")
    if last is None or present - _parsed(last) >= HEARTBEAT_SPACING:
        report["heartbeatTime"] = _printed(present)
    if start + expect > present:  # an estimate that has passed tells nobody anything
        report["expectedCompletionTime"] = _printed(start + expect)
    return report


def completed(entry: Document, message: str, now: datetime) -> Document:
    """The report that the next responder may go on."""
    present = max(now, _parsed(entry["startTime"]))
    return silent(entry, message) | {"completionTime": _printed(present)}


def time_left(entry: Document, patience: timedelta, now: datetime) -> timedelta:
    """For how long to try; counted from the start, so that no restart prolongs it."""
    return _parsed(entry["startTime"]) + patience - now


def pauses(longest: float) -> Iterator[float]:
    """Seconds between attempts: from 1, doubling, up to ``longest``."""
    pause = 1.0
    while True:
        yield pause
        pause = min(pause * 2, longest)


def _parsed(time: str) -> datetime:
    return datetime.fromisoformat(time)


def _printed(time: datetime) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ")


def _now() -> datetime:
    return datetime.now(UTC)  # noqa: TID251 - a client of the real world


# --- one eviction ---------------------------------------------------------------------------------


class Work:
    """What this responder does about one Eviction; cancelled when its turn is over."""

    def __init__(self, api: Any, settings: argparse.Namespace, eviction: Document) -> None:
        self._api = api
        self._settings = settings
        self._metadata: Document = eviction["metadata"]
        self._pod: Document = eviction["spec"]["target"]["pod"]
        self._words = "not begun"
        """How the drain goes, for people."""
        self._news = asyncio.Event()

    async def run(self, entry: Document) -> None:
        """Drain, and report the end of it."""
        settings = self._settings
        left = time_left(entry, settings.patience, _now())
        if left > timedelta() and await self._drains_within(left.total_seconds()):
            message, is_over = f"Drained: {self._words}", True
        else:
            message, is_over = f"Gave up: {self._words}", settings.hand_over
        _log.info("%s: %s", self._metadata["name"], message)
        await self._report(
            lambda own: completed(own, message, _now()) if is_over else silent(own, message)
        )

    async def _drains_within(self, seconds: float) -> bool:
        async with asyncio.TaskGroup() as group:
            heartbeats = group.create_task(self._show_life())
            try:
                async with asyncio.timeout(seconds):
                    await self._drain()
            except TimeoutError:
                return False
            finally:
                heartbeats.cancel()
        return True

    async def _show_life(self) -> None:
        settings = self._settings
        while True:
            self._news.clear()
            await self._report(lambda own: alive(own, self._words, settings.expect, _now()))
            with suppress(TimeoutError):
                async with asyncio.timeout(settings.heartbeat.total_seconds()):
                    await self._news.wait()

    async def _drain(self) -> None:
        """Run the command until it succeeds."""
        self._words = "begun"
        for attempt, pause in enumerate(pauses(longest=60), start=1):
            status, output = await self._run_command()
            if status == 0:
                self._words = output or "done"
                return
            self._words = f"attempt {attempt} ended with status {status}. {output}"
            self._news.set()
            _log.warning("%s: %s", self._metadata["name"], self._words)
            await asyncio.sleep(pause)

    async def _run_command(self) -> tuple[int, str]:
        """Status and last words of the command; how far it has got is told all the while."""
        pod = {"POD_NAME": self._pod["name"], "POD_UID": self._pod["uid"]}
        process = await asyncio.create_subprocess_exec(
            *self._settings.drain,
            env={**os.environ, **pod, "POD_NAMESPACE": self._metadata["namespace"]},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,  # so that its children can be stopped with it
        )
        try:
            output, words = b"", ""
            while process.stdout and (chunk := await process.stdout.read(MAX_WORDS)):
                output = (output + chunk)[-MAX_WORDS:]
                words = output.decode(errors="replace").strip()
                self._words = words or self._words
            return await process.wait(), words
        finally:
            if process.returncode is None:
                await _stop(process)

    async def _report(self, make: Callable[[Document], Document]) -> None:
        """Apply what ``make`` makes of our entry, until it is taken or nobody waits for it."""
        for pause in pauses(longest=30):
            try:
                await self._report_once(make)
            except FAILURES as error:
                if isinstance(error, client.ApiException) and error.status == HTTPStatus.NOT_FOUND:
                    return
                _log.warning("%s: not reported: %s", self._metadata["name"], _reason(error))
                await asyncio.sleep(pause)
            else:
                return

    async def _report_once(self, make: Callable[[Document], Document]) -> None:
        namespace, name = self._metadata["namespace"], self._metadata["name"]
        path = (*API, namespace, "evictions", name)
        # Read anew each time: what was refused may be so because it is no longer our turn.
        found = await self._api.get_namespaced_custom_object(
            *path, _request_timeout=REQUEST_SECONDS
        )
        entry = turn(found, self._settings.name)
        if entry is None or found["metadata"]["uid"] != self._metadata["uid"]:
            return
        # With the version that was read: if it has changed meanwhile, this is a conflict.
        version = found["metadata"]["resourceVersion"]
        await self._api.patch_namespaced_custom_object_status(
            *path,
            body={
                "apiVersion": "/".join(API),
                "kind": "Eviction",
                "metadata": {"name": name, "namespace": namespace, "resourceVersion": version},
                "status": {"responders": [make(entry)]},
            },
            field_manager=self._settings.name[-128:],  # of our own: see docs/responders.md
            force=True,
            _content_type="application/apply-patch+yaml",
            _request_timeout=REQUEST_SECONDS,
        )


async def _stop(process: asyncio.subprocess.Process) -> None:
    """End the command and its children, gently at first."""
    try:
        with suppress(ProcessLookupError, TimeoutError):
            os.killpg(process.pid, signal.SIGTERM)
            async with asyncio.timeout(STOP_SECONDS):
                await process.wait()
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()


def _reason(error: Exception) -> str:
    """What the API server said, where it said anything."""
    return getattr(error, "body", None) or repr(error)


# --- all evictions --------------------------------------------------------------------------------


class Responder:
    """Follows all Evictions that concern this responder, and works on those whose turn it is."""

    def __init__(self, api: Any, settings: argparse.Namespace, group: asyncio.TaskGroup) -> None:
        self._api = api
        self._settings = settings
        self._group = group
        self._work: dict[str, asyncio.Task[None]] = {}
        """By the Eviction's UID, as long as it is our turn: what is done is not begun again."""

    async def run(self) -> None:
        """Never returns: whatever fails is tried again."""
        attempts = pauses(longest=30)
        while True:
            try:
                await self._follow()
                attempts = pauses(longest=30)
            except FAILURES as error:  # 410 as well: each list starts from the present
                _log.warning("the Evictions can't be watched: %s", _reason(error))
                await asyncio.sleep(next(attempts))

    async def _follow(self) -> None:
        """List, then watch until the API server ends the watch."""
        read = self._api.list_namespaced_custom_object
        where = (*API, self._settings.namespace, "evictions")
        # An Eviction has the names of its responders as labels.
        selector = self._settings.name
        found = await read(*where, label_selector=selector, _request_timeout=REQUEST_SECONDS)
        for uid in self._work.keys() - {each["metadata"]["uid"] for each in found["items"]}:
            self._leave(uid)
        for eviction in found["items"]:
            self._look(eviction)
        async with watch.Watch() as events:
            async for event in events.stream(
                read,
                *where,
                label_selector=selector,
                resource_version=found["metadata"]["resourceVersion"],
                timeout_seconds=WATCH_SECONDS,
                _request_timeout=WATCH_SECONDS + REQUEST_SECONDS,
            ):
                if event["type"] == "DELETED":
                    self._leave(event["object"]["metadata"]["uid"])
                else:
                    self._look(event["object"])

    def _look(self, eviction: Document) -> None:
        uid = eviction["metadata"]["uid"]
        entry = turn(eviction, self._settings.name)
        if entry is None:
            self._leave(uid)
        elif uid not in self._work:
            _log.info("%s: our turn", eviction["metadata"]["name"])
            work = Work(self._api, self._settings, eviction)
            self._work[uid] = self._group.create_task(work.run(entry))

    def _leave(self, uid: str) -> None:
        """Completed, passed over, canceled, or the pod is gone: stop what is under way."""
        if uid in self._work:
            self._work.pop(uid).cancel()


async def respond(settings: argparse.Namespace) -> None:
    """Run until SIGTERM or SIGINT; commands under way are stopped."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, task.cancel if task else loop.stop)
    if settings.kubeconfig:
        await config.load_kube_config(settings.kubeconfig)
    else:
        config.load_incluster_config()  # type: ignore[no-untyped-call]
    with suppress(asyncio.CancelledError):
        async with client.ApiClient() as connection, asyncio.TaskGroup() as group:
            await Responder(client.CustomObjectsApi(connection), settings, group).run()


def _settings() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Drain pods by a command before they are evicted.",
        epilog="Example: responder.py --name db.acme.io/failover --drain './failover.sh --fast'",
    )
    add = parser.add_argument
    add("--name", required=True, help="the responder to be")
    add("--namespace", default="default", help="where to respond (default: %(default)s)")
    add("--kubeconfig", help="default: the service account of the pod")
    add(
        "--drain",
        type=shlex.split,
        default="sleep 30",
        metavar="COMMAND",
        help="finds POD_NAME, POD_UID and POD_NAMESPACE in its environment; what it prints is "
        "reported; status 0 means drained (default: %(default)s)",
    )
    for flag, default, what in (
        ("--expect", "60", "that a drain takes as a rule"),
        ("--heartbeat", "60", "between two signs of life, at least 20"),
        ("--patience", "3600", "after which a drain without success is given up"),
    ):
        text = f"seconds {what} (default: %(default)s)"
        add(flag, type=_seconds, default=default, metavar="SECONDS", help=text)
    add(
        "--hand-over",
        action="store_true",
        help="report completion after giving up, so that the next responder goes on at once "
        "instead of after 20 minutes of silence",
    )
    settings = parser.parse_args()
    if settings.heartbeat < HEARTBEAT_SPACING:
        parser.error("argument --heartbeat: must be at least 20")
    if not settings.drain or shutil.which(settings.drain[0]) is None:
        parser.error("argument --drain: there is no such command")
    return settings


def _seconds(text: str) -> timedelta:
    return timedelta(seconds=float(text))


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    try:
        asyncio.run(respond(_settings()))
    except config.ConfigException as problem:
        sys.exit(f"no usable configuration: {problem}")
