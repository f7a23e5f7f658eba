"""What is said for good is true, however late watches are and whoever tries to be rid of a request.

Watches are made silent between the API server and the controller: nothing arrives, and no error.
"""

from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import pytest

from controller.other_controller import ROLE
from rules.api import API_VERSION, EVICTOR
from tests.controller.charted import cluster, proxy, users
from tests.controller.program import Users, present, reasons, running, states
from tests.controller.proxy import Judge, Proxy, Seen
from tests.controller.rights import CONTROLLER
from tests.e2e import rbac
from tests.e2e.api import MERGE_PATCH, Object
from tests.e2e.cluster import Cluster
from tests.e2e.waiting import eventually

__all__ = ["cluster", "proxy", "users"]
pytestmark = pytest.mark.e2e

RESPONDER: Final = "db.acme.io/failover"
INTRUDER: Final = "responder-b"
"""Who may edit everything, and speak in no requester's name."""
_LEASES: Final = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"


def silent(*resources: str) -> Judge:
    """The watches of these; without any all are."""
    return lambda seen: not resources or seen.path.rpartition("/")[2] in resources


def of_lease(seen: Seen) -> bool:
    return "leases" in seen.path.split("/")


def proxied(proxy: Proxy, folder: Path, lease: str) -> tuple[str, ...]:
    """Flags of a controller that sees the cluster through ``proxy``."""
    return "--kubeconfig", str(proxy.kubeconfig(folder, CONTROLLER)), "--lease-name", lease


def speak_again(proxy: Proxy) -> None:
    """Watches end, as when their silence is noticed; new ones tell what the last ones swallowed."""
    proxy.mutes = lambda _: False
    proxy.end_muted()


def begin(users: Users, name: str) -> str:
    """An eviction whose responder works, and has said so; returns its name."""
    users.request(users.create_pod(name, RESPONDER), f"drain-{name}")
    eviction = f"pod-1-{name}"
    users.wait_for("evictions", eviction, lambda e: states(e).get(RESPONDER) == "Active")
    users.report(eviction, RESPONDER, heartbeatTime=present())
    return eviction


def complete(users: Users, name: str) -> None:
    """Its responder is done; the eviction that :func:`begin` began ends by that, and rightly."""
    users.report(f"pod-1-{name}", RESPONDER, completionTime=present())
    ended = users.wait_for_reason("evictions", f"pod-1-{name}", "PodDeleted")
    assert states(ended) == {RESPONDER: "Completed", EVICTOR: "Completed"}
    users.wait_until_gone("pods", name)


def nothing_has_ended(users: Users, *names: str) -> None:
    """The Evictions of these pods and their requests go on, and the pods live."""
    for name in names:
        assert reasons(get(users, "evictions", f"pod-1-{name}")) == set()
        assert reasons(get(users, "evictionrequests", f"drain-{name}")) == set()
        assert "deletionTimestamp" not in get(users, "pods", name)["metadata"]


def askers(eviction: Object) -> set[str]:
    """Who wants its pod gone, as far as it says."""
    listed = eviction.get("status", {}).get("requesters", [])
    return {each["name"] for each in listed if each["intent"] == "Eviction"}


def get(users: Users, resource: str, name: str) -> Object:
    found = users.get(resource, name)
    assert found is not None
    return found


# --- a watch of pods that is silent --------------------------------------------------------------


@pytest.mark.parametrize("resources", [("pods",), ()], ids=["pods", "everything"])
def test_a_takeover_by_one_who_has_not_heard_of_a_pod(
    cluster: Cluster, proxy: Proxy, users: Users, tmp_path: Path, resources: tuple[str, ...]
) -> None:
    lease = f"unheard-of-{len(resources)}"
    with running(cluster, tmp_path, "--lease-name", lease) as leader, ExitStack() as stack:
        leader.wait_for_lead()
        standby = stack.enter_context(running(cluster, tmp_path, *proxied(proxy, tmp_path, lease)))
        eventually(lambda: standby.ask("/readyz")[0] == 200, "the standby is ready")
        proxy.mutes = silent(*resources)
        begin(users, "db-0")
        proxy.holds = of_lease
        leader.terminate()
        eventually(leader.has_ended, "the leader ends")
        users.request(users.create_pod("web-0"), "drain-web-0")
        proxy.holds = lambda _: False
        standby.wait_for_lead()
        # The one has its turn, as it would have had by the leader before; nobody else has lost it.
        users.wait_until_gone("pods", "web-0")
        nothing_has_ended(users, "db-0")
        assert states(users.eviction("pod-1-db-0"))[RESPONDER] == "Active"

        speak_again(proxy)
        users.wait_for_reason("evictionrequests", "drain-web-0", "PodDeleted")
        complete(users, "db-0")
        users.wait_for_reason("evictionrequests", "drain-db-0", "PodDeleted")
        assert len(users.list("evictions")) == 2
    assert set(users.evictions_called(201)) == {"db-0", "web-0"}


def test_a_request_for_a_pod_that_the_leader_has_not_heard_of(
    cluster: Cluster, proxy: Proxy, users: Users, tmp_path: Path
) -> None:
    with running(cluster, tmp_path, *proxied(proxy, tmp_path, "unheard")) as program:
        program.wait_for_lead()
        begin(users, "old-0")
        proxy.mutes = silent("pods")
        begin(users, "late-0")  # served before the watch speaks again
        nothing_has_ended(users, "old-0", "late-0")
        assert program.line("the view is late")

        speak_again(proxy)
        for name in ("old-0", "late-0"):
            complete(users, name)
            users.wait_for_reason("evictionrequests", f"drain-{name}", "PodDeleted")


# --- a watch of requests that is silent ----------------------------------------------------------


def test_one_request_goes_and_another_has_come(
    cluster: Cluster, proxy: Proxy, users: Users, tmp_path: Path
) -> None:
    """The answer to an own write tells that the one is withdrawn, before the watch tells of both.

    The write is held until both have happened.
    """
    with running(cluster, tmp_path, *proxied(proxy, tmp_path, "another")) as program:
        program.wait_for_lead()
        proxy.holds = lambda seen: seen.path.endswith("/drain-db-0/status")
        begin(users, "db-0")
        proxy.mutes = silent("evictionrequests")
        users.request(get(users, "pods", "db-0"), "other-db-0")
        users.withdraw("drain-db-0")
        proxy.holds = lambda _: False
        found = users.wait_for(
            "evictions",
            "pod-1-db-0",
            lambda e: reasons(e) or "other-db-0.acme.io/drain" in askers(e),
        )
        assert reasons(found) == set()
        assert states(found)[RESPONDER] == "Active"

        speak_again(proxy)
        complete(users, "db-0")
        users.wait_for_reason("evictionrequests", "other-db-0", "PodDeleted")
        assert len(users.list("evictions")) == 1


def test_an_eviction_whose_requests_were_never_heard_of(
    cluster: Cluster, proxy: Proxy, users: Users, tmp_path: Path
) -> None:
    """Another controller, which has not noticed yet that it leads no more, has begun it."""
    with running(cluster, tmp_path, *proxied(proxy, tmp_path, "unheard-of")) as program:
        program.wait_for_lead()
        begin(users, "other-0")  # whoever has just begun to lead lists anew, whatever is silent
        proxy.mutes = silent("evictionrequests")
        request = users.request(users.create_pod("db-0", RESPONDER), "drain-db-0")
        eviction: Object = {
            "apiVersion": API_VERSION,
            "kind": "Eviction",
            "metadata": {"name": "pod-1-db-0"},
            "spec": {"target": request["spec"]["target"]},
        }
        users.call("POST", users.path("evictions"), eviction, identity=CONTROLLER)
        found = users.wait_for("evictions", "pod-1-db-0", lambda e: reasons(e) or states(e))
        assert reasons(found) == set()

        speak_again(proxy)
        complete(users, "db-0")
        users.wait_for_reason("evictionrequests", "drain-db-0", "PodDeleted")


# --- the garbage collector -----------------------------------------------------------------------


def test_the_garbage_collector_withdraws_for_nobody(cluster: Cluster, users: Users) -> None:
    """What it would do is shown by a request whose own requester gives it an owner that is gone."""
    rbac.grant_everywhere(cluster, INTRUDER, rbac.EDIT)
    pod = users.create_pod("db-0", RESPONDER)
    for name in ("drain", "bait"):
        users.request(pod, name)
    gone = {"apiVersion": "v1", "kind": "ConfigMap", "name": "gone", "uid": pod["metadata"]["uid"]}
    owned: Object = {"metadata": {"ownerReferences": [gone]}}
    held: Object = {"metadata": {"finalizers": ["foregroundDeletion"]}}

    def patch(change: Object, identity: str, name: str) -> Any:
        path = users.path("evictionrequests", name)
        return cluster.api("PATCH", path, change, identity=identity, content_type=MERGE_PATCH)

    for change in (owned, held):
        answer = patch(change, INTRUDER, "drain")
        assert answer.code == 403, answer.message
        assert "may not change intent, owner references or finalizers" in answer.message
    assert patch({"metadata": {"labels": {"acme.io/seen": "yes"}}}, INTRUDER, "drain").ok
    users.patch(users.path("evictionrequests", "bait"), owned)
    users.wait_until_gone("evictionrequests", "bait")
    stands = get(users, "evictionrequests", "drain")["metadata"]
    assert stands.keys() & {"ownerReferences", "finalizers", "deletionTimestamp"} == set()


# --- the other controller ------------------------------------------------------------------------


def test_a_role_that_is_left_over_stops_nobody(
    cluster: Cluster, users: Users, tmp_path: Path
) -> None:
    """API servers make it with their own API, and never remove it."""
    if cluster.is_native:
        pytest.skip("there it is a reason to stand down")
    path = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
    marks = {"labels": {"kubernetes.io/bootstrapping": "rbac-defaults"}}
    assert cluster.api("POST", path, {"metadata": {"name": ROLE, **marks}}).ok
    try:
        with running(cluster, tmp_path, "--lease-name", "left-over") as program:
            program.wait_for_lead()
            begin(users, "db-0")
            complete(users, "db-0")
            assert program.metric("usher_controller_stood_down") == 0
            assert program.ask("/readyz")[0] == 200
    finally:
        assert cluster.api("DELETE", f"{path}/{ROLE}").ok


# --- the lead ------------------------------------------------------------------------------------


@pytest.mark.parametrize("arrives", [False, True], ids=["never arrives", "is never answered"])
def test_a_renewal_that_hangs(
    cluster: Cluster, proxy: Proxy, tmp_path: Path, *, arrives: bool
) -> None:
    if not cluster.is_native:
        pytest.skip("Leases are the same everywhere")
    lease = f"hangs-{arrives}".lower()
    hung: list[Seen] = []

    def hangs(seen: Seen) -> bool:
        """The first renewal."""
        if seen.method == "PUT" and of_lease(seen) and not hung:
            hung.append(seen)
        return any(seen is each for each in hung)

    def renewed() -> datetime:
        found = cluster.api("GET", f"{_LEASES}/{lease}").body
        return datetime.fromisoformat(found["spec"]["renewTime"])

    with running(cluster, tmp_path, *proxied(proxy, tmp_path, lease)) as program:
        program.wait_for_lead()
        setattr(proxy, "hangs" if arrives else "holds", hangs)
        eventually(lambda: hung, "a renewal hangs")
        before = renewed()
        eventually(lambda: renewed() > before, "it is renewed")
        assert program.line("the lead is lost") is None
        assert program.metric("usher_controller_lease_held") == 1
