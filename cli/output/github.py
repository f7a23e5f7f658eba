"""Findings as workflow commands of GitHub Actions, which shows them beside the lines.

Source: the escaping of ``@actions/core``, src/command.ts.
"""

from collections.abc import Iterator
from typing import Final

from cli.judgement.findings import Report, Severity

_COMMANDS: Final = {
    Severity.ERROR: "error",
    Severity.WARNING: "warning",
    Severity.NOTE: "notice",
}


def render(report: Report) -> Iterator[str]:
    """One command a finding, then the summary."""
    for file, document, finding in report.findings:
        properties = {
            "file": file.name,
            "line": str(finding.line),
            "col": str(finding.column),
            "title": f"{finding.rule} {document.object}".strip(),
        }
        listed = ",".join(f"{name}={_property(value)}" for name, value in properties.items())
        yield f"::{_COMMANDS[finding.severity]} {listed}::{_data(finding.text)}"
    yield report.summary


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
