"""Findings for people: one a line, as compilers print them."""

from collections.abc import Iterator
from typing import Final

import click

from cli.judgement.findings import Report, Severity

_COLOURS: Final = {Severity.ERROR: "red", Severity.WARNING: "yellow", Severity.NOTE: "cyan"}


def render(report: Report) -> Iterator[str]:
    """The lines of the report; coloured, which click undoes where nobody sees it."""
    for file, document, finding in report.findings:
        place = f"{file.name}:{finding.line}:{finding.column}"
        severity = click.style(finding.severity, fg=_COLOURS[finding.severity], bold=True)
        about = str(document.object)
        about = f" ({about})" if about else ""
        rule = click.style(f"[{finding.rule}]", dim=True)
        yield f"{place}: {severity}: {finding.text} {rule}{about}"
    yield report.summary
