"""``usher plan``: what the controller would write, from recorded snapshots."""

import sys
from collections.abc import Iterable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import click
import msgspec

from cli.exits import BAD_INPUT, CLEAN, InputError
from cli.manifests.sources import STANDARD_INPUT
from cli.options import CONTEXT_SETTINGS, common_options
from cli.progress import track
from cli.recordings import Line, read_lines
from cluster.key import Key
from controller.eviction.plan import Sync, plan
from controller.eviction.planning.snapshot import Snapshot
from controller.eviction.planning.writes import Plan, Write
from rules.api import Time
from rules.decode import DecodeError, decode_model
from rules.texts import printable

_EPILOG: Final = """\b
Examples:
  usher plan snapshots.jsonl > plans.jsonl
  usher plan - < snapshots.jsonl

\b
A snapshot:
  {"now": "2026-07-01T12:00:00Z", "sync": "request", "key": "default/drain-db-0",
   "pods": [...], "evictions": [...], "evictionRequests": [...]}

The sync "eviction" plans the status of an Eviction, "request" that of an EvictionRequest and the
Eviction that it needs, "metadata" the labels and owner references of an Eviction.

A line that cannot be planned gets the line {"file": FILE, "line": NUMBER, "error": TEXT} in its
place, and the others are planned all the same.

Exit codes: 0 planned, 2 bad usage or a bad line, 3 internal failure.
"""


@click.command(name="plan", context_settings=CONTEXT_SETTINGS, epilog=_EPILOG)
@click.argument("file", metavar="FILE|-")
@common_options
@click.pass_context
def command(ctx: click.Context, /, file: str, **_: Any) -> None:
    """Print what the controller would write.

    Each line of FILE is a snapshot: an instant, the object to look at, and all that the controller
    can see. Prints one line for each, in order: {"writes": [{"resource", "subresource", "name",
    "apply"}], "requeueAfterSeconds"}. A write is a server-side apply document.
    """
    lines: Iterable[Line] = _lines(file)
    if not sys.stdout.isatty():  # else the plans themselves show the progress
        lines = track(lines, "Planning")
    planned = bad = 0
    for line in lines:
        try:
            content = _answer(line)
            planned += 1
        except DecodeError as error:
            bad += 1
            click.echo(f"{line}: {printable(str(error))}", err=True)
            content = {"file": line.file, "line": line.number, "error": str(error)}
        # Line by line, so that a pipeline sees each plan at once.
        sys.stdout.buffer.write(msgspec.json.encode(content) + b"\n")
        sys.stdout.buffer.flush()
    unread = f"; {bad} lines could not be read" if bad else ""
    click.echo(f"{planned} planned{unread}", err=True)
    ctx.exit(BAD_INPUT if bad else CLEAN)


class _Question(Snapshot):
    """A line of the input."""

    now: Time | None = None
    sync: str = ""
    key: str = ""


def _lines(path: str) -> Iterator[Line]:
    if path == STANDARD_INPUT:
        yield from read_lines("<stdin>", sys.stdin.buffer)
        return
    try:
        with Path(path).open("rb") as file:
            yield from read_lines(path, file)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from None


def _answer(line: Line) -> dict[str, Any]:
    """The plan for a line, as it is printed. Raises DecodeError."""
    question = decode_model(_Question, line.load())
    if question.now is None:
        raise DecodeError("now: must be the instant to plan at")
    if question.sync not in tuple(Sync):
        raise DecodeError(f"sync: must be one of {', '.join(Sync)}")
    try:
        key = Key.parse(question.key)
    except ValueError as error:
        raise DecodeError(f"key: {error}") from None
    return _printed(plan(Sync(question.sync), key, question, question.now))


def _printed(planned: Plan) -> dict[str, Any]:
    content: dict[str, Any] = {"writes": [_write(write) for write in planned.writes]}
    if planned.requeue_after is not None:
        content["requeueAfterSeconds"] = _seconds(planned.requeue_after)
    return content


def _write(write: Write) -> dict[str, Any]:
    subresource = {"subresource": write.subresource} if write.subresource else {}
    return {
        "resource": write.resource,
        **subresource,
        "name": write.key.name,
        "apply": write.apply,
    }


def _seconds(span: timedelta) -> float:
    seconds = span.total_seconds()
    return int(seconds) if seconds.is_integer() else seconds
