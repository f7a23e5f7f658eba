"""How findings are written: one module per format, each with ``render``."""

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from cli.judgement.findings import Report
from cli.output import as_json, github, junit, sarif, text

FORMATS: Final[Mapping[str, Callable[[Report], Iterator[str]]]] = {
    "text": text.render,
    "json": as_json.render,
    "junit": junit.render,
    "sarif": sarif.render,
    "github": github.render,
}
"""What ``--output`` may be; each renders a report as lines."""
