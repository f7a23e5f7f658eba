"""``usher validate``: judge manifests offline, before they reach a cluster."""

from datetime import UTC, datetime
from typing import Any, Final

import click

from cli.judgement.findings import FileReport, Report
from cli.judgement.judging import Terms, judge, report_unsound
from cli.judgement.reporting import report_unreadable
from cli.judgement.unanswered import RBAC, USER, left_out
from cli.manifests.documents import Unreadable
from cli.manifests.objects import Manifest, read_parts
from cli.manifests.sources import STANDARD_INPUT, Source, find_sources
from cli.manifests.stored import Stored, StoredObjects
from cli.options import (
    CONTEXT_SETTINGS,
    common_options,
    guards_option,
    logger,
    now_option,
    policy_from,
    policy_options,
)
from cli.output import FORMATS
from cli.progress import track
from cli.rbac.authorizer import Authorizer, with_implied_groups
from cli.rbac.options import rbac_options
from cli.rbac.reading import RbacManifests
from rules.decode import SHAPES
from rules.request import STATUS, Operation, User

_EPILOG: Final = """\b
Examples:
  usher validate manifests/
  kubectl get evictions -A -o yaml | usher validate -
  usher validate --old stored.yaml --subresource status changed.yaml
  usher validate --as system:serviceaccount:db:operator --rbac rbac/ \\
      --old stored.yaml --subresource status changed.yaml
  usher validate -o sarif manifests/ > usher.sarif

Exit codes: 0 clean, 1 violations, 2 bad usage or input, 3 internal failure.
"""


@click.command(name="validate", context_settings=CONTEXT_SETTINGS, epilog=_EPILOG)
@click.argument("files", nargs=-1, metavar="[FILE|DIR|-]...")
@click.option(
    "-f", "--filename", multiple=True, metavar="FILE|DIR|-", help="The same, as kubectl has it."
)
@click.option(
    "--old",
    metavar="FILE|DIR",
    help="The stored objects: judge the changes from these to the others, matched by kind, "
    "namespace and name. Objects that are not in it are judged as created.",
)
@click.option(
    "--operation",
    type=click.Choice([Operation.CREATE, Operation.UPDATE], case_sensitive=False),
    metavar="CREATE|UPDATE",
    help="Judge every object as created, or as a change of one in --old.  "
    "[default: UPDATE for what --old holds, CREATE for the rest]",
)
@click.option(
    "--subresource",
    type=click.Choice([STATUS]),
    help="Judge writes of this subresource, in which spec does not count. Without it status does "
    "not. Needs --old.",
)
@click.option(
    "--as",
    "user",
    envvar="USHER_AS",
    metavar="USER",
    help="Who writes: the user of the request. Without it nobody is asked what they may do.",
)
@click.option(
    "--as-group",
    "groups",
    envvar="USHER_AS_GROUP",
    multiple=True,
    metavar="GROUP",
    help="A group of that user, beside those that its name implies: system:authenticated, and "
    "the groups of a service account. May be repeated.",
)
@rbac_options
@now_option
@click.option(
    "--mode",
    type=click.Choice(["crd", "native", "auto"]),
    default="auto",
    help="Where the cluster reads a pod's responders: from the annotation (crd) or from the field "
    "(native). A declaration in the wrong place alone is warned about.",
)
@click.option(
    "--strict", is_flag=True, help="Unknown fields are errors, as with fieldValidation: Strict."
)
@guards_option
@policy_options
@click.option("--fail-on-warnings", is_flag=True, help="Exit with 1 for warnings, too.")
@click.option(
    "-o",
    "--output",
    default="text",
    type=click.Choice(tuple(FORMATS)),
    help="How to write the findings.",
)
@common_options
@click.pass_context
def command(ctx: click.Context, /, **flags: Any) -> None:
    """Judge manifests offline, as a cluster would.

    YAML or JSON, many documents and Lists; directories are searched for *.yaml, *.yml and *.json.
    Judged are Evictions, EvictionRequests, pods, and the pod templates of workloads; other kinds
    are counted as skipped. Nothing is sent anywhere.
    """
    sources = find_sources((*flags["files"], *flags["filename"]))
    if not sources:
        raise click.UsageError("name a FILE or a DIR, or '-' for standard input", ctx)
    _check_change(flags, sources)
    _check_user(flags)
    report = Report(now=flags["now"] or datetime.now(UTC))  # noqa: TID251 - the rim: read once
    terms = _terms(flags, report, _read_stored(flags["old"], report), sources)
    only_one = len(sources) == 1
    for source in track(sources, "Judging"):
        report.files.append(_judge_file(source, terms, only_one=only_one))
    _write(report, flags)
    if report.unanswered:
        given = {USER: terms.user, RBAC: terms.authorizer}
        lacking = left_out(report.unanswered, [flag for flag, it in given.items() if it])
        click.echo(lacking, err=True)
    ctx.exit(report.exit_code(fail_on_warnings=flags["fail_on_warnings"]))


def _check_change(flags: dict[str, Any], sources: list[Source]) -> None:
    """Refuse flags that contradict each other; says how to put it."""
    old, operation = flags["old"], flags["operation"]
    if old is None and (operation == Operation.UPDATE or flags["subresource"]):
        flag = "--subresource" if flags["subresource"] else "--operation UPDATE"
        raise click.UsageError(f"{flag} judges a change: name the stored objects with --old FILE")
    if old is not None and operation == Operation.CREATE:
        raise click.UsageError("--operation CREATE compares with nothing: leave out --old")
    inputs = [old, *flags["rbac"], *(source.path for source in sources)]
    if inputs.count(STANDARD_INPUT) > 1:
        raise click.UsageError("'-' can be named once: put the others into a file")


def _check_user(flags: dict[str, Any]) -> None:
    """Refuse what says something of a user and does not say of whom."""
    if not flags["user"]:
        for name, flag in (("groups", "--as-group"), ("rbac", "--rbac")):
            if flags[name]:
                raise click.UsageError(f"{flag} is about a user: name one with --as USER")


def _user(flags: dict[str, Any]) -> User | None:
    if not flags["user"]:
        return None
    return with_implied_groups(User(flags["user"], flags["groups"]))


def _terms(
    flags: dict[str, Any], report: Report, stored: StoredObjects, judged: list[Source]
) -> Terms:
    user = _user(flags)
    return Terms(
        now=report.now,
        policy=policy_from(
            flags["enforce"],
            audit_only=flags["audit_only"],
            response_budget=flags["response_budget"],
            controllers=flags["controllers"],
            break_glass=flags["break_glass"],
            guards=flags["guards"],
        ),
        operation=flags["operation"],
        subresource=flags["subresource"] or "",
        user=user,
        authorizer=_read_rbac(flags, user, judged, report),
        namespace=flags["namespace"],
        mode=flags["mode"],
        strict=flags["strict"],
        stored=stored,
    )


def _read_rbac(
    flags: dict[str, Any], user: User | None, judged: list[Source], report: Report
) -> Authorizer | None:
    """Who knows what ``user`` may do, if the manifests are sound; else the report says why not."""
    if user is None or not flags["rbac"]:
        return None
    manifests = RbacManifests(
        find_sources(flags["rbac"]), flags["namespace"], [source.path for source in judged]
    )
    report.files += manifests.reports
    for line in manifests.dangling(user):
        click.echo(line, err=True)
    return manifests.authorizer if manifests.is_sound else None


def _read_stored(old: str | None, report: Report) -> StoredObjects:
    """The objects of ``--old``; what is wrong with them goes into the report."""
    objects: list[Stored] = []
    for source in find_sources([old]) if old is not None else ():
        documents = []
        for part in read_parts(source):
            if isinstance(part, Unreadable):
                documents.append(report_unreadable(part))
            elif part.shape is not None:
                found = report_unsound(part)
                objects.append(Stored(part, sound=not found.findings))
                documents.append(found)
        broken = tuple(document for document in documents if document.findings)
        if broken:
            report.files.append(FileReport(source.name, broken))
    return StoredObjects(objects)


def _judge_file(source: Source, terms: Terms, *, only_one: bool) -> FileReport:
    parts = list(read_parts(source))
    judged = [part for part in parts if isinstance(part, Manifest) and part.shape is not None]
    alone = only_one and len(judged) == 1
    return FileReport(
        source.name,
        tuple(
            report_unreadable(part)
            if isinstance(part, Unreadable)
            else judge(part, terms, alone=alone)
            for part in parts
        ),
    )


def _write(report: Report, flags: dict[str, Any]) -> None:
    format_ = flags["output"]
    for line in FORMATS[format_](report):
        click.echo(line)
    if format_ != "text":
        click.echo(report.summary, err=True)
    _log_skipped(report, flags)


def _log_skipped(report: Report, flags: dict[str, Any]) -> None:
    skipped = [
        (file.name, document.number, document.object.kind)
        for file in report.files
        for document in file.documents
        if document.skipped
    ]
    if flags["log_level"] == "debug":
        for file, document, kind in skipped:
            logger(flags).debug("skipped", file=file, document=document, kind=kind)
    if skipped and all(document.skipped for document in report.documents):
        kinds = ", ".join(sorted({kind for _, _, kind in SHAPES}))
        logger(flags).warning("nothing was judged", kinds_with_rules=kinds)
