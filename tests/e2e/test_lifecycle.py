"""An eviction from its request to its end, as controller and responders write it."""

from collections.abc import Callable

import pytest

from rules.api import EVICTOR
from tests.e2e.api import Answer, Object
from tests.e2e.cluster import Cluster, path_of, resource_of
from tests.e2e.objects import (
    FIRST,
    REQUESTER,
    SECOND,
    condition,
    eviction,
    initial_status,
    request,
)
from tests.e2e.times import ago

pytestmark = pytest.mark.e2e

FIRST_INDEX, SECOND_INDEX, EVICTOR_INDEX = 0, 1, 2


class Status:
    """The status of one object, read before and replaced by every write."""

    def __init__(self, cluster: Cluster, namespace: str, document: Object) -> None:
        self._cluster = cluster
        self._namespace = namespace
        self._path = path_of(document, namespace, document["metadata"]["name"])

    def read(self) -> Object:
        answer = self._cluster.api("GET", self._path)
        assert answer.ok, answer.message
        found: Object = answer.body
        return found

    def change(self, change: Callable[[Object], None]) -> Answer:
        """Apply ``change`` to the stored status and write it back."""
        document = self.read()
        change(document["status"])
        return self._cluster.replace(self._namespace, document, "status")

    def must_change(self, change: Callable[[Object], None]) -> None:
        answer = self.change(change)
        assert answer.ok, answer.message


def move(status: Object, index: int, state: str, **report: str) -> None:
    """Give a responder another state, and add to its report."""
    status["targetResponders"][index]["state"] = state
    status["responders"][index] |= report


def report_writer(report: Object) -> Callable[[Object], None]:
    """Replace parts of a status."""
    return lambda status: status.update(report)


def hand_over(status: Object) -> None:
    """The first responder has completed, the second one starts."""
    move(status, FIRST_INDEX, "Completed")
    move(status, SECOND_INDEX, "Active", startTime=ago())


@pytest.fixture
def status(cluster: Cluster, namespace: str) -> Status:
    """The status of an Eviction whose first responder is Active."""
    created = cluster.create(namespace, eviction())
    assert created.ok, created.message
    status = Status(cluster, namespace, eviction())
    status.must_change(lambda old: old.update(initial_status()))
    return status


def test_from_the_request_to_the_end(cluster: Cluster, namespace: str, status: Status) -> None:
    assert cluster.create(namespace, request()).ok

    status.must_change(lambda old: move(old, FIRST_INDEX, "Active", heartbeatTime=ago()))
    status.must_change(
        lambda old: move(
            old,
            FIRST_INDEX,
            "Active",
            expectedCompletionTime=ago(minutes=-10),
            message="failing over",
        )
    )
    status.must_change(lambda old: move(old, FIRST_INDEX, "Active", completionTime=ago()))
    status.must_change(hand_over)
    status.must_change(lambda old: move(old, SECOND_INDEX, "Active", completionTime=ago()))

    def end(old: Object) -> None:
        move(old, SECOND_INDEX, "Completed")
        old["conditions"] = [
            condition("TargetEvicted", "True", "PodDeleted"),
            condition("Failed", "False", "Succeeded"),
        ]

    status.must_change(end)

    final = status.read()["status"]
    states = {each["name"]: each["state"] for each in final["targetResponders"]}
    assert states == {FIRST: "Completed", SECOND: "Completed", EVICTOR: "Inactive"}
    assert final["responders"][FIRST_INDEX]["message"] == "failing over"


def test_the_request_learns_how_it_ended_and_may_be_repeated(
    cluster: Cluster, namespace: str
) -> None:
    assert cluster.create(namespace, request()).ok
    status = Status(cluster, namespace, request())
    for verdict, reason in (("False", "AwaitingEviction"), ("True", "PodDeleted")) * 2:
        report = {"conditions": [condition("TargetEvicted", verdict, reason)]}
        status.must_change(report_writer(report))
    withdrawn = status.read()
    withdrawn["spec"]["intent"] = "Withdrawn"
    answer = cluster.replace(namespace, withdrawn)
    assert answer.ok, answer.message
    assert answer.body["metadata"]["generation"] == 2


def test_nobody_overtakes(status: Status) -> None:
    answer = status.change(hand_over)
    # What the definitions refuse they refuse at the list.
    assert fields(answer) <= {"status.targetResponders", "status.targetResponders[0].state"}
    assert status.read()["status"]["targetResponders"][0]["state"] == "Active"


def test_a_heartbeat_does_not_go_back(status: Status) -> None:
    status.must_change(lambda old: move(old, FIRST_INDEX, "Active", heartbeatTime=ago(seconds=-5)))
    answer = status.change(lambda old: move(old, FIRST_INDEX, "Active", heartbeatTime=ago()))
    assert fields(answer) == {"status.responders[0].heartbeatTime"}


def test_a_report_belongs_to_the_active_one(status: Status) -> None:
    answer = status.change(lambda old: move(old, SECOND_INDEX, "Inactive", message="me first"))
    assert fields(answer) <= {"status.responders", "status.responders[1]"}
    assert answer.code == 422


def test_a_requester_stays_on_record(status: Status) -> None:
    answer = status.change(lambda old: old.update(requesters=[]))
    assert answer.ok, answer.message
    (warning,) = answer.warnings
    assert REQUESTER in warning


def test_the_end_is_final(status: Status) -> None:
    def end(old: Object) -> None:
        move(old, FIRST_INDEX, "Canceled")
        old["conditions"] = [condition("Failed", "True", "CanceledDueToNoRequesters")]

    status.must_change(end)
    answer = status.change(
        lambda old: old.update(conditions=[condition("Failed", "False", "AwaitingEviction")])
    )
    assert "status.conditions" in fields(answer)


def test_the_end_is_not_blurred(cluster: Cluster, namespace: str) -> None:
    assert cluster.create(namespace, eviction()).ok
    status = Status(cluster, namespace, eviction())
    end = condition("Failed", "True", "EvictionInvalid")
    status.must_change(report_writer({"conditions": [end]}))
    answer = status.change(report_writer({"conditions": [end | {"status": "Unknown"}]}))
    # Natively admitted: the guard `condition-finality` is Usher's own.
    assert fields(answer) == {"status.conditions[0].status"}


@pytest.mark.parametrize(("minutes", "admitted"), [(25, True), (5, False)])
def test_silence_is_passed_over(
    minutes: int, *, admitted: bool, cluster: Cluster, namespace: str
) -> None:
    stored = eviction(namespace=namespace, uid="1", creationTimestamp=ago(hours=1))
    stored["status"] = initial_status()
    stored["status"]["responders"][0]["startTime"] = ago(minutes=minutes)
    cluster.etcd.put(resource_of(stored), stored)

    def pass_over(old: Object) -> None:
        move(old, FIRST_INDEX, "Interrupted")
        move(old, SECOND_INDEX, "Active", startTime=ago())

    answer = Status(cluster, namespace, stored).change(pass_over)
    assert answer.ok is admitted, answer.body
    if not admitted:
        assert answer.causes == {("FieldValueForbidden", "status.targetResponders[0].state")}


def fields(answer: Answer) -> set[str]:
    assert not answer.ok
    return {field for _, field in answer.causes}
