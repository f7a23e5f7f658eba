"""Findings for programs. The format is described in docs/ci.md; keys are only ever added."""

import json
from collections.abc import Iterator
from typing import Any

from cli.judgement.findings import DocumentReport, FileReport, Finding, Report, Severity
from rules.times import format_time


def render(report: Report) -> Iterator[str]:
    """One JSON object."""
    yield json.dumps(
        {
            "now": format_time(report.now),
            "summary": {
                "files": len(report.files),
                "documents": sum(1 for _ in report.documents),
                "skipped": report.skipped,
                "errors": report.count(Severity.ERROR),
                "warnings": report.count(Severity.WARNING),
                "notes": report.count(Severity.NOTE),
            },
            "findings": [_finding(*found) for found in report.findings],
        },
        indent=2,
        ensure_ascii=False,
    )


def _finding(file: FileReport, document: DocumentReport, finding: Finding) -> dict[str, Any]:
    return {
        "file": file.name,
        "document": document.number,
        "item": document.item,
        "line": finding.line,
        "column": finding.column,
        "object": {
            "apiVersion": document.object.api_version,
            "kind": document.object.kind,
            "namespace": document.object.namespace,
            "name": document.object.name,
        },
        "field": finding.field,
        "rule": finding.rule,
        "type": finding.type,
        "severity": finding.severity,
        "message": finding.message,
    }
