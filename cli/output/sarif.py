"""Findings as SARIF 2.1.0, which code scanning services read.

Source: OASIS, Static Analysis Results Interchange Format Version 2.1.0, Errata 01.
"""

import json
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import PurePath
from typing import Any, Final
from urllib.parse import quote

from cli.judgement.findings import DocumentReport, FileReport, Finding, Report
from cli.reference import Entry, entries
from rules.rule import Enforcement

_SCHEMA: Final = (
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
)
_LEVELS: Final = {
    Enforcement.DENY: "error",
    Enforcement.WARN: "warning",
    Enforcement.AUDIT: "note",
    Enforcement.OFF: "none",
}


def render(report: Report) -> Iterator[str]:
    """One SARIF log with one run."""
    found = list(report.findings)
    known = entries()
    used = sorted({finding.rule for _, _, finding in found}, key=list(known).index)
    indexes = {rule: index for index, rule in enumerate(used)}
    run = {
        "tool": {
            "driver": {
                "name": "usher",
                "semanticVersion": version("usher"),
                "rules": [_rule(known[rule]) for rule in used],
            }
        },
        "columnKind": "unicodeCodePoints",
        "results": [_result(*place, index=indexes[place[-1].rule]) for place in found],
    }
    yield json.dumps({"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2)


def _rule(entry: Entry) -> dict[str, Any]:
    told = [entry.details, f"Why: {entry.why}", f"Admitted: {entry.admitted}"]
    told += [f"Refused: {entry.refused}", f"Source: {entry.source}"]
    return {
        "id": entry.name,
        "shortDescription": {"text": entry.requirement},
        "help": {"text": "\n".join(line for line in told if line.partition(": ")[2])},
        "defaultConfiguration": {"level": _LEVELS[Enforcement(entry.enforcement)]},
        "properties": {"tier": entry.tier},
    }


def _result(
    file: FileReport, document: DocumentReport, finding: Finding, *, index: int
) -> dict[str, Any]:
    location: dict[str, Any] = {
        "physicalLocation": {
            "artifactLocation": {"uri": _uri(file.name)},
            "region": {"startLine": finding.line, "startColumn": finding.column},
        }
    }
    if finding.field:
        location["logicalLocations"] = [
            {"fullyQualifiedName": f"{document.object}: {finding.field}", "kind": "member"}
        ]
    return {
        "ruleId": finding.rule,
        "ruleIndex": index,
        "level": finding.severity,
        "message": {"text": finding.text},
        "locations": [location],
    }


def _uri(name: str) -> str:
    path = PurePath(name)
    return path.as_uri() if path.is_absolute() else quote(path.as_posix())
