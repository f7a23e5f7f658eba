"""Findings as a JUnit report: a suite a file, a case an object.

Errors are failures, input that could not be judged is an error, and warnings stand in the output
of a case, because JUnit has no word for them. Source: the schema of Jenkins' xUnit plugin.
"""

import html
import re
from collections.abc import Iterator
from typing import Final

from cli.judgement.findings import DocumentReport, FileReport, Report, Severity

_not_xml: Final = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that may not stand in XML 1.0, not even escaped (§ 2.2)."""


def render(report: Report) -> Iterator[str]:
    """The lines of the document."""
    cases = list(report.documents)
    yield '<?xml version="1.0" encoding="UTF-8"?>'
    yield f'<testsuites name="usher validate"{_counts(cases)}>'
    for file in report.files:
        counts = _counts(list(file.documents))
        skipped = sum(document.skipped for document in file.documents)
        name = _attribute(file.name)
        yield f'  <testsuite name={name}{counts} skipped="{skipped}" file={name}>'
        for document in file.documents:
            yield from _case(file, document)
        yield "  </testsuite>"
    yield "</testsuites>"


def _counts(documents: list[DocumentReport]) -> str:
    broken = sum(any(found.broken for found in document.findings) for document in documents)
    refused = sum(map(_is_refused, documents)) - broken
    return f' tests="{len(documents)}" failures="{refused}" errors="{broken}"'


def _is_refused(document: DocumentReport) -> bool:
    return any(finding.severity == Severity.ERROR for finding in document.findings)


def _case(file: FileReport, document: DocumentReport) -> Iterator[str]:
    item = "" if document.item is None else f" item {document.item}"
    name = f"{document.object} (document {document.number}{item})".strip()
    yield f"    <testcase name={_attribute(name)} classname={_attribute(file.name)}>"
    if document.skipped:
        yield '      <skipped message="no rules exist for this kind"/>'
    for finding in document.findings:
        told = f"{finding.text} [{finding.rule}]"
        text = _text(f"{file.name}:{finding.line}:{finding.column}: {told}")
        if finding.severity != Severity.ERROR:
            yield f"      <system-out>{finding.severity}: {text}</system-out>"
            continue
        tag = "error" if finding.broken else "failure"
        attributes = f"type={_attribute(finding.rule)} message={_attribute(told)}"
        yield f"      <{tag} {attributes}>{text}</{tag}>"
    yield "    </testcase>"


def _attribute(text: str) -> str:
    return f'"{_text(text)}"'


def _text(text: str) -> str:
    return html.escape(_not_xml.sub("\ufffd", text))
