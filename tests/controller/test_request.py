"""What the vectors do not show of the syncs ``request`` and ``metadata``."""

from datetime import timedelta
from typing import Any

import pytest

from cluster.key import Key
from controller.eviction.plan import Sync, plan
from controller.eviction.planning.metadata import complete_creation
from controller.eviction.planning.relevance import new_eviction_name
from controller.eviction.planning.requesters import planned_requesters
from controller.eviction.planning.snapshot import Snapshot
from controller.eviction.planning.writes import Plan
from rules.api import (
    EVICTOR,
    MAX_REQUESTERS,
    RESPONDERS_ANNOTATION,
    EvictionRequest,
    Requester,
)
from rules.decode import decode_model
from rules.times import format_time
from tests.controller import objects
from tests.controller.objects import Document
from tests.controller.store import START, Store

KEY = Key("default", "drain")
POD = objects.pod("db-0", 1, [("acme.io/backup", 10_000)])


def _request(name: str = "drain", number: int = 3, **spec: Any) -> Document:
    created = format_time(START - timedelta(seconds=1))
    document = objects.request(
        name, objects.target_of(POD), number, created, "ops.acme.io/drain", "Eviction"
    )
    document["spec"] |= spec
    return document


def _snapshot(*requests: Document, **more: Any) -> Snapshot:
    return decode_model(Snapshot, {"pods": [POD], "evictionRequests": list(requests)} | more)


def _plan(snapshot: Snapshot) -> Plan:
    return plan(Sync.REQUEST, KEY, snapshot, START)


def _failed(planned: Plan) -> tuple[str, str]:
    status = planned.writes[-1].apply["status"]
    (found,) = (c for c in status["conditions"] if c["type"] == "Failed")
    return found["reason"], found["message"]


# --- requests -------------------------------------------------------------------------------------


def test_a_pod_is_waited_for_until_three_seconds_after_creation() -> None:
    snapshot = _snapshot(_request(), pods=[])
    waiting = _plan(snapshot)
    assert _failed(waiting) == ("AwaitingEviction", "Waiting for the target to appear.")
    assert waiting.requeue_after == timedelta(seconds=2)
    late = plan(Sync.REQUEST, KEY, snapshot, START + timedelta(seconds=2))
    assert _failed(late) == ("EvictionInvalid", "Target pod not found.")
    assert late.requeue_after is None


def test_no_target_is_invalid() -> None:
    planned = _plan(_snapshot(_request(target={})))
    assert _failed(planned) == ("EvictionInvalid", "Unsupported target type.")


def test_a_broken_declaration_is_told_before_an_eviction_is_made() -> None:
    pod = objects.pod("db-0", 1)
    pod["metadata"]["annotations"] = {RESPONDERS_ANNOTATION: "acme.io/backup"}
    planned = _plan(_snapshot(_request(), pods=[pod]))
    assert len(planned.writes) == 1
    assert _failed(planned)[0] == "EvictionInvalid"
    started = objects.eviction("pod-1-db-0", objects.target_of(pod), 9, format_time(START))
    planned = _plan(_snapshot(_request(), pods=[pod], evictions=[started]))
    assert _failed(planned)[0] == "AwaitingEviction"


def test_a_request_that_has_ended_is_looked_at_again_after_its_spec_changed() -> None:
    request = _request()
    invalid = {"type": "Failed", "status": "True", "reason": "EvictionInvalid"}
    request["status"] = {"observedGeneration": 1, "conditions": [invalid]}
    assert _plan(_snapshot(request)) == Plan()
    request["metadata"]["generation"] = 2
    assert len(_plan(_snapshot(request)).writes) == 2


@pytest.mark.parametrize(
    ("pod", "taken", "wanted"),
    [
        ("db-0", [], "pod-1-db-0"),
        ("db-0", ["pod-1-db-0", "pod-3-db-0"], "pod-4-db-0"),
        ("db-0", ["pod-1-db-1", "node-7-db-0", "pod-x-db-0", "db-0"], "pod-1-db-0"),
        ("db-0", ["pod-007-db-0", f"pod-{'9' * 200}-db-0"], "pod-1-db-0"),
        ("db-0", ["pod-9-db-0", "pod-10-db-0"], "pod-11-db-0"),
        ("a" * 253, [], "pod-1-" + "a" * 247),
        ("a" * 247 + ".bcdef", ["pod-1-" + "a" * 247], "pod-2-" + "a" * 247),
        ("a" * 246 + "-.cdefg", [], "pod-1-" + "a" * 246),
    ],
)
def test_names_of_new_evictions(pod: str, taken: list[str], wanted: str) -> None:
    assert new_eviction_name(pod, frozenset(taken)) == wanted


# --- requesters -----------------------------------------------------------------------------------


def _asking(requester: str, intent: str, age: int, *, deleting: bool = False) -> EvictionRequest:
    time = format_time(START - timedelta(seconds=age))
    document = objects.request(requester, {}, 5, time, requester, intent)
    if deleting:
        document["metadata"]["deletionTimestamp"] = time
    return decode_model(EvictionRequest, document)


def test_requesters_are_listed_by_relevance() -> None:
    stored = [Requester(name=f"{name}.io/x", intent="Eviction") for name in ("gone", "b")]
    requests = [
        _asking("d.io/x", "Eviction", 99, deleting=True),
        _asking("c.io/x", "Withdrawn", 50),
        _asking("b.io/x", "Eviction", 1),
        _asking("a.io/x", "Eviction", 2),
        _asking("a.io/x", "Withdrawn", 70),
    ]
    listed = [(r.name, r.intent) for r in planned_requesters(stored, requests)]
    assert listed == [
        ("a.io/x", "Eviction"),
        ("b.io/x", "Eviction"),
        ("c.io/x", "Withdrawn"),
        ("d.io/x", "Withdrawn"),
        ("gone.io/x", "Withdrawn"),
    ]


def test_where_room_is_short_the_relevant_ones_stay() -> None:
    stored = [Requester(name=f"old{n}.io/x", intent="Withdrawn") for n in range(MAX_REQUESTERS)]
    requests = [_asking(f"r{n}.io/x", "Eviction", n) for n in range(60)]
    requests += [_asking(f"w{n}.io/x", "Withdrawn", n) for n in range(60)]
    listed = planned_requesters(stored, requests)
    assert len(listed) == MAX_REQUESTERS
    assert sum(r.intent == "Eviction" for r in listed) == 60
    assert {r.name for r in listed if r.intent == "Withdrawn"} == {
        f"w{n}.io/x" for n in range(20, 60)
    }


# --- metadata -------------------------------------------------------------------------------------


def test_a_complete_creation_leaves_nothing_to_add() -> None:
    others = [_request("late", 4, requester="acme.io/backup"), _request("leaving", 5)]
    others[1]["metadata"]["deletionTimestamp"] = format_time(START)
    snapshot = _snapshot(_request(), *others)
    creation = complete_creation(_plan(snapshot).writes[0], snapshot, START)
    assert creation.apply["metadata"]["labels"] == {
        "acme.io/backup": "requester-responder",
        "ops.acme.io/drain": "requester",
        EVICTOR: "responder",
    }
    owners = [owner["name"] for owner in creation.apply["metadata"]["ownerReferences"]]
    assert owners == ["drain", "late"]
    store = Store()
    assert store.apply(creation).violations == ()
    seen = _snapshot(_request(), *others, evictions=list(store.evictions.values()))
    assert plan(Sync.METADATA, creation.key, seen, START) == Plan()


def test_labels_follow_requests_and_outlive_the_pod() -> None:
    roles = {
        "acme.io/backup": "requester-responder",
        "acme.io/proxy": "responder",
        "ops.acme.io/drain": "requester",
        "example.com/team": "storage",
    }
    eviction = objects.eviction("pod-1-db-0", objects.target_of(POD), 9, format_time(START))
    eviction["metadata"]["labels"] = roles
    proxy = _request(requester="acme.io/proxy")
    planned = plan(
        Sync.METADATA,
        Key("default", "pod-1-db-0"),
        _snapshot(proxy, pods=[], evictions=[eviction]),
        START,
    )
    (write,) = planned.writes
    assert write.apply["metadata"]["labels"] == {
        "acme.io/backup": "responder",
        "acme.io/proxy": "requester-responder",
    }


def test_other_owners_are_not_ours_to_state() -> None:
    eviction = objects.eviction("pod-1-db-0", objects.target_of(POD), 9, format_time(START))
    mine = {"apiVersion": "lifecycle.k8s.io/v1alpha1", "kind": "EvictionRequest"}
    gone = mine | {"name": "gone", "uid": objects.uid(77), "controller": True}
    other = {"apiVersion": "v1", "kind": "ConfigMap", "name": "c", "uid": objects.uid(78)}
    eviction["metadata"]["ownerReferences"] = [gone, other]
    snapshot = _snapshot(_request(), evictions=[eviction])
    (write,) = plan(Sync.METADATA, Key("default", "pod-1-db-0"), snapshot, START).writes
    del gone["controller"]
    drain = mine | {"name": "drain", "uid": objects.uid(3)}
    assert write.apply["metadata"]["ownerReferences"] == [gone, drain]


def test_an_eviction_without_a_target_gets_no_labels() -> None:
    eviction = objects.eviction("pod-1-db-0", {}, 9, format_time(START))
    snapshot = _snapshot(_request(), evictions=[eviction])
    assert plan(Sync.METADATA, Key("default", "pod-1-db-0"), snapshot, START) == Plan()


@pytest.mark.parametrize("text", ["", "a", "/a", "a/", "a/b/c"])
def test_keys_are_namespace_and_name(text: str) -> None:
    with pytest.raises(ValueError, match="must be <namespace>/<name>"):
        Key.parse(text)
