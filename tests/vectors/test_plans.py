"""Every plan vector: the same writes and the same time to look again as the reference."""

from typing import Any, Final

from controller.eviction.planning.admission import as_request
from controller.eviction.planning.conditions import EVICTION_INVALID
from rules.api import Eviction, ResponderState
from rules.evaluate import evaluate
from rules.states import condition_of
from rules.times import parse_time
from tests.vectors.plans import as_want, meaning, plan_of, plan_vectors, snapshot_of

COUNT: Final = 1500


def _ids(numbers: str) -> frozenset[str]:
    return frozenset(f"pub-{int(number):05}" for number in numbers.split())


# Ids of vectors where the plan differs on purpose, by ADR.
# docs/adr/0031-complete-status-of-an-invalid-eviction.md
KEPT_LISTS: Final = _ids(
    """
    7 13 29 35 54 118 164 169 171 174 180 221 240 249 279 281 289 290 313 320 340 345 347 354
    362 407 422 449 462 482 483 491 492 511 517 522 536 572 582 609 617 621 643 676 680 691 732
    759 760 765 767 786 790 795 798 799 813 820 828 833 836 907 913 991 996 1013 1024 1025 1046
    1051 1056 1073 1079 1134 1195 1196 1197 1241 1244 1271 1286 1292 1315 1333 1358 1374 1377
    1379 1398 1407 1419 1455 1466 1476 1487 1488
    """
)
# docs/adr/0032-waiting-for-a-pod-ends.md
WAITS: Final = _ids("38 41 79 358 1141 1460")
DEVIATIONS: Final = KEPT_LISTS | WAITS

_LISTS: Final = ("requesters", "targetResponders", "responders")


def test_every_vector_has_the_planned_writes_and_time() -> None:
    wrong = {}
    count = 0
    for vector in plan_vectors():
        count += 1
        found, wanted = meaning(as_want(plan_of(vector))), meaning(vector["want"])
        if found != wanted:
            wrong[vector["id"]] = (found, wanted)
    assert count == COUNT
    surprises = {id_: wrong[id_] for id_ in wrong if id_ not in DEVIATIONS}
    assert not surprises, list(surprises.items())[:3]
    assert set(wrong) == DEVIATIONS


def test_a_deviation_keeps_lists_or_asks_to_look_again_and_nothing_else() -> None:
    for vector in plan_vectors():
        if vector["id"] not in DEVIATIONS:
            continue
        found, wanted = as_want(plan_of(vector)), vector["want"]
        if vector["id"] in WAITS:
            assert 0 < found.pop("requeueAfterSeconds") <= 3
        else:
            (write,) = found["writes"]
            kept = {name: write["apply"]["status"].pop(name, []) for name in _LISTS}
            _assert_kept(kept, _status(vector))
        assert meaning(found) == meaning(wanted)


def _status(vector: dict[str, Any]) -> dict[str, Any]:
    name = vector["key"].partition("/")[2]
    (eviction,) = (e for e in vector["evictions"] if e["metadata"]["name"] == name)
    status: dict[str, Any] = eviction["status"]
    return status


def _assert_kept(kept: dict[str, Any], stored: dict[str, Any]) -> None:
    """Everything is as stored, except that the Active responder has left Active."""
    assert kept["requesters"] == stored.get("requesters", [])
    starts = {report["name"]: report.get("startTime") for report in stored.get("responders", [])}
    assert {report["name"]: report.get("startTime") for report in kept["responders"]} == starts
    before = {responder["name"]: responder for responder in stored.get("targetResponders", [])}
    after = {responder["name"]: responder for responder in kept["targetResponders"]}
    assert before.keys() == after.keys()
    for name, responder in after.items():
        if before[name]["state"] == ResponderState.ACTIVE:
            assert responder["state"] in (ResponderState.CANCELED, ResponderState.COMPLETED)
            assert responder["priority"] == before[name]["priority"]
        else:
            assert responder == before[name]


def test_every_planned_write_is_admitted() -> None:
    for vector in plan_vectors():
        snapshot, now = snapshot_of(vector), parse_time(vector["now"])
        for write in plan_of(vector).writes:
            request = as_request(write, snapshot, now)
            verdict = evaluate(request)
            if _has_seen_the_future(request.old_object):
                assert {violation.rule for violation in verdict.violations} == {"growing-fields"}
            else:
                assert verdict.violations == (), vector["id"]


def _has_seen_the_future(stored: Any) -> bool:
    """Whether a generated object claims a generation that it does not have yet.

    No API server stores such an object; the reference writes the lower one, which is refused.
    """
    if stored is None:
        return False
    observed: int | None = stored.status.observed_generation
    return observed is not None and observed > stored.metadata.generation


def test_an_invalid_eviction_that_was_initialised_ends_in_one_admitted_write() -> None:
    # What the reference plans there would be refused for ever, because it drops the lists.
    (vector,) = (vector for vector in plan_vectors() if vector["id"] == min(KEPT_LISTS))
    (write,) = plan_of(vector).writes
    request = as_request(write, snapshot_of(vector), parse_time(vector["now"]))
    assert isinstance(request.object, Eviction)
    failed = condition_of(request.object.status.conditions, "Failed")
    assert failed is not None
    assert (failed.status, failed.reason) == ("True", EVICTION_INVALID)
    assert evaluate(request).allowed
