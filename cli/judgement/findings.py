"""What ``usher validate`` finds: findings, by document, by file, and their sum."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Final, NamedTuple

from cli.exits import BAD_INPUT, CLEAN, VIOLATIONS


class Severity(StrEnum):
    """How bad a finding is."""

    ERROR = "error"
    """The API server or the webhook would refuse the write."""
    WARNING = "warning"
    """It would be admitted with a warning."""
    NOTE = "note"
    """It would be admitted and audited."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong, and where."""

    rule: str
    """Id of the rule or of the check; ``usher explain`` knows both."""
    message: str
    severity: Severity
    line: int
    """Counted from 1; the nearest enclosing line for a field that is missing."""
    column: int
    """Counted from 1, in code points."""
    field: str = ""
    """Path inside the object; "" for the object as a whole."""
    type: str = ""
    """The cause type that an API server would report, "" where there is none."""
    broken: bool = False
    """Whether the input could not be judged, as opposed to judged and refused."""

    @property
    def text(self) -> str:
        """The field and the message."""
        return f"{self.field}: {self.message}" if self.field else self.message


class ObjectName(NamedTuple):
    """Which object a document holds; "" for what it does not say."""

    api_version: str = ""
    kind: str = ""
    namespace: str = ""
    name: str = ""

    def __str__(self) -> str:
        path = "/".join(part for part in (self.namespace, self.name) if part)
        return f"{self.kind} {path}".strip()


NAMELESS: Final = ObjectName()
"""The name of what is no object, or does not say which."""


@dataclass(frozen=True, slots=True)
class DocumentReport:
    """What was found in one object."""

    number: int
    """The document in its file, counted from 1; empty documents do not count."""
    object: ObjectName = NAMELESS
    item: int | None = None
    """Its place in the ``items`` of a List, counted from 0; None outside of Lists."""
    skipped: bool = False
    """Whether it is of a kind that has no rules."""
    findings: tuple[Finding, ...] = ()
    unanswered: tuple[str, ...] = ()
    """The guards that were left out, because nobody answered what they ask."""


@dataclass(frozen=True, slots=True)
class FileReport:
    """What was found in one file."""

    name: str
    documents: tuple[DocumentReport, ...] = ()


@dataclass(slots=True)
class Report:
    """What a whole run found."""

    now: datetime
    """The instant that the rules took for the present."""
    files: list[FileReport] = field(default_factory=list)

    @property
    def documents(self) -> Iterator[DocumentReport]:
        """Every object of every file, in order."""
        return (document for file in self.files for document in file.documents)

    @property
    def findings(self) -> Iterator[tuple[FileReport, DocumentReport, Finding]]:
        """Every finding with its place, in order."""
        return (
            (file, document, finding)
            for file in self.files
            for document in file.documents
            for finding in document.findings
        )

    def count(self, severity: Severity) -> int:
        """How many findings are that bad."""
        return sum(finding.severity == severity for _, _, finding in self.findings)

    @property
    def skipped(self) -> int:
        """How many objects have a kind without rules."""
        return sum(document.skipped for document in self.documents)

    @property
    def unanswered(self) -> set[str]:
        """The guards that were left out of the judgement of some object."""
        return {guard for document in self.documents for guard in document.unanswered}

    @property
    def summary(self) -> str:
        """The run in one line."""
        counts = [
            _counted(self.count(Severity.ERROR), "error"),
            _counted(self.count(Severity.WARNING), "warning"),
            f"{self.skipped} skipped",
        ]
        notes = self.count(Severity.NOTE)
        if notes:
            counts.insert(2, _counted(notes, "note"))
        files = _counted(len(self.files), "file")
        documents = _counted(sum(1 for _ in self.documents), "document")
        return f"{files}, {documents}: {', '.join(counts)}"

    def exit_code(self, *, fail_on_warnings: bool) -> int:
        """How the command must end, see :mod:`cli.exits`."""
        if any(finding.broken for _, _, finding in self.findings):
            return BAD_INPUT
        if self.count(Severity.ERROR) or (fail_on_warnings and self.count(Severity.WARNING)):
            return VIOLATIONS
        return CLEAN


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
