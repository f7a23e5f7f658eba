"""``usher replay``: answer recorded admission requests, as the webhook would."""

import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import zip_longest
from pathlib import Path
from typing import Any, Final, NamedTuple

import click
import msgspec

from cli.exits import BAD_INPUT, CLEAN, VIOLATIONS, InputError
from cli.judgement.unanswered import RBAC, USER, left_out
from cli.manifests.sources import STANDARD_INPUT, find_sources
from cli.options import (
    CONTEXT_SETTINGS,
    common_options,
    guards_option,
    now_option,
    policy_from,
    policy_options,
)
from cli.progress import track
from cli.rbac.authorizer import Authorizer
from cli.rbac.options import rbac_options
from cli.rbac.reading import RbacManifests
from cli.recordings import Line, differences, read_answer, read_lines, read_review
from rules.decode import DecodeError
from rules.evaluate import ADMITTED, Inquiry, Policy
from rules.facts import NO_FACTS
from rules.texts import printable
from webhook.review import decode, respond

_EPILOG: Final = """\b
Examples:
  usher replay recording.jsonl > answers.jsonl
  usher replay recording.jsonl --diff answers.jsonl
  usher replay --rbac rbac/ recording.jsonl
  usher replay --guards off --now 2026-07-01T12:00:00Z - < recording.jsonl

A line that cannot be answered gets the line {"file": FILE, "line": NUMBER, "error": TEXT} in its
place, and the others are answered all the same.

Exit codes: 0 answered (denials included), 1 a denial with --fail-on-deny or a difference with
--diff, 2 bad usage or a bad line, 3 internal failure.
"""


@click.command(name="replay", context_settings=CONTEXT_SETTINGS, epilog=_EPILOG)
@click.argument("files", nargs=-1, metavar="[FILE|-]...")
@now_option
@rbac_options
@guards_option
@policy_options
@click.option(
    "--diff",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False),
    help="Recorded answers, a line for each request: print what differs from them (allowed, and "
    "type and field of the causes) instead of the answers.",
)
@click.option("--fail-on-deny", is_flag=True, help="Exit with 1 if a request is denied.")
@common_options
@click.pass_context
def command(ctx: click.Context, /, **flags: Any) -> None:
    """Answer recorded admission requests, as the webhook would.

    Each line of a FILE is an AdmissionReview, or {"now": TIME, "review": AdmissionReview} to judge
    it at its own time; --now is for those that have none. Prints one AdmissionReview for each, in
    order. Guards that ask a cluster are left out and named, unless --rbac answers them.
    """
    if not flags["files"]:
        raise click.UsageError("name a FILE, or '-' for standard input", ctx)
    if (*flags["files"], *flags["rbac"]).count(STANDARD_INPUT) > 1:
        raise click.UsageError("'-' can be named once: put the others into a file")
    policy = policy_from(
        flags["enforce"],
        audit_only=flags["audit_only"],
        response_budget=flags["response_budget"],
        controllers=flags["controllers"],
        break_glass=flags["break_glass"],
        guards=flags["guards"],
    )
    authorizer = _read_rbac(flags["rbac"], flags["namespace"]) if flags["rbac"] else None
    now = flags["now"] or datetime.now(UTC)  # noqa: TID251 - the rim: read once
    lines: Iterable[Line] = _lines(flags["files"])
    if not sys.stdout.isatty():  # else the answers themselves show the progress
        lines = track(lines, "Replaying")
    tally = _Tally()
    answers = (_answer(line, policy, authorizer, now, tally) for line in lines)
    if flags["diff"] is None:
        for answer in answers:
            _print(msgspec.json.encode(answer.content, enc_hook=str))
    else:
        _compare(answers, Path(flags["diff"]), tally)
    if tally.unanswered:
        given = [USER] if authorizer is None else [USER, RBAC]
        click.echo(left_out(tally.unanswered, given), err=True)
    click.echo(tally.summary, err=True)
    ctx.exit(tally.exit_code(fail_on_deny=flags["fail_on_deny"]))


@dataclass(slots=True)
class _Tally:
    """What a run has come to."""

    answered: int = 0
    denied: int = 0
    bad: int = 0
    """Lines that are no request, or no recorded answer."""
    different: int | None = None
    """Answers that are not as recorded; None where nothing is compared."""
    unanswered: set[str] = field(default_factory=set)
    """The guards that were left out of some answer."""

    @property
    def summary(self) -> str:
        """The run in one line."""
        parts = [f"{self.answered} answered, {self.denied} of them denied"]
        if self.different is not None:
            parts.append(f"{self.different} not as recorded")
        if self.bad:
            parts.append(f"{self.bad} lines could not be read")
        return "; ".join(parts)

    def exit_code(self, *, fail_on_deny: bool) -> int:
        """How the command must end, see :mod:`cli.exits`."""
        if self.bad:
            return BAD_INPUT
        return VIOLATIONS if self.different or (fail_on_deny and self.denied) else CLEAN


def _read_rbac(paths: Iterable[str], namespace: str) -> Authorizer:
    """Who knows what users may do. Raises InputError with all that is wrong with the manifests."""
    manifests = RbacManifests(find_sources(paths), namespace)
    flaws = [
        f"{file.name}:{finding.line}:{finding.column}: {finding.text}"
        for file in manifests.reports
        for document in file.documents
        for finding in document.findings
    ]
    if flaws:
        raise InputError("\n".join(("the manifests of --rbac must be sound", *flaws)))
    return manifests.authorizer


class _Answer(NamedTuple):
    """What stands for a line in the output."""

    line: Line
    content: dict[str, Any]
    """An AdmissionReview, or the error."""


def _lines(paths: Iterable[str]) -> Iterator[Line]:
    for path in paths:
        if path == STANDARD_INPUT:
            yield from read_lines("<stdin>", sys.stdin.buffer)
            continue
        try:
            with Path(path).open("rb") as file:
                yield from read_lines(path, file)
        except OSError as error:
            raise InputError(f"{path}: {error.strerror}") from None


def _answer(
    line: Line, policy: Policy, authorizer: Authorizer | None, now: datetime, tally: _Tally
) -> _Answer:
    try:
        raw, instant = read_review(line, now)
        review = decode(msgspec.json.encode(raw), instant)
    except DecodeError as error:
        _complain(line, error, tally)
        return _Answer(line, {"file": line.file, "line": line.number, "error": str(error)})
    verdict = ADMITTED
    if review.request is not None:
        inquiry = Inquiry(review.request, policy)
        facts = NO_FACTS
        if authorizer is not None:
            facts = authorizer.facts(review.user, inquiry.questions())
        verdict = inquiry.verdict(facts)
    tally.answered += 1
    tally.denied += not verdict.allowed
    tally.unanswered.update(verdict.unanswered)
    return _Answer(line, respond(review, verdict))


def _complain(line: Line, error: DecodeError, tally: _Tally) -> None:
    tally.bad += 1
    click.echo(f"{line}: {printable(str(error))}", err=True)


def _print(data: bytes) -> None:
    # Line by line, so that a pipeline sees each answer at once.
    sys.stdout.buffer.write(data + b"\n")
    sys.stdout.buffer.flush()


def _compare(answers: Iterable[_Answer], path: Path, tally: _Tally) -> None:
    """Print how the answers differ from the recorded ones in the file at ``path``."""
    tally.different = 0
    with path.open("rb") as file:
        for answer, line in zip_longest(answers, read_lines(str(path), file)):
            if answer is None:
                found = ["a recorded answer without a request"]
            elif line is None:
                found = ["no recorded answer"]
            else:
                found = _differences(answer, line, tally)
            for difference in found:
                place = answer.line if answer is not None else line
                _print(printable(f"{place}: {difference}").encode())
            tally.different += bool(found)


def _differences(answer: _Answer, line: Line, tally: _Tally) -> list[str]:
    try:
        recorded = read_answer(line.load())
    except DecodeError as error:
        _complain(line, error, tally)
        return []
    if "error" in answer.content:
        return []  # counted as a bad line already
    return list(differences(recorded, read_answer(answer.content)))
