"""The example responder on a real API server, with the real controller and webhook."""

import pytest

from rules.api import EVICTOR
from tests.controller.program import reasons, states
from tests.e2e.api import APPLY, Object
from tests.e2e.times import ago
from tests.e2e.waiting import eventually
from tests.examples.responding import NAME, Database, Responder, documents, responding
from tests.examples.shell import page

pytestmark = pytest.mark.e2e

SECOND = "mesh.example.com/drain"
EVICTION = "pod-1-db-0"


def test_from_the_manifests_to_the_end(database: Database) -> None:
    for document in documents("responder.yaml"):
        database.apply(document)
    mode = "native" if database.cluster.is_native else "crd"
    (pod,) = documents(f"responder-pod-{mode}.yaml")
    database.apply(pod)
    created = database.get("pods", "db-0")
    assert created is not None
    drain = database.script('echo "failed over $POD_NAMESPACE/$POD_NAME $POD_UID"')
    with responding(database, drain):
        database.request(created, "drain")
        ended = database.wait_for_reason("evictions", EVICTION, "PodDeleted")
        database.wait_for_reason("evictionrequests", "drain", "PodDeleted")
    assert states(ended) == {NAME: "Completed", EVICTOR: "Completed"}
    entry = database.entry(EVICTION)
    pod_name = f"{database.namespace}/db-0 {created['metadata']['uid']}"
    assert entry["message"] == f"Drained: failed over {pod_name}"
    assert entry["startTime"] <= entry["completionTime"]


def test_life_and_estimate_are_told_while_it_lasts(database: Database) -> None:
    database.request(database.create_pod("db-0", NAME), "drain")
    with responding(database, database.script_that_waits("echo 40 percent")):
        eventually(lambda: "heartbeatTime" in database.entry(EVICTION), "it shows life")
        entry = database.entry(EVICTION)
        assert entry["startTime"] <= entry["heartbeatTime"]
        assert entry["startTime"] < entry["expectedCompletionTime"]
        database.go_on()
        database.wait_for_reason("evictions", EVICTION, "PodDeleted")
    entry = database.entry(EVICTION)
    assert entry["message"] == "Drained: 40 percent"
    assert "expectedCompletionTime" not in entry


def test_two_in_order_of_priority(database: Database) -> None:
    with (
        responding(database, database.script("echo second >> order"), name=SECOND),
        responding(database, database.script("sleep 1; echo first >> order")),
    ):
        database.request(database.create_pod("db-0", NAME, SECOND), "drain")
        ended = database.wait_for_reason("evictions", EVICTION, "PodDeleted")
    assert states(ended) == {NAME: "Completed", SECOND: "Completed", EVICTOR: "Completed"}
    assert (database.folder / "order").read_text().split() == ["first", "second"]


def test_killed_half_way_and_started_again(database: Database) -> None:
    drain = database.script_that_waits("echo begun >> attempts")
    database.request(database.create_pod("db-0", NAME), "drain")
    first = Responder(database, drain)
    try:
        eventually(lambda: "heartbeatTime" in database.entry(EVICTION), "it shows life")
    finally:
        first.kill()
    before = database.entry(EVICTION)
    with responding(database, drain) as second:
        eventually(lambda: second.says("our turn"), "the next one takes over")
        database.go_on()
        ended = database.wait_for_reason("evictions", EVICTION, "PodDeleted")
    assert states(ended) == {NAME: "Completed", EVICTOR: "Completed"}
    after = database.entry(EVICTION)
    assert after["startTime"] == before["startTime"]
    assert before["heartbeatTime"] <= after["heartbeatTime"] <= after["completionTime"]
    assert (database.folder / "attempts").read_text().split() == ["begun", "begun"]


def test_failures_are_told_and_tried_again(database: Database) -> None:
    database.request(database.create_pod("db-0", NAME), "drain")
    with responding(database, database.script("test -e go-on || { echo no standby; exit 3; }")):

        def is_told() -> bool:
            message = str(database.entry(EVICTION).get("message"))
            return message.endswith("ended with status 3. no standby")

        eventually(is_told, "the failure is told")
        assert "completionTime" not in database.entry(EVICTION)
        database.go_on()
        ended = database.wait_for_reason("evictions", EVICTION, "PodDeleted")
    assert states(ended) == {NAME: "Completed", EVICTOR: "Completed"}
    assert database.entry(EVICTION)["message"] == "Drained: done"


def test_gives_up_and_hands_over(database: Database) -> None:
    database.request(database.create_pod("db-0", NAME), "drain")
    with responding(database, "false", "--patience", "1", "--hand-over"):
        ended = database.wait_for_reason("evictions", EVICTION, "PodDeleted")
    assert states(ended) == {NAME: "Completed", EVICTOR: "Completed"}
    assert database.entry(EVICTION)["message"].startswith("Gave up: ")


def test_gives_up_and_is_passed_over(database: Database) -> None:
    database.request(database.create_pod("db-0", NAME), "drain")
    with responding(database, "false", "--patience", "1"):

        def has_given_up(found: Object) -> bool:
            return "Gave up: " in str(found.get("status"))

        found = database.wait_for("evictions", EVICTION, has_given_up)
        assert reasons(found) == set()
        # No write could make it so old: into the storage, past the API server.
        for entry in found["status"]["responders"]:
            entry |= {
                key: ago(minutes=21) for key in ("startTime", "heartbeatTime") if key in entry
            }
        database.cluster.etcd.put("evictions", found)
        ended = database.wait_for_reason("evictions", EVICTION, "PodDeleted")
    assert states(ended) == {NAME: "Interrupted", EVICTOR: "Completed"}
    assert "completionTime" not in database.entry(EVICTION)


def test_stops_when_the_request_is_withdrawn(database: Database) -> None:
    drain = database.script_that_waits("trap 'touch undone; exit 1' TERM; touch begun")
    pod = database.create_pod("db-0", NAME)
    database.request(pod, "drain")
    with responding(database, drain):
        eventually((database.folder / "begun").exists, "it drains")
        database.withdraw("drain")
        ended = database.wait_for_reason("evictions", EVICTION, "CanceledDueToNoRequesters")
        eventually((database.folder / "undone").exists, "the command is stopped")
        assert states(ended) == {NAME: "Canceled", EVICTOR: "Inactive"}
        assert "completionTime" not in database.entry(EVICTION)
        database.go_on()
        database.request(pod, "again")
        database.wait_for_reason("evictions", "pod-2-db-0", "PodDeleted")
    assert database.entry("pod-2-db-0")["message"] == "Drained: done"


def test_ends_in_good_order(database: Database) -> None:
    drain = database.script_that_waits("trap 'touch undone; exit 1' TERM; touch begun")
    database.request(database.create_pod("db-0", NAME), "drain")
    responder = Responder(database, drain)
    try:
        eventually((database.folder / "begun").exists, "it drains")
        responder.terminate()
        end = eventually(responder.end, "the responder ends")
    finally:
        responder.kill()
    assert "ended with status 0" in end
    assert "Traceback" not in end
    assert (database.folder / "undone").exists()
    assert "completionTime" not in database.entry(EVICTION)


def test_api_server_restarts(database: Database) -> None:
    cluster = database.cluster
    database.request(database.create_pod("db-0", NAME), "drain")
    with responding(database, database.script_that_waits()) as responder:
        eventually(lambda: "heartbeatTime" in database.entry(EVICTION), "it shows life")
        cluster.plane.stop_apiserver()
        database.go_on()
        eventually(lambda: responder.says("not reported: "), "it can't report the end")
        cluster.plane.start_apiserver()
        cluster.api.close()  # its connections have ended with the old one
        ended = database.wait_for_reason("evictions", EVICTION, "PodDeleted")
    assert states(ended) == {NAME: "Completed", EVICTOR: "Completed"}


def test_a_report_about_what_has_changed_is_a_conflict(database: Database) -> None:
    """Why a report carries the resource version; custom resources take any UID."""
    database.request(database.create_pod("db-0", NAME), "drain")
    found = database.wait_for("evictions", EVICTION, lambda e: states(e).get(NAME) == "Active")
    database.patch(database.path("evictions", EVICTION), {"metadata": {"labels": {"a": "b"}}})
    version = found["metadata"]["resourceVersion"]
    report = {
        "apiVersion": found["apiVersion"],
        "kind": "Eviction",
        "metadata": {"name": EVICTION, "resourceVersion": version},
        "status": {"responders": [{"name": NAME, "message": "late"}]},
    }
    path = database.path("evictions", EVICTION, "status") + "?fieldManager=late&force=true"
    answer = database.cluster.api("PATCH", path, report, content_type=APPLY)
    assert answer.code == 409, answer.body
    assert "message" not in database.entry(EVICTION)


def test_who_may_not_respond_is_refused(database: Database) -> None:
    database.request(database.create_pod("db-0", NAME), "drain")
    with responding(database, "true", rights=SECOND) as responder:
        refusal = f"may not respond as '{NAME}' in namespace '{database.namespace}'"
        eventually(lambda: responder.says(refusal), "the report is refused")
        assert set(database.entry(EVICTION)) == {"name", "startTime"}
    assert refusal.replace(database.namespace, "db") in page("responders.md")
