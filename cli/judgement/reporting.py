"""From what is wrong with an object to findings, with the place where it stands."""

from collections.abc import Iterator, Sequence

from cli.judgement import checks
from cli.judgement.findings import DocumentReport, Finding, ObjectName, Severity
from cli.manifests.documents import Unreadable
from cli.manifests.objects import Manifest
from rules.field import Path
from rules.texts import printable


def report_unreadable(part: Unreadable) -> DocumentReport:
    """The report about a part of a file that is no document."""
    finding = Finding(
        rule=checks.READABLE_FILE,
        message=printable(part.message),
        severity=Severity.ERROR,
        line=part.line,
        column=part.column,
        broken=True,
    )
    return DocumentReport(part.number, findings=(finding,))


def report_on(
    manifest: Manifest,
    findings: Sequence[Finding],
    *,
    skipped: bool = False,
    unanswered: tuple[str, ...] = (),
) -> DocumentReport:
    """The report about one object, its findings in the order of their places."""
    ordered = sorted(findings, key=lambda finding: (finding.line, finding.column))
    return DocumentReport(
        number=manifest.document.number,
        object=ObjectName(*map(printable, manifest.name)),
        item=manifest.item,
        skipped=skipped,
        findings=tuple(ordered),
        unanswered=unanswered,
    )


def json_problems(manifest: Manifest) -> Iterator[Finding]:
    """Why the text of the object does not mean one JSON value to every reader."""
    for problem in manifest.problems:
        yield Finding(
            rule=checks.JSON_VALUES,
            message=printable(problem.message),
            severity=Severity.ERROR,
            line=problem.line,
            column=problem.column,
            field=printable(problem.path),
            broken=True,
        )


def broken_at(manifest: Manifest, rule: str, message: str, path: Path = Path()) -> Finding:
    """A finding about an object that cannot be judged."""
    return finding_at(manifest, rule, message, path, severity=Severity.ERROR, broken=True)


def finding_at(
    manifest: Manifest,
    rule: str,
    message: str,
    path: Path,
    *,
    severity: Severity,
    type_: str = "",
    broken: bool = False,
) -> Finding:
    """A finding about the field ``path`` of an object."""
    place = manifest.locate(path)
    return Finding(
        rule=rule,
        message=printable(message),
        severity=severity,
        line=place.line,
        column=place.column,
        field=printable(path),
        type=type_,
        broken=broken,
    )
