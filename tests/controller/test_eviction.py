"""What the vectors do not show of the sync ``eviction``: memory, bad declarations, odd lists."""

import json
from datetime import datetime, timedelta
from typing import Any, Final

import pytest

from cluster.key import Key
from controller.eviction.plan import Sync, plan
from controller.eviction.planning.progression import UNCOUNTED_PAUSE
from controller.eviction.planning.snapshot import Snapshot
from controller.eviction.planning.writes import Plan
from rules.api import EVICTOR, RESPONDERS_ANNOTATION
from rules.decode import decode_model
from rules.times import format_time
from tests.controller import objects
from tests.controller.objects import Document
from tests.controller.store import START

CREATED: Final = format_time(START - timedelta(minutes=5))
BACKUP: Final = ("acme.io/backup", 10_000)


def _ago(seconds: int) -> str:
    return format_time(START - timedelta(seconds=seconds))


def _pod(*responders: tuple[str, int], **status: Any) -> Document:
    return objects.pod("db-0", 1, responders, **status)


def _finished(*times: str | None, sidecar: str | None = "") -> Document:
    """The status of a terminal pod; "" for no sidecar."""
    states: list[Document] = [
        {"terminated": {"finishedAt": time}} if time else {"running": {}} for time in times
    ]
    status: Document = {"phase": "Failed", "containerStatuses": [{"state": s} for s in states]}
    if sidecar != "":
        ended = {"terminated": {"finishedAt": sidecar}} if sidecar else {}
        status["initContainerStatuses"] = [
            {"name": "proxy", "state": ended},
            {"name": "init", "state": {"terminated": {"finishedAt": _ago(0)}}},
        ]
    return status


def _eviction(*states: str, report: Document | None = None) -> Document:
    """An Eviction with the responder :data:`BACKUP` and the evictor in these states."""
    document = objects.eviction("pod-1-db-0", objects.target_of(_pod()), 2, CREATED)
    if states:
        named = [(BACKUP[0], BACKUP[1], states[0]), (EVICTOR, 100, states[1])]
        document["status"] = {
            "observedGeneration": 1,
            "targetResponders": [
                {"name": name, "priority": priority, "state": state}
                for name, priority, state in named
            ],
            "responders": [
                {"name": BACKUP[0], "startTime": _ago(60)} | (report or {}),
                {"name": EVICTOR},
            ],
        }
    return document


def _request(intent: str = "Eviction") -> Document:
    target = objects.target_of(_pod())
    return objects.request("drain", target, 3, CREATED, "ops.acme.io/drain", intent)


def _plan(
    eviction: Document, *pods: Document, remembered: datetime | None = None, **more: Any
) -> Plan:
    times = {eviction["metadata"]["uid"]: remembered} if remembered else {}
    content = {"pods": list(pods), "evictions": [eviction], "evictionRequests": [_request()]}
    snapshot = decode_model(Snapshot, content | more | {"terminalTimes": times})
    return plan(Sync.EVICTION, Key("default", "pod-1-db-0"), snapshot, START)


def _status(planned: Plan) -> Document:
    (write,) = planned.writes
    status: Document = write.apply["status"]
    return status


def _states(planned: Plan) -> dict[str, str]:
    return {target["name"]: target["state"] for target in _status(planned)["targetResponders"]}


def _condition(planned: Plan, type_: str) -> tuple[str, str, str]:
    (found,) = (c for c in _status(planned)["conditions"] if c["type"] == type_)
    return found["status"], found["reason"], found["message"]


# --- when the target ended ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "wanted"),
    [
        (_finished(_ago(2)), 3),
        (_finished(_ago(30), _ago(1)), 4),
        (_finished(_ago(30), None), 5),
        (_finished(), 5),
        (_finished(_ago(-60)), 5),
        (_finished("0001-01-01T00:00:00Z"), 5),
        (_finished(_ago(30), sidecar=_ago(2)), 3),
        (_finished(_ago(30), sidecar=None), 5),
        (_finished(None, sidecar=_ago(2)), 3),
        (_finished(_ago(1), sidecar=_ago(30)), 4),
    ],
)
def test_the_last_finish_starts_the_grace(status: Document, wanted: int) -> None:
    pod = _pod(BACKUP, **status)
    containers = [{"name": "proxy", "restartPolicy": "Always"}, {"name": "init"}]
    pod["spec"]["initContainers"] = containers
    planned = _plan(_eviction("Active", "Inactive"), pod)
    assert planned.requeue_after == timedelta(seconds=wanted)
    assert planned.terminal_time == START - timedelta(seconds=5 - wanted)
    assert _condition(planned, "TargetEvicted")[1] == "AwaitingEviction"


def test_a_later_deletion_starts_the_grace() -> None:
    pod = _pod(BACKUP, **_finished(_ago(30)))
    pod["metadata"]["deletionTimestamp"] = _ago(2)
    planned = _plan(_eviction("Active", "Inactive"), pod)
    assert planned.requeue_after == timedelta(seconds=3)


def test_the_end_of_a_pod_that_is_gone_is_remembered() -> None:
    pod = _pod(BACKUP)
    pod["metadata"]["deletionTimestamp"] = _ago(-30)
    deleted = START + timedelta(seconds=30)
    assert _plan(_eviction("Active", "Inactive"), pod).terminal_time == deleted
    # It went before its time: what counts is when that was seen.
    gone = _plan(_eviction("Active", "Inactive"), remembered=deleted)
    assert (gone.terminal_time, gone.requeue_after) == (START, timedelta(seconds=5))
    known = _plan(_eviction("Active", "Inactive"), remembered=START - timedelta(seconds=4))
    assert known.requeue_after == timedelta(seconds=1)
    over = _plan(_eviction("Active", "Inactive"), remembered=START - timedelta(seconds=5))
    assert (over.requeue_after, over.terminal_time) == (None, None)
    assert _states(over)[BACKUP[0]] == "Interrupted"
    assert _condition(over, "TargetEvicted")[:2] == ("True", "PodDeleted")


def test_an_end_that_lies_ahead_does_not_start_the_grace_again() -> None:
    # The reference starts anew with every look until deletionTimestamp has passed.
    pod = _pod(BACKUP, **_finished(_ago(30)))
    pod["metadata"]["deletionTimestamp"] = _ago(-60)
    first = _plan(_eviction("Active", "Inactive"), pod)
    assert first.terminal_time == START
    seen = START - timedelta(seconds=3)
    again = _plan(_eviction("Active", "Inactive"), pod, remembered=seen)
    assert (again.terminal_time, again.requeue_after) == (seen, timedelta(seconds=2))


def test_a_report_ends_the_grace() -> None:
    eviction = _eviction("Active", "Inactive", report={"completionTime": _ago(1)})
    planned = _plan(eviction)
    assert _states(planned) == {BACKUP[0]: "Completed", EVICTOR: "Inactive"}
    assert _condition(planned, "Failed") == ("False", "Succeeded", "")


# --- what a pod declares --------------------------------------------------------------------------


def test_an_annotation_registers_where_the_field_is_empty() -> None:
    pod = _pod()
    listed = [{"name": "acme.io/backup", "priority": 10_000}]
    pod["metadata"]["annotations"] = {RESPONDERS_ANNOTATION: json.dumps(listed)}
    states = {BACKUP[0]: "Active", EVICTOR: "Inactive"}
    assert _states(_plan(_eviction(), pod)) == states
    pod["metadata"]["annotations"] = {RESPONDERS_ANNOTATION: "broken, but the field counts"}
    pod["spec"]["evictionResponders"] = listed
    assert _states(_plan(_eviction(), pod)) == states


@pytest.mark.parametrize(
    "text", ["db.acme.io/failover", '[{"name": "acme.io/backup", "priority": 5}]', '[{"name": 5}]']
)
def test_a_broken_declaration_ends_the_eviction_instead_of_protecting_nothing(text: str) -> None:
    pod = _pod()
    pod["metadata"]["annotations"] = {RESPONDERS_ANNOTATION: text}
    planned = _plan(_eviction(), pod)
    status, reason, message = _condition(planned, "Failed")
    assert (status, reason) == ("True", "EvictionInvalid")
    assert message.startswith(
        "Target pod declares eviction responders that are not valid: "
        "metadata.annotations[usher.dev/eviction-responders]"
    )
    # Once the list has been copied the pod's own does not count any more.
    assert _plan(_eviction("Active", "Inactive"), pod).requeue_after == timedelta(minutes=19)


# --- lists that no API server stores --------------------------------------------------------------


def test_a_list_without_anybody_to_activate_is_left_alone() -> None:
    planned = _plan(_eviction("Unheard", "Of"), _pod(BACKUP))
    assert _states(planned) == {BACKUP[0]: "Unheard", EVICTOR: "Of"}
    assert planned.requeue_after is None


def test_a_missing_report_is_put_back() -> None:
    eviction = _eviction("Active", "Inactive")
    del eviction["status"]["responders"][0]
    reports = _status(_plan(eviction, _pod(BACKUP)))["responders"]
    assert reports == [{"name": BACKUP[0], "startTime": format_time(START)}, {"name": EVICTOR}]
    # Whoever has no report can't be waited for.
    assert _states(_plan(eviction))[BACKUP[0]] == "Interrupted"


def test_no_target_is_invalid() -> None:
    eviction = _eviction()
    eviction["spec"] = {"target": {}}
    assert _condition(_plan(eviction), "Failed")[2] == "Unsupported target type."


def test_an_eviction_that_is_not_there_needs_nothing() -> None:
    snapshot = decode_model(Snapshot, {"evictions": [_eviction()]})
    for sync in Sync:
        for key in (Key("default", "pod-2-db-0"), Key("other", "pod-1-db-0")):
            assert plan(sync, key, snapshot, START) == Plan()


# --- invalid evictions ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("report", "state"), [({}, "Canceled"), ({"completionTime": _ago(1)}, "Completed")]
)
def test_an_invalid_eviction_keeps_its_lists(report: Document, state: str) -> None:
    pod = _pod(BACKUP)
    pod["spec"]["schedulingGroup"] = {}
    eviction = _eviction("Active", "Inactive", report=report)
    eviction["status"]["requesters"] = [{"name": "ops.acme.io/drain", "intent": "Eviction"}]
    planned = _plan(eviction, pod)
    assert _condition(planned, "Failed")[1] == "EvictionInvalid"
    assert _states(planned) == {BACKUP[0]: state, EVICTOR: "Inactive"}
    assert _status(planned)["requesters"] == eviction["status"]["requesters"]
    assert _status(planned)["responders"] == [
        {"name": BACKUP[0], "startTime": _ago(60)},
        {"name": EVICTOR},
    ]


def test_of_two_evictions_the_younger_one_gives_way() -> None:
    older = objects.eviction("pod-2-db-0", objects.target_of(_pod()), 9, _ago(3600))
    planned = _plan(_eviction(), _pod(), evictions=[_eviction(), older])
    assert _condition(planned, "Failed")[1] == "EvictionInvalid"
    same_age = objects.eviction("pod-10-db-0", objects.target_of(_pod()), 9, CREATED)
    assert _states(_plan(_eviction(), _pod(), evictions=[same_age, _eviction()])) == {
        EVICTOR: "Active"
    }
    ended = older | {"status": {"conditions": [{"type": "TargetEvicted", "status": "True"}]}}
    assert _states(_plan(_eviction(), _pod(), evictions=[ended, _eviction()])) == {
        EVICTOR: "Active"
    }


# --- a time that may not be relied on ------------------------------------------------------------


def test_silence_that_does_not_count_ends_no_turn_and_keeps_nothing_else_back() -> None:
    silent = _eviction("Active", "Inactive", report={"startTime": _ago(26 * 60)})
    document = {
        "pods": [_pod(BACKUP)],
        "evictions": [silent],
        "evictionRequests": [_request()],
    }
    snapshot, key = decode_model(Snapshot, document), Key("default", "pod-1-db-0")
    passed_over = plan(Sync.EVICTION, key, snapshot, START)
    assert _states(passed_over) == {BACKUP[0]: "Interrupted", EVICTOR: "Active"}
    kept = plan(Sync.EVICTION, key, snapshot, START, counts_silence=False)
    assert _states(kept) == {BACKUP[0]: "Active", EVICTOR: "Inactive"}
    assert [r["name"] for r in _status(kept)["requesters"]] == ["ops.acme.io/drain"]
    assert kept.requeue_after == UNCOUNTED_PAUSE


def test_where_the_pod_has_gone_a_turn_ends_all_the_same() -> None:
    eviction = _eviction("Active", "Inactive", report={"startTime": _ago(26 * 60)})
    document = {"evictions": [eviction], "evictionRequests": [_request()]}
    snapshot = decode_model(
        Snapshot,
        document | {"terminalTimes": {eviction["metadata"]["uid"]: START - timedelta(minutes=1)}},
    )
    ended = plan(Sync.EVICTION, Key("default", "pod-1-db-0"), snapshot, START, counts_silence=False)
    assert _states(ended) == {BACKUP[0]: "Interrupted", EVICTOR: "Inactive"}
