"""What the example responder decides, and that the rules admit whatever it says."""

from datetime import datetime, timedelta
from itertools import islice
from typing import Any, Final

import pytest

from examples.responder import alive, completed, pauses, silent, time_left, turn
from rules.api import EVICTOR, Eviction
from rules.decode import decode_model
from rules.evaluate import evaluate
from rules.request import STATUS, Operation, Request
from rules.times import format_time, parse_time
from tests.examples.responding import NAME, documents

Document = dict[str, Any]

START: Final = parse_time("2026-07-01T12:00:00Z")
EXPECT: Final = timedelta(minutes=2)


def eviction(state: str = "Active", condition: str = "False", **entry: str) -> Document:
    """An Eviction whose first responder is ours."""
    reports = [{"name": NAME, "startTime": format_time(START), **entry}, {"name": EVICTOR}]
    return {
        "apiVersion": "lifecycle.k8s.io/v1alpha1",
        "kind": "Eviction",
        "metadata": {"name": "pod-1-db-0", "namespace": "db"},
        "spec": {
            "target": {"pod": {"name": "db-0", "uid": "9b0a7a5e-5f0c-4b52-9f0c-6f2a1f0e7d11"}}
        },
        "status": {
            "targetResponders": [
                {"name": NAME, "priority": 11000, "state": state},
                {"name": EVICTOR, "priority": 100, "state": "Inactive"},
            ],
            "responders": reports,
            "conditions": [
                {
                    "type": "Failed",
                    "status": condition,
                    "reason": "AwaitingEviction",
                    "lastTransitionTime": format_time(START),
                }
            ],
        },
    }


def test_our_turn() -> None:
    assert turn(eviction(), NAME) == {"name": NAME, "startTime": format_time(START)}


@pytest.mark.parametrize(
    "other",
    [
        {},
        {"status": {}},
        eviction("Inactive"),
        eviction("Completed"),
        eviction("Interrupted"),
        eviction("Canceled"),
        eviction(condition="True"),
        eviction(completionTime=format_time(START)),
    ],
    ids=str,
)
def test_not_our_turn(other: Document) -> None:
    assert turn(other, NAME) is None
    assert turn(eviction(), "mesh.example.com/drain") is None


def ahead(**span: float) -> datetime:
    return START + timedelta(**span)


def said(heartbeat: datetime) -> Document:
    return eviction(heartbeatTime=format_time(heartbeat), message="40 percent")


SITUATIONS: Final = {
    "at the start": (eviction(), START),
    "with a clock that is behind": (eviction(), ahead(seconds=-20)),
    "after a heartbeat of a moment ago": (said(ahead(minutes=1)), ahead(minutes=1, seconds=1)),
    "after a heartbeat by a clock ahead": (said(ahead(minutes=1)), ahead(seconds=50)),
    "after a heartbeat of 20 seconds ago": (said(ahead(minutes=1)), ahead(minutes=1, seconds=20)),
    "when the estimate has just passed": (said(ahead(minutes=1)), START + EXPECT),
    "an hour later": (said(ahead(minutes=59)), ahead(hours=1)),
}


@pytest.mark.parametrize(("stored", "now"), SITUATIONS.values(), ids=SITUATIONS)
def test_every_report_is_admitted_without_a_warning(stored: Document, now: datetime) -> None:
    entry = turn(stored, NAME)
    assert entry is not None
    for report in (
        alive(entry, "50 percent", EXPECT, now),
        completed(entry, "Drained.", now),
        silent(entry, "Gave up."),
    ):
        assert evaluate(_write(stored, report, now)).violations == (), report


def _write(stored: Document, report: Document, now: datetime) -> Request:
    """The write that applies ``report``."""
    ours, others = stored["status"]["responders"]
    applied = {"startTime": ours["startTime"], **report}
    new = stored | {"status": stored["status"] | {"responders": [applied, others]}}
    return Request(
        operation=Operation.UPDATE,
        subresource=STATUS,
        object=decode_model(Eviction, new),
        old_object=decode_model(Eviction, stored),
        name="pod-1-db-0",
        namespace="db",
        now=now,
    )


def test_heartbeats_have_distance() -> None:
    entry = turn(said(ahead(minutes=1)), NAME)
    assert entry is not None
    soon = alive(entry, "50 percent", EXPECT, ahead(minutes=1, seconds=19))
    assert soon["heartbeatTime"] == format_time(ahead(minutes=1))
    later = alive(entry, "50 percent", EXPECT, ahead(minutes=1, seconds=20))
    assert later["heartbeatTime"] == format_time(ahead(minutes=1, seconds=20))


def test_a_passed_estimate_is_not_given() -> None:
    entry = turn(eviction(), NAME)
    assert entry is not None
    expected = alive(entry, "", EXPECT, START)["expectedCompletionTime"]
    assert expected == format_time(START + EXPECT)
    assert "expectedCompletionTime" not in alive(entry, "", EXPECT, START + EXPECT)


def test_patience_counts_from_the_start() -> None:
    entry = turn(said(ahead(minutes=50)), NAME)
    assert entry is not None
    assert time_left(entry, timedelta(hours=1), ahead(minutes=55)) == timedelta(minutes=5)


def test_pauses_grow_to_a_bound() -> None:
    assert list(islice(pauses(longest=5), 5)) == [1, 2, 4, 5, 5]


def test_the_manifests_name_one_responder() -> None:
    account, role, _, deployment = documents("responder.yaml")
    flags = deployment["spec"]["template"]["spec"]["containers"][0]["args"]
    assert f"--name={NAME}" in flags
    assert f"--namespace={account['metadata']['namespace']}" in flags
    assert [rule["resourceNames"] for rule in role["rules"] if "resourceNames" in rule] == [[NAME]]
    for mode in ("native", "crd"):
        assert NAME in str(documents(f"responder-pod-{mode}.yaml"))
