"""An eviction from its request to its end, as controller and responders write it."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import pytest

from rules.api import EVICTOR
from tests.e2e import rbac
from tests.e2e.api import Answer, Object
from tests.e2e.cluster import Cluster, path_of, resource_of
from tests.e2e.guarded import guarded
from tests.e2e.objects import (
    FIRST,
    REQUESTER,
    SECOND,
    condition,
    eviction,
    initial_status,
    pod,
    request,
)
from tests.e2e.times import ago
from tests.e2e.usher import Registration

pytestmark = pytest.mark.e2e

FIRST_INDEX, SECOND_INDEX, EVICTOR_INDEX = 0, 1, 2
_MANAGER: Final = "system:kube-controller-manager"
_SYSTEM: Final = "system:serviceaccount:kube-system:"


@dataclass(frozen=True)
class Cast:
    """Who writes which part of an eviction."""

    controller: str
    evictor: str
    first: str
    second: str
    drainer: str
    denies: bool
    """Whether every guard is set to deny, instead of to its default."""


_OTHERS: Final = {"first": "responder-a", "second": "responder-b", "drainer": "drainer"}
CASTS: Final = {
    "admin": Cast("admin", "admin", "admin", "admin", "admin", denies=False),
    "controller-manager": Cast(_MANAGER, _MANAGER, **_OTHERS, denies=True),
    "service-accounts": Cast(
        f"{_SYSTEM}evictionrequest-controller",
        f"{_SYSTEM}imperative-eviction-responder-controller",
        **_OTHERS,
        denies=True,
    ),
}
"""One superuser, and Kubernetes' own controllers in both ways to run them, with real users."""


@pytest.fixture(scope="module")
def guards(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registration]:
    """A webhook that denies what any guard objects to, and rights for all who write."""
    for cast in (CASTS["controller-manager"], CASTS["service-accounts"]):
        for user in (cast.controller, cast.evictor):
            rbac.grant_everywhere(cluster, user, rbac.WRITE_STATUS)
    rbac.grant_everywhere(cluster, _OTHERS["first"], rbac.WRITE_STATUS, rbac.respond(FIRST))
    rbac.grant_everywhere(cluster, _OTHERS["second"], rbac.WRITE_STATUS, rbac.respond(SECOND))
    own = (rbac.EDIT, rbac.EVICT, rbac.request(REQUESTER))
    rbac.grant_everywhere(cluster, _OTHERS["drainer"], *own)
    with guarded(cluster, tmp_path_factory.mktemp("guarded")) as registration:
        yield registration


class Stage:
    """A namespace with a pod, and whoever writes there."""

    def __init__(self, cluster: Cluster, namespace: str, cast: Cast) -> None:
        self.cluster = cluster
        self.namespace = namespace
        self.cast = cast
        created = cluster.create(namespace, pod())
        assert created.ok, created.message
        self._uid = created.body["metadata"]["uid"]

    def aimed(self, document: Object) -> Object:
        """``document`` with the pod as its target."""
        document["spec"]["target"]["pod"]["uid"] = self._uid
        return document

    def request(self) -> "Status":
        """Ask for the eviction of the pod."""
        return self._create(self.aimed(request()), self.cast.drainer)

    def eviction(self) -> "Status":
        """An Eviction that nobody has looked at."""
        return self._create(self.aimed(eviction()), "admin")

    def end_pod(self) -> None:
        path = path_of(pod(), self.namespace, "web-0")
        answer = self.cluster.api("DELETE", f"{path}?gracePeriodSeconds=0")
        assert answer.ok, answer.message

    def _create(self, document: Object, user: str) -> "Status":
        answer = self.cluster.create(self.namespace, document, identity=user)
        assert answer.ok, answer.message
        return Status(self, document)


@pytest.fixture(params=CASTS)
def stage(
    request: pytest.FixtureRequest,
    cluster: Cluster,
    registration: Registration,
    guards: Registration,
) -> Stage:
    """With each cast."""
    cast = CASTS[request.param]
    place = guards if cast.denies else registration
    return Stage(cluster, place.new_namespace(), cast)


class Status:
    """The status of one object, read before and replaced by every write."""

    def __init__(self, stage: Stage, document: Object) -> None:
        self._stage = stage
        self._path = path_of(document, stage.namespace, document["metadata"]["name"])

    def read(self) -> Object:
        answer = self._stage.cluster.api("GET", self._path)
        assert answer.ok, answer.message
        found: Object = answer.body
        return found

    def change(self, change: Callable[[Object], None], by: str = "") -> Answer:
        """Apply ``change`` to the stored status and write it back, by default as controller."""
        document = self.read()
        change(document["status"])
        user = by or self._stage.cast.controller
        return self._stage.cluster.replace(self._stage.namespace, document, "status", identity=user)

    def must_change(self, change: Callable[[Object], None], by: str = "") -> None:
        answer = self.change(change, by)
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


def evict(status: Object) -> None:
    """The second responder has completed, the evictor starts."""
    move(status, SECOND_INDEX, "Completed")
    move(status, EVICTOR_INDEX, "Active", startTime=ago())


def end(status: Object) -> None:
    """The evictor has completed, and the pod is gone."""
    move(status, EVICTOR_INDEX, "Completed")
    status["conditions"] = [
        condition("TargetEvicted", "True", "PodDeleted"),
        condition("Failed", "False", "Succeeded"),
    ]


@pytest.fixture
def status(stage: Stage) -> Status:
    """The status of an Eviction whose first responder is Active."""
    status = stage.eviction()
    status.must_change(lambda old: old.update(initial_status()))
    return status


def test_from_the_request_to_the_end(stage: Stage, status: Status) -> None:
    cast = stage.cast
    stage.request()

    status.must_change(
        lambda old: move(old, FIRST_INDEX, "Active", heartbeatTime=ago()), cast.first
    )
    status.must_change(
        lambda old: move(
            old,
            FIRST_INDEX,
            "Active",
            expectedCompletionTime=ago(minutes=-10),
            message="failing over",
        ),
        cast.first,
    )
    status.must_change(
        lambda old: move(old, FIRST_INDEX, "Active", completionTime=ago()), cast.first
    )
    status.must_change(hand_over)
    status.must_change(
        lambda old: move(old, SECOND_INDEX, "Active", completionTime=ago()), cast.second
    )
    status.must_change(evict)
    stage.end_pod()
    status.must_change(
        lambda old: move(old, EVICTOR_INDEX, "Active", completionTime=ago()), cast.evictor
    )
    status.must_change(end)

    final = status.read()["status"]
    states = {each["name"]: each["state"] for each in final["targetResponders"]}
    assert states == dict.fromkeys((FIRST, SECOND, EVICTOR), "Completed")
    assert final["responders"][FIRST_INDEX]["message"] == "failing over"


def test_the_request_learns_how_it_ended_and_may_be_repeated(stage: Stage) -> None:
    status = stage.request()
    stage.end_pod()
    for verdict, reason in (("False", "AwaitingEviction"), ("True", "PodDeleted")) * 2:
        report = {"conditions": [condition("TargetEvicted", verdict, reason)]}
        status.must_change(report_writer(report))
    withdrawn = status.read()
    withdrawn["spec"]["intent"] = "Withdrawn"
    answer = stage.cluster.replace(stage.namespace, withdrawn, identity=stage.cast.drainer)
    assert answer.ok, answer.message
    assert answer.body["metadata"]["generation"] == 2


def test_nobody_overtakes(status: Status) -> None:
    answer = status.change(hand_over)
    # What the definitions refuse they refuse at the list.
    assert fields(answer) <= {"status.targetResponders", "status.targetResponders[0].state"}
    assert status.read()["status"]["targetResponders"][0]["state"] == "Active"


def test_a_heartbeat_does_not_go_back(stage: Stage, status: Status) -> None:
    by = stage.cast.first
    status.must_change(
        lambda old: move(old, FIRST_INDEX, "Active", heartbeatTime=ago(seconds=-5)), by
    )
    answer = status.change(lambda old: move(old, FIRST_INDEX, "Active", heartbeatTime=ago()), by)
    assert fields(answer) == {"status.responders[0].heartbeatTime"}


def test_a_report_belongs_to_the_active_one(stage: Stage, status: Status) -> None:
    answer = status.change(
        lambda old: move(old, SECOND_INDEX, "Inactive", message="me first"), stage.cast.second
    )
    assert fields(answer) <= {"status.responders", "status.responders[1]"}
    assert answer.code == 422


def test_a_requester_stays_on_record(stage: Stage, status: Status) -> None:
    answer = status.change(lambda old: old.update(requesters=[]))
    if stage.cast.denies:
        assert fields(answer) == {"status.requesters"}
        return
    assert answer.ok, answer.message
    (warning,) = answer.warnings
    assert REQUESTER in warning


def test_the_end_is_final(status: Status) -> None:
    def cancel(old: Object) -> None:
        move(old, FIRST_INDEX, "Canceled")
        old["conditions"] = [condition("Failed", "True", "CanceledDueToNoRequesters")]

    status.must_change(cancel)
    answer = status.change(
        lambda old: old.update(conditions=[condition("Failed", "False", "AwaitingEviction")])
    )
    assert "status.conditions" in fields(answer)


def test_the_end_is_not_blurred(stage: Stage) -> None:
    status = stage.eviction()
    end = condition("Failed", "True", "EvictionInvalid")
    status.must_change(report_writer({"conditions": [end]}))
    answer = status.change(report_writer({"conditions": [end | {"status": "Unknown"}]}))
    # Natively admitted: the guard `condition-finality` is Usher's own.
    assert fields(answer) == {"status.conditions[0].status"}


@pytest.mark.parametrize(("minutes", "admitted"), [(25, True), (5, False)])
def test_silence_is_passed_over(minutes: int, *, admitted: bool, stage: Stage) -> None:
    stored = stage.aimed(
        eviction(namespace=stage.namespace, uid="1", creationTimestamp=ago(hours=1))
    )
    stored["status"] = initial_status()
    stored["status"]["responders"][0]["startTime"] = ago(minutes=minutes)
    stage.cluster.etcd.put(resource_of(stored), stored)

    def pass_over(old: Object) -> None:
        move(old, FIRST_INDEX, "Interrupted")
        move(old, SECOND_INDEX, "Active", startTime=ago())

    answer = Status(stage, stored).change(pass_over)
    assert answer.ok is admitted, answer.body
    if not admitted:
        assert answer.causes == {("FieldValueForbidden", "status.targetResponders[0].state")}


def fields(answer: Answer) -> set[str]:
    assert not answer.ok
    return {field for _, field in answer.causes}
