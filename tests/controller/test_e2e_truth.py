"""What is said for good is true: with silent watches, wrong clocks, and in spite of tenants.

The webhook is registered as the chart does it: nobody judges what the controller writes.
"""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Final

import pytest

from rules.api import EVICTOR
from tests.chart.registration import registered_by_chart
from tests.controller.program import NODE, Program, Users, present, running, states
from tests.controller.proxy import Proxy, Seen
from tests.controller.rights import CONTROLLER, DRAINER, ONCALL
from tests.controlplane import Mode, NoToolchainError
from tests.controlplane.availability import skip_or_fail
from tests.e2e import rbac
from tests.e2e.api import MERGE_PATCH, Object
from tests.e2e.cluster import Cluster, running_cluster
from tests.e2e.usher import running_usher
from tests.e2e.waiting import eventually

pytestmark = pytest.mark.e2e

RESPONDER: Final = "db.acme.io/failover"
DONE: Final = {RESPONDER: "Completed", EVICTOR: "Completed"}
_WEBHOOK_USER: Final = "viewer"
_ROLE: Final = "system:controller:evictionrequest-controller"
_ROLES: Final = "/apis/rbac.authorization.k8s.io/v1/clusterroles"


@pytest.fixture(scope="module", params=[Mode.NATIVE, Mode.CRD], ids=str)
def cluster(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    try:
        with running_cluster(request.param, audit=True) as cluster:
            cluster.plane.start_controller_manager()
            cluster.plane.start_kubelet(NODE)
            rbac.grant_everywhere(cluster, _WEBHOOK_USER, *rbac.ASK)
            kubeconfig = str(cluster.plane.kubeconfig(_WEBHOOK_USER))
            flags = ("--kubeconfig", kubeconfig, "--controllers", CONTROLLER)
            folder = tmp_path_factory.mktemp("usher")
            with running_usher(folder, *flags) as usher, registered_by_chart(cluster, usher):
                yield cluster
    except NoToolchainError as error:
        skip_or_fail(str(error))


@pytest.fixture
def proxy(cluster: Cluster) -> Iterator[Proxy]:
    with Proxy(cluster.plane) as proxy:
        yield proxy


@pytest.fixture
def flags(proxy: Proxy, tmp_path: Path) -> tuple[str, ...]:
    """By the proxy."""
    return "--kubeconfig", str(proxy.kubeconfig(tmp_path, CONTROLLER))


@pytest.fixture
def users(cluster: Cluster) -> Users:
    return Users(cluster)


def lease(name: str) -> tuple[str, str]:
    return "--lease-name", name


def begin(users: Users) -> None:
    """A pod is to go, and its responder is at work."""
    users.request(users.create_pod("db-0", RESPONDER), "drain")
    users.wait_for("evictions", "pod-1-db-0", lambda e: states(e).get(RESPONDER) == "Active")
    users.report("pod-1-db-0", RESPONDER, heartbeatTime=present())


def complete(users: Users) -> None:
    """The responder has done its work: the pod may go."""
    users.report("pod-1-db-0", RESPONDER, completionTime=present())
    ended = users.wait_for_reason("evictions", "pod-1-db-0", "PodDeleted")
    assert states(ended) == DONE
    users.wait_for_reason("evictionrequests", "drain", "PodDeleted")


# --- watches --------------------------------------------------------------------------------------


@pytest.mark.parametrize("resource", ["pods", "evictionrequests"])
def test_who_takes_over_with_a_silent_watch_says_nothing_false(
    resource: str, users: Users, proxy: Proxy, flags: tuple[str, ...], tmp_path: Path
) -> None:
    """Neither that the pod is gone, nor that nobody wants it gone."""
    name = lease(f"silent-{resource}")
    proxy.mutes = lambda seen: seen.path.endswith(f"/{resource}")
    with running(users.cluster, tmp_path, *name) as leader:
        leader.wait_for_lead()
        with running(users.cluster, tmp_path, *flags, *name) as standby:
            eventually(lambda: standby.ask("/readyz")[0] == 200, "the standby is ready")
            begin(users)
            leader.terminate()
            standby.wait_for_lead()
            # It plans: somebody else asks, too.
            asking = users.get("pods", "db-0")
            assert asking is not None
            users.request(asking, "again")
            proxy.mutes = lambda _: False
            proxy.cut_connections()
            users.wait_for("evictions", "pod-1-db-0", lambda e: _requesters(e) == 2)
            complete(users)


def _requesters(eviction: Object) -> int:
    return len(eviction.get("status", {}).get("requesters", []))


def test_a_pod_that_was_not_heard_of_is_no_reason_to_refuse(
    users: Users, proxy: Proxy, flags: tuple[str, ...], tmp_path: Path
) -> None:
    with running(users.cluster, tmp_path, *flags, *lease("unheard")) as program:
        program.wait_for_lead()
        eventually(lambda: _watches_pods(proxy), "pods are watched")
        proxy.mutes = lambda seen: seen.path.endswith("/pods")
        users.request(users.create_pod("web-0"), "drain")
        eventually(lambda: users.evictions_called(201), "the evictor calls")
        proxy.mutes = lambda _: False
        proxy.cut_connections()
        users.wait_for_reason("evictionrequests", "drain", "PodDeleted")


def _watches_pods(proxy: Proxy) -> bool:
    return any(seen.is_watch and seen.path.endswith("/pods") for seen in proxy.seen)


# --- clocks ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("minutes", [-25, -5, 5, 25])
def test_a_machine_s_wrong_clock_changes_nothing(
    minutes: int, users: Users, tmp_path: Path
) -> None:
    name, ahead = lease(f"wrong-{minutes + 25}"), minutes * 60
    with running(users.cluster, tmp_path, *name, ahead=ahead) as program:
        program.wait_for_lead()
        begin(users)
        eventually(lambda: _says(program, "the machine's clock differs"), "it knows")
        complete(users)
        assert program.metric("usher_controller_clock_ahead_seconds") == pytest.approx(
            ahead, abs=10
        )


@pytest.mark.parametrize("minutes", [-25, -5, 5, 25])
def test_a_jump_of_the_api_servers_clock_interrupts_nobody(
    minutes: int, users: Users, proxy: Proxy, flags: tuple[str, ...], tmp_path: Path
) -> None:
    name = lease(f"jump-{minutes + 25}")
    with running(users.cluster, tmp_path, *flags, *name) as program:
        program.wait_for_lead()
        begin(users)
        proxy.ahead = timedelta(minutes=minutes)
        eventually(lambda: _says(program, "the API server's time has jumped"), "it knows")
        pod = users.get("pods", "db-0")
        assert pod is not None
        users.request(pod, "again")  # it plans
        found = users.wait_for("evictions", "pod-1-db-0", lambda e: _requesters(e) == 2)
        assert states(found) == {RESPONDER: "Active", EVICTOR: "Inactive"}
    # Who begins only now has seen no jump, and knows of it all the same.
    with running(users.cluster, tmp_path, *flags, *name) as successor:
        successor.wait_for_lead()
        users.request(pod, "once-more")
        found = users.wait_for("evictions", "pod-1-db-0", lambda e: _requesters(e) == 3)
        assert states(found) == {RESPONDER: "Active", EVICTOR: "Inactive"}
        proxy.ahead = timedelta()
        complete(users)


def _says(program: Program, text: str) -> bool:
    return any(line["event"].startswith(text) for line in program.log())


# --- others ---------------------------------------------------------------------------------------


def test_the_garbage_collector_is_no_way_round(users: Users) -> None:
    """An owner that does not exist would have it delete somebody else's request."""
    users.request(users.create_pod("db-0"), "drain")
    path = users.path("evictionrequests", "drain")
    nobody = {"apiVersion": "v1", "kind": "ConfigMap", "name": "gone", "uid": _NO_UID}
    change = {"metadata": {"ownerReferences": [nobody]}}

    def patch(identity: str) -> int:
        api = users.cluster.api
        return api("PATCH", path, change, identity=identity, content_type=MERGE_PATCH).code

    assert patch(ONCALL) == 403
    assert users.get("evictionrequests", "drain") is not None
    # Its requester may, and the collector is swift.
    assert patch(DRAINER) == 200
    users.wait_until_gone("evictionrequests", "drain")


_NO_UID: Final = "9b0a7a5e-5f0c-4b52-9f0c-6f2a1f0e7d11"


def test_a_role_that_was_left_over_is_nobody(users: Users, tmp_path: Path) -> None:
    """Where the API comes from definitions no controller of Kubernetes can be at work."""
    if users.cluster.is_native:
        pytest.skip("natively the role may be a living controller's")
    role = {"metadata": {"name": _ROLE}, "rules": []}
    assert users.cluster.api("POST", _ROLES, role).ok
    try:
        with running(users.cluster, tmp_path, *lease("leftover")) as program:
            program.wait_for_lead()
            users.request(users.create_pod("web-0"), "drain")
            users.wait_for_reason("evictionrequests", "drain", "PodDeleted")
    finally:
        users.cluster.api("DELETE", f"{_ROLES}/{_ROLE}")


def test_a_renewal_that_hangs_does_not_cost_the_lead(
    users: Users, proxy: Proxy, flags: tuple[str, ...], tmp_path: Path
) -> None:
    with running(users.cluster, tmp_path, *flags, *lease("hanging")) as program:
        program.wait_for_lead()
        lost: list[Seen] = []

        def lose_one(seen: Seen) -> bool:
            is_renewal = seen.method == "PUT" and "leases" in seen.path
            if is_renewal and not lost:
                lost.append(seen)
                return True
            return False

        proxy.hangs = lose_one
        eventually(lambda: lost, "a renewal hangs")
        renewed = len([seen for seen in proxy.seen if seen.method == "PUT"])
        eventually(
            lambda: len([s for s in proxy.seen if s.method == "PUT"]) > renewed + 1, "others do not"
        )
        assert not _says(program, "the lead is lost")
        users.request(users.create_pod("web-0"), "drain")
        users.wait_for_reason("evictionrequests", "drain", "PodDeleted")
