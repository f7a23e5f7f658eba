"""The vectors of ``tests/vectors``; README.md describes the format."""

import gzip
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from rules.api import GROUP, VERSION
from rules.catalog import GUARDS
from rules.decode import SHAPES, decode_object, load
from rules.evaluate import Policy, Verdict
from rules.request import Operation, Request
from rules.rule import Enforcement
from rules.times import parse_time

ADMISSION: Final = Path(__file__).parent / "admission.jsonl.gz"

BUILT_IN_ONLY: Final = Policy(enforcement=dict.fromkeys(GUARDS, Enforcement.OFF))
"""Usher's own guards are off: what is left must equal the native verdicts."""


def admission_vectors() -> Iterator[dict[str, Any]]:
    """Every admission vector."""
    with gzip.open(ADMISSION) as lines:
        for line in lines:
            yield load(line)


def as_request(vector: dict[str, Any]) -> Request:
    """The write of a vector as the rules see it."""
    shape = SHAPES[GROUP, VERSION, vector["kind"]]
    stored = vector.get("oldObject")
    return Request(
        operation=Operation(vector["operation"]),
        subresource=vector["subresource"],
        object=decode_object(shape, vector["object"]),
        old_object=decode_object(shape, stored) if stored is not None else None,
        now=parse_time(vector["now"]),
    )


def causes(verdict: Verdict) -> set[tuple[str, str]]:
    """The (type, field) of everything for which the verdict denies."""
    return {(v.error.type.value, str(v.error.field)) for v in verdict.denied}
