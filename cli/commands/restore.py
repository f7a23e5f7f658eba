"""``usher restore``: what ``usher export`` has saved, as far as it still matters."""

import asyncio
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, NamedTuple

import click

from cli.commands.export import explained
from cli.exits import CLEAN, VIOLATIONS, ClusterError, InputError
from cli.manifests.sources import STANDARD_INPUT
from cli.options import CONTEXT_SETTINGS, common_options
from cli.progress import track
from cli.recordings import Line, read_lines
from cluster.client import Cluster, Document
from cluster.configuration import ConfigurationError
from cluster.failures import ClusterFailure, Conflict, Denied, Missing, Refused
from cluster.key import Key
from cluster.resources import EVICTION_REQUESTS
from controller.eviction.planning.restoration import Restoration, plan_restoration, read_exported
from rules.decode import DecodeError
from rules.texts import printable

_EPILOG: Final = """\b
Examples:
  usher restore evictions.jsonl --dry-run --kubeconfig ~/.kube/config
  usher restore evictions.jsonl --kubeconfig ~/.kube/config

\b
JSON: one line an object: {"line", "kind", "namespace", "name", "outcome", "reason"}. Outcomes:
  created   it was made (with --dry-run: it would be)
  exists    it is there already, for the same target and requester
  leftOut   it need not or can't be made; the reason says why
  differs   one with another target or requester has its name
  refused   the cluster does not admit it

Exit codes: 0 everything that matters is there, 1 something differs or was refused, 2 bad usage or a
bad line (nothing is made then), 3 the cluster does not answer: run it again.
"""


class Outcome(StrEnum):
    """What has become of an object."""

    CREATED = "created"
    EXISTS = "exists"
    LEFT_OUT = "leftOut"
    DIFFERS = "differs"
    REFUSED = "refused"


_WORDS: Final = {
    Outcome.CREATED: "created",
    Outcome.EXISTS: "exists",
    Outcome.LEFT_OUT: "left out",
    Outcome.DIFFERS: "differs",
    Outcome.REFUSED: "refused",
}
_BAD: Final = {Outcome.DIFFERS, Outcome.REFUSED}


class _Item(NamedTuple):
    line: int
    restoration: Restoration


_Report = Callable[[_Item, Outcome, str], None]


@click.command(name="restore", context_settings=CONTEXT_SETTINGS, epilog=_EPILOG)
@click.argument("file", metavar="FILE|-")
@click.option(
    "--kubeconfig",
    type=click.Path(dir_okay=False, path_type=Path),
    help="How to reach the API server, and as whom.  [default: the pod's service account]",
)
@click.option(
    "--dry-run",
    is_flag=True,
    help="Let the API server judge everything, and store nothing.",
)
@click.option(
    "-o", "--output", type=click.Choice(["text", "json"]), default="text", help="How to report."
)
@common_options
def command(*, file: str, kubeconfig: Path | None, dry_run: bool, output: str, **_: Any) -> int:
    """Make the EvictionRequests of FILE again, which 'usher export' has written.

    They keep requester, intent, target UID, labels and annotations. Those that have ended are left
    out, and so are Evictions: the controller makes new ones, and their responders begin again. May
    be repeated: what is there already stays as it is. See docs/modes.md.
    """
    counts: Counter[Outcome] = Counter()
    show = _as_json if output == "json" else _as_text

    def report(item: _Item, outcome: Outcome, reason: str) -> None:
        counts[outcome] += 1
        click.echo(show(item, outcome, printable(reason)))

    items = _read(file)
    try:
        asyncio.run(_restore(kubeconfig, items, report, dry_run=dry_run))
    except ConfigurationError as error:
        raise InputError(f"{error}. Outside of a cluster give --kubeconfig.") from None
    finally:
        told = ", ".join(f"{counts[outcome]} {words}" for outcome, words in _WORDS.items())
        click.echo(f"{told}{' (dry run)' if dry_run else ''}", err=True)
    return VIOLATIONS if any(counts[outcome] for outcome in _BAD) else CLEAN


# --- reading ------------------------------------------------------------------------------------


def _read(file: str) -> list[_Item]:
    """All of the file, so that nothing is made of one that is damaged. Raises InputError."""
    lines, documents, bad = [], [], []
    for line in _lines(file):
        try:
            document = line.load()
            read_exported(document)
        except DecodeError as error:
            bad.append(f"{line}: {error}")
        else:
            lines.append(line.number)
            documents.append(document)
    if bad:
        raise InputError(
            printable("\n".join(["nothing is restored, for these lines can't be read:", *bad]))
        )
    return [_Item(*pair) for pair in zip(lines, plan_restoration(documents), strict=True)]


def _lines(file: str) -> Iterator[Line]:
    if file == STANDARD_INPUT:
        yield from read_lines("<stdin>", sys.stdin.buffer)
        return
    try:
        with Path(file).open("rb") as opened:
            yield from read_lines(file, opened)
    except OSError as error:
        raise InputError(f"{file}: {error.strerror}") from None


# --- writing ------------------------------------------------------------------------------------


async def _restore(
    kubeconfig: Path | None, items: Sequence[_Item], report: _Report, *, dry_run: bool
) -> None:
    followed: Iterable[_Item] = items
    if not sys.stdout.isatty():  # else the report itself shows the progress
        followed = track(items, "Restoring")
    async with Cluster(kubeconfig, "usher-restore") as cluster:
        await _check(cluster)
        for item in followed:
            kind, key, document, reason = item.restoration
            if document is None:
                report(item, Outcome.LEFT_OUT, reason)
                continue
            try:
                outcome, reason = await _create(cluster, key, document, dry_run=dry_run)
            except ClusterFailure as failure:
                place = f"line {item.line}, {kind} {'/'.join(key)}"
                hint = "What was made stays; the command may be run again."
                raise ClusterError(f"{place}: {explained(failure)} {hint}") from None
            report(item, outcome, reason)


async def _check(cluster: Cluster) -> None:
    """Raise ClusterError where the API is not served: else every line would be refused."""
    try:
        async with aclosing(cluster.pages(EVICTION_REQUESTS)) as pages:
            await anext(pages)
    except ClusterFailure as failure:
        raise ClusterError(explained(failure)) from None


async def _create(
    cluster: Cluster, key: Key, document: Mapping[str, Any], *, dry_run: bool
) -> tuple[Outcome, str]:
    """Create an object, or say why not. Raises ClusterFailure where running again may help."""
    try:
        await cluster.create(EVICTION_REQUESTS, key.namespace, dict(document), dry_run=dry_run)
    except (Conflict, Refused, Missing, Denied) as failure:
        if isinstance(failure, Denied) and not failure.is_terminating:
            raise
        # Admission comes first, and may refuse what is there already: its pod may be gone.
        stored = await _find(cluster, key)
        if stored is not None:
            return _compared(stored["spec"], document["spec"])
        return Outcome.REFUSED, str(failure)
    return Outcome.CREATED, ""


async def _find(cluster: Cluster, key: Key) -> Document | None:
    try:
        return await cluster.get(EVICTION_REQUESTS, key)
    except Missing:
        return None


def _compared(stored: Mapping[str, Any], exported: Mapping[str, Any]) -> tuple[Outcome, str]:
    """Whether the request of that name is the same one; only its intent may have changed."""
    if stored == exported:
        return Outcome.EXISTS, ""
    if {**stored, "intent": exported.get("intent")} == exported:
        return Outcome.EXISTS, f"its intent is '{stored.get('intent')}' by now"
    return Outcome.DIFFERS, f"the one of that name has the spec {json.dumps(stored)}"


# --- reporting ----------------------------------------------------------------------------------


def _as_text(item: _Item, outcome: Outcome, reason: str) -> str:
    restoration = item.restoration
    name = "/".join(restoration.key)
    text = f"line {item.line}: {restoration.kind} {name}: {_WORDS[outcome]}"
    return f"{text}: {reason}" if reason else text


def _as_json(item: _Item, outcome: Outcome, reason: str) -> str:
    kind, key = item.restoration.kind, item.restoration.key
    return json.dumps(
        {
            "line": item.line,
            "kind": kind,
            "namespace": key.namespace,
            "name": key.name,
            "outcome": outcome.value,
            "reason": reason,
        }
    )
