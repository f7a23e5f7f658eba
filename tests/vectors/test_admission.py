"""Every admission vector: the same verdict and the same causes as Kubernetes 1.37.2."""

from typing import Final

from rules.evaluate import evaluate
from tests.vectors import BUILT_IN_ONLY, admission_vectors, as_request, causes

# Ids of vectors where Usher differs on purpose; each needs an ADR and a line in docs/deviations.md.
DEVIATIONS: Final[frozenset[str]] = frozenset()
COUNT: Final = 5975


def test_every_vector_has_the_native_verdict_and_causes() -> None:
    wrong = {}
    count = 0
    for vector in admission_vectors():
        count += 1
        verdict = evaluate(as_request(vector), BUILT_IN_ONLY)
        wanted = {(c["type"], c["field"]) for c in vector["want"].get("causes", ())}
        found = causes(verdict)
        if verdict.allowed is not vector["want"]["allowed"] or found != wanted:
            wrong[vector["id"]] = (sorted(found - wanted), sorted(wanted - found))
    assert count == COUNT
    assert set(wrong) == DEVIATIONS, dict(list(wrong.items())[:20])
