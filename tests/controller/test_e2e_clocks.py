"""The controller counts by the API server's time, and by none that cannot be relied on."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import pytest

from rules.api import API_VERSION, EVICTOR
from rules.states import HEARTBEAT_DEADLINE
from rules.times import parse_time
from tests.controller.charted import cluster, proxy, users
from tests.controller.program import Program, Users, present, reasons, running, states
from tests.controller.proxy import Proxy
from tests.controller.rights import CONTROLLER, DELETE
from tests.e2e import rbac
from tests.e2e.api import MERGE_PATCH, Object
from tests.e2e.cluster import Cluster
from tests.e2e.waiting import eventually

__all__ = ["cluster", "proxy", "users"]
pytestmark = pytest.mark.e2e

RESPONDER: Final = "db.acme.io/failover"
NEXT: Final = "mesh.example.com/drain"
JUMP: Final = timedelta(minutes=25)
"""More than anybody may be silent, and more than anything below may last."""
SPAN: Final = str(round(HEARTBEAT_DEADLINE.total_seconds()))
"""Seconds, for each flag by which something ends or is removed because of its age."""
BEHIND: Final = timedelta(seconds=2)
"""By so much the controller is behind the API server at most."""


def begin(users: Users, pod: Object) -> None:
    """An eviction whose responder works, and has said so."""
    name = pod["metadata"]["name"]
    users.request(pod, f"drain-{name}")
    eviction = f"pod-1-{name}"
    users.wait_for("evictions", eviction, lambda e: states(e).get(RESPONDER) == "Active")
    users.report(eviction, RESPONDER, heartbeatTime=present())


def ask_again(users: Users, pod: Object, name: str) -> Object:
    """One more asks, and the Eviction names it: it was looked at after all that went before."""
    users.request(pod, name)
    return users.wait_for(
        "evictions", f"pod-1-{pod['metadata']['name']}", lambda e: reasons(e) or name in str(e)
    )


def times(eviction: Object) -> set[datetime]:
    """What the controller has stamped."""
    status = eviction["status"]
    stamped = [each["lastTransitionTime"] for each in status["conditions"]]
    stamped += [each["startTime"] for each in status["responders"] if "startTime" in each]
    return {parse_time(each) for each in stamped}


@pytest.mark.parametrize("minutes", [25, 5, -5, -25])
def test_the_machine_s_clock_is_wrong(
    cluster: Cluster, users: Users, tmp_path: Path, minutes: int
) -> None:
    """Whoever reports is not interrupted, and may report; its completion is what goes on."""
    flags = ("--lease-name", f"machine-{minutes}", "--eviction-deadline", SPAN)
    with running(cluster, tmp_path, *flags, ahead=minutes * 60) as program:
        program.wait_for_lead()
        pod = users.create_pod("db-0", RESPONDER, NEXT)
        begin(users, pod)
        found = ask_again(users, pod, "again")
        assert reasons(found) == set()
        assert states(found) == {RESPONDER: "Active", NEXT: "Inactive", EVICTOR: "Inactive"}

        users.report("pod-1-db-0", RESPONDER, completionTime=present())
        users.wait_for("evictions", "pod-1-db-0", lambda e: states(e).get(NEXT) == "Active")
        users.report("pod-1-db-0", NEXT, completionTime=present())
        ended = users.wait_for_reason("evictions", "pod-1-db-0", "PodDeleted")
        assert set(states(ended).values()) == {"Completed"}
        users.wait_for_reason("evictionrequests", "drain-db-0", "PodDeleted")
        began = parse_time(ended["metadata"]["creationTimestamp"])
        assert began - BEHIND <= min(times(ended)) <= max(times(ended)) <= datetime.now(UTC)
        ahead = program.metric("usher_controller_clock_ahead_seconds")
        assert ahead == pytest.approx(minutes * 60, abs=20)


@pytest.mark.parametrize("jump", [JUMP, -JUMP], ids=["ahead", "behind"])
def test_the_api_server_s_clock_is_set(
    cluster: Cluster, proxy: Proxy, users: Users, tmp_path: Path, jump: timedelta
) -> None:
    """And set right again. Meanwhile, and afterwards, age is no reason for anything."""
    rbac.grant_everywhere(cluster, CONTROLLER, DELETE)
    flags = ["--kubeconfig", str(proxy.kubeconfig(tmp_path, CONTROLLER))]
    flags += ["--lease-name", f"jump-{jump > timedelta()}".lower(), "--eviction-deadline", SPAN]
    flags += ["--request-ttl", SPAN, "--orphan-ttl", SPAN]
    with running(cluster, tmp_path, *flags) as program:
        program.wait_for_lead()
        pod, first, second = (users.create_pod(f"db-{n}", RESPONDER) for n in range(3))
        for each in (pod, first, second):
            begin(users, each)
        ended = end(users, first)
        proxy.ahead = jump
        wait_for_jumps(program, 1)
        ended += end(users, second)
        goes_on(users, program, pod, ended)
        proxy.ahead = timedelta()
        wait_for_jumps(program, 2)
        goes_on(users, program, pod, ended)

        users.report("pod-1-db-0", RESPONDER, completionTime=present())
        found = users.wait_for_reason("evictions", "pod-1-db-0", "PodDeleted")
        assert states(found) == {RESPONDER: "Completed", EVICTOR: "Completed"}


Ended = list[tuple[str, str]]
"""Resources and names."""


def end(users: Users, pod: Object) -> Ended:
    """Somebody deletes ``pod``: its request has come to its end, and so has an Eviction of nobody.

    Nobody's turn begins by that, whose start the API server would judge by its real time.
    """
    name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
    users.delete("pods", name)
    users.wait_for_reason("evictionrequests", f"drain-{name}", "PodDeleted")
    orphan: Object = {
        "apiVersion": API_VERSION,
        "kind": "Eviction",
        "metadata": {"name": f"of-nobody-{name}"},
        "spec": {"target": {"pod": {"name": name, "uid": uid}}},
    }
    users.call("POST", users.path("evictions"), orphan, identity=CONTROLLER)
    users.wait_for_reason("evictions", f"of-nobody-{name}", "PodDeleted")
    return [("evictionrequests", f"drain-{name}"), ("evictions", f"of-nobody-{name}")]


def wait_for_jumps(program: Program, number: int) -> None:
    def jumps() -> bool:
        said = "the API server's time has jumped"
        return sum(said in line["event"] for line in program.log()) == number

    eventually(jumps, f"{number} jumps are noticed")


def goes_on(users: Users, program: Program, pod: Object, ended: Ended) -> None:
    """Nobody is interrupted, nothing ends or is removed, although all of it is looked at."""
    found = ask_again(users, pod, f"again-{len(users.list('evictionrequests'))}")
    assert reasons(found) == set()
    assert states(found) == {RESPONDER: "Active", EVICTOR: "Inactive"}
    for resource, name in ended:
        before = program.metric("usher_controller_work_seconds_count")
        label = {"acme.io/looked-at": str(round(before))}
        change = {"metadata": {"labels": label}}
        users.call("PATCH", users.path(resource, name), change, content_type=MERGE_PATCH)
        eventually(
            lambda before=before: program.metric("usher_controller_work_seconds_count") > before,
            "it is looked at",
        )
    for resource, name in ended:
        assert users.get(resource, name) is not None


def test_who_begins_after_a_jump_knows_of_it(
    cluster: Cluster, proxy: Proxy, users: Users, tmp_path: Path
) -> None:
    """From the Lease: to a program that has seen no other time nothing is strange."""
    flags = ("--kubeconfig", str(proxy.kubeconfig(tmp_path, CONTROLLER)), "--lease-name", "heir")
    pod = users.create_pod("db-0", RESPONDER)
    with running(cluster, tmp_path, *flags) as program:
        program.wait_for_lead()
        begin(users, pod)
        proxy.ahead = JUMP
        wait_for_jumps(program, 1)
    with running(cluster, tmp_path, *flags) as heir:
        heir.wait_for_lead()
        goes_on(users, heir, pod, [])
