"""Evictions on a real API server, from the request to the end."""

import pytest

from rules.api import EVICTOR
from tests.controller.program import (
    NODE,
    Program,
    Users,
    cluster,
    controller,
    present,
    reasons,
    states,
    users,
)
from tests.controller.rights import RESPONDERS
from tests.e2e.api import Object
from tests.e2e.guarded import ONCALL
from tests.e2e.times import ago
from tests.e2e.usher import WEBHOOK
from tests.e2e.waiting import eventually

__all__ = ["cluster", "controller", "users"]
pytestmark = pytest.mark.e2e

FIRST, SECOND = "db.acme.io/failover", "mesh.example.com/drain"
BUDGET, GUARDED = "three-of-web", {"app": "web"}


def test_pod_is_evicted(users: Users) -> None:
    pod = users.create_pod("web-0")
    users.request(pod, "drain")
    ended = users.wait_for_reason("evictions", "pod-1-web-0", "PodDeleted")
    assert states(ended) == {EVICTOR: "Completed"}
    labels = ended["metadata"]["labels"]
    assert labels == {EVICTOR: "responder", "drain.acme.io/drain": "requester"}
    assert [owner["name"] for owner in ended["metadata"]["ownerReferences"]] == ["drain"]
    users.wait_for_reason("evictionrequests", "drain", "PodDeleted")
    assert users.get("pods", "web-0") is None


def test_responders_take_turns(users: Users) -> None:
    pod = users.create_pod("web-0", FIRST, SECOND)
    users.request(pod, "drain")
    users.wait_for("evictions", "pod-1-web-0", lambda e: states(e).get(FIRST) == "Active")
    users.report("pod-1-web-0", FIRST, completionTime=present())
    users.wait_for("evictions", "pod-1-web-0", lambda e: states(e)[SECOND] == "Active")
    assert users.get("pods", "web-0") is not None
    users.report("pod-1-web-0", SECOND, heartbeatTime=present(), completionTime=present())
    ended = users.wait_for_reason("evictions", "pod-1-web-0", "PodDeleted")
    assert states(ended) == {FIRST: "Completed", SECOND: "Completed", EVICTOR: "Completed"}


def test_nobody_speaks_for_another(users: Users) -> None:
    """The guards deny in front of all of these tests."""
    users.request(users.create_pod("web-0", FIRST), "drain")
    found = users.wait_for("evictions", "pod-1-web-0", lambda e: states(e).get(FIRST) == "Active")
    for report in found["status"]["responders"]:
        if report["name"] == FIRST:
            report["completionTime"] = present()
    path = users.path("evictions", "pod-1-web-0", "status")
    answer = users.cluster.api("PUT", path, found, identity=RESPONDERS[SECOND])
    assert (answer.code, WEBHOOK in answer.message) == (403, True), answer.message
    assert f"may not respond as '{FIRST}'" in answer.message


def test_pod_deleted_under_a_silent_responder(users: Users) -> None:
    pod = users.create_pod("web-0", FIRST)
    users.request(pod, "drain")
    users.wait_for("evictions", "pod-1-web-0", lambda e: states(e).get(FIRST) == "Active")
    users.delete("pods", "web-0")
    ended = users.wait_for_reason("evictions", "pod-1-web-0", "PodDeleted")
    assert states(ended) == {FIRST: "Interrupted", EVICTOR: "Inactive"}


def test_silent_responder_is_passed_over(users: Users) -> None:
    pod = users.create_pod("web-0", FIRST)
    users.request(pod, "drain")
    found = users.wait_for("evictions", "pod-1-web-0", lambda e: states(e).get(FIRST) == "Active")
    # No write could make it so old: into the storage, past the API server.
    for report in found["status"]["responders"]:
        if report["name"] == FIRST:
            report["startTime"] = ago(minutes=21)
    users.cluster.etcd.put("evictions", found)
    ended = users.wait_for_reason("evictions", "pod-1-web-0", "PodDeleted")
    assert states(ended) == {FIRST: "Interrupted", EVICTOR: "Completed"}


def test_slow_deletion_is_announced(users: Users) -> None:
    # A pod stays until its kubelet confirms the end, and this one never will.
    pod = users.create_pod("web-0", node="unreachable")
    users.request(pod, "drain")

    def expects(eviction: Object) -> bool:
        reports = eviction.get("status", {}).get("responders", [])
        return any("expectedCompletionTime" in report for report in reports)

    told = users.wait_for("evictions", "pod-1-web-0", expects)
    leaving = users.get("pods", "web-0")
    assert leaving is not None
    (report,) = told["status"]["responders"]
    assert report["expectedCompletionTime"] == leaving["metadata"]["deletionTimestamp"]
    users.call("DELETE", users.path("pods", "web-0") + "?gracePeriodSeconds=0")
    ended = users.wait_for_reason("evictions", "pod-1-web-0", "PodDeleted")
    assert states(ended) == {EVICTOR: "Completed"}


def test_pod_has_ended(users: Users) -> None:
    pod = users.create_pod("web-0", FIRST, node=None, ownerReferences=[_job(users)])
    users.request(pod, "drain")
    users.wait_for("evictions", "pod-1-web-0", lambda e: states(e).get(FIRST) == "Active")
    # Once on a node, the pod of a job runs to its end.
    binding = {"metadata": {"name": "web-0"}, "target": {"kind": "Node", "name": NODE}}
    users.call("POST", users.path("pods", "web-0", "binding"), binding)
    ended = users.wait_for_reason("evictions", "pod-1-web-0", "PodTerminal")
    assert states(ended) == {FIRST: "Interrupted", EVICTOR: "Inactive"}
    users.wait_for_reason("evictionrequests", "drain", "PodTerminal")
    assert users.get("pods", "web-0") is not None


def _job(users: Users) -> Object:
    """A reference to a job, which is not there to make pods of its own."""
    containers = [{"name": "c", "image": "c"}]
    template = {"spec": {"restartPolicy": "Never", "containers": containers}}
    body = {"metadata": {"name": "backup"}, "spec": {"template": template}}
    job = users.call("POST", users.path("jobs"), body).body
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "name": "backup",
        "uid": job["metadata"]["uid"],
    }


def test_cancelled_while_active_and_asked_again(users: Users) -> None:
    pod = users.create_pod("web-0", FIRST)
    users.request(pod, "drain")
    users.wait_for("evictions", "pod-1-web-0", lambda e: states(e).get(FIRST) == "Active")
    users.withdraw("drain")
    ended = users.wait_for_reason("evictions", "pod-1-web-0", "CanceledDueToNoRequesters")
    assert states(ended) == {FIRST: "Canceled", EVICTOR: "Inactive"}
    users.wait_for_reason("evictionrequests", "drain", "CanceledDueToNoRequesters")
    assert users.get("pods", "web-0") is not None
    users.request(pod, "again")
    users.wait_for("evictions", "pod-2-web-0", lambda e: states(e).get(FIRST) == "Active")


def test_pod_that_is_not_there(users: Users) -> None:
    pod = users.create_pod("web-0")
    users.delete("pods", "web-0")
    users.wait_until_gone("pods", "web-0")
    # The guard `target-exists`, set to deny, keeps others from asking for it.
    users.request(pod, "drain", identity=ONCALL)
    users.wait_for_reason("evictionrequests", "drain", "EvictionInvalid")
    users.create_pod("web-0")
    users.request(pod, "namesake", identity=ONCALL)
    users.wait_for_reason("evictionrequests", "namesake", "EvictionInvalid")
    assert users.list("evictions") == []


def test_many_requesters_share_one_eviction(users: Users) -> None:
    pod = users.create_pod("web-0", FIRST)
    count, most = 103, 100
    for number in range(count):
        users.request(pod, f"drain-{number}")
    users.wait_for("evictions", "pod-1-web-0", lambda e: len(_owners(e)) == most)
    users.wait_for(
        "evictions", "pod-1-web-0", lambda e: len(e.get("status", {}).get("requesters", [])) == most
    )
    assert len(users.list("evictions")) == 1
    users.report("pod-1-web-0", FIRST, completionTime=present())
    for number in range(count):
        users.wait_for_reason("evictionrequests", f"drain-{number}", "PodDeleted")


def test_duplicate_eviction_is_refused(users: Users) -> None:
    pod = users.create_pod("web-0", FIRST)
    users.request(pod, "drain")
    first = users.wait_for("evictions", "pod-1-web-0", lambda e: FIRST in states(e))
    second: Object = {
        "apiVersion": first["apiVersion"],
        "kind": "Eviction",
        "metadata": {"name": "pod-9-web-0"},
        "spec": first["spec"],
    }
    users.call("POST", users.path("evictions"), second)
    users.wait_for_reason("evictions", "pod-9-web-0", "EvictionInvalid")
    assert reasons(users.eviction("pod-1-web-0")) == set()


def test_budget_blocks_and_then_frees(users: Users, controller: Program) -> None:
    pod = users.create_pod("web-0", labels=GUARDED)
    _guard(users)
    before = controller.metric("imperative_eviction_responder_controller_failed_evictions_total")
    users.request(pod, "drain")
    told = users.wait_for("evictions", "pod-1-web-0", lambda e: BUDGET in _message(e))
    assert _message(told).startswith("Attempt 1 to evict the pod was refused: ")
    refusals = [line for line in controller.log() if line.get("budget") == BUDGET]
    assert refusals[0]["pod"] == "web-0"
    after = controller.metric("imperative_eviction_responder_controller_failed_evictions_total")
    assert after > before
    subjects = eventually(lambda: _subjects(users), "Events about Eviction and pod")
    assert subjects == ["Eviction", "Pod"]
    users.create_pod("web-1", labels=GUARDED)
    ended = users.wait_for_reason("evictions", "pod-1-web-0", "PodDeleted")
    assert states(ended) == {EVICTOR: "Completed"}
    assert users.get("pods", "web-1") is not None


def test_namesake_of_the_pod_stays(users: Users) -> None:
    pod = users.create_pod("web-0", labels=GUARDED)
    _guard(users)
    users.request(pod, "drain")
    users.wait_for("evictions", "pod-1-web-0", lambda e: BUDGET in _message(e))
    users.delete("pods", "web-0")
    users.wait_until_gone("pods", "web-0")
    namesake = users.create_pod("web-0")
    ended = users.wait_for_reason("evictions", "pod-1-web-0", "PodDeleted")
    assert states(ended) == {EVICTOR: "Completed"}
    users.wait_for_reason("evictionrequests", "drain", "PodDeleted")
    left = users.get("pods", "web-0")
    assert left is not None
    assert left["metadata"]["uid"] == namesake["metadata"]["uid"]
    assert "deletionTimestamp" not in left["metadata"]


def test_eviction_goes_with_the_last_request(users: Users) -> None:
    pod = users.create_pod("web-0", FIRST)
    for name in ("drain", "upgrade"):
        users.request(pod, name)
    users.wait_for("evictions", "pod-1-web-0", lambda e: _owners(e) == {"drain", "upgrade"})
    users.delete("evictionrequests", "drain")
    users.wait_for("evictions", "pod-1-web-0", lambda e: _owners(e) == {"upgrade"})
    users.delete("evictionrequests", "upgrade")
    users.wait_until_gone("evictions", "pod-1-web-0")
    # All that the controller had to say about it was said before this is over.
    users.request(users.create_pod("web-1"), "other")
    users.wait_for_reason("evictionrequests", "other", "PodDeleted")
    assert [eviction["metadata"]["name"] for eviction in users.list("evictions")] == ["pod-1-web-1"]
    assert users.get("pods", "web-0") is not None


def _owners(eviction: Object) -> set[str]:
    return {owner["name"] for owner in eviction["metadata"].get("ownerReferences", [])}


def _guard(users: Users) -> None:
    """A budget for guarded pods; returns when their only one can't be spared."""
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": BUDGET},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": GUARDED}},
    }
    users.call("POST", users.path("poddisruptionbudgets"), budget)
    users.wait_for(
        "poddisruptionbudgets", BUDGET, lambda b: b.get("status", {}).get("currentHealthy") == 1
    )


def _message(eviction: Object) -> str:
    """What the evictor has to say."""
    reports = eviction.get("status", {}).get("responders", [])
    return next((str(r.get("message", "")) for r in reports if r["name"] == EVICTOR), "")


def _subjects(users: Users) -> list[str] | None:
    """What the Events of the namespace are about, once there are two."""
    kinds = [event["involvedObject"]["kind"] for event in users.list("events")]
    return sorted(kinds) if len(kinds) > 1 else None
