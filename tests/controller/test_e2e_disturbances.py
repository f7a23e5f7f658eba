"""An API server that is slow, loses answers, or whose watches are not to be relied on."""

import asyncio
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import prometheus_client
import pytest

from cluster import client as client_module
from cluster.client import Cluster as Client
from cluster.informer import Informer
from cluster.key import Key
from cluster.resources import PODS
from cluster.store import Change, Store
from controller.app import AGENT
from controller.eviction.view import KnownPod, read_pod
from rules.api import EVICTOR
from tests.controller.program import Program, Users, prepared, present, running, states
from tests.controller.proxy import Proxy, Seen
from tests.controller.rights import CONTROLLER
from tests.controlplane import Mode
from tests.e2e.cluster import Cluster
from tests.e2e.waiting import eventually
from tests.patience import PATIENCE

pytestmark = pytest.mark.e2e

RESPONDER: Final = "db.acme.io/failover"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with prepared(Mode.NATIVE) as cluster:
        yield cluster


@pytest.fixture
def proxy(cluster: Cluster) -> Iterator[Proxy]:
    with Proxy(cluster.plane) as proxy:
        yield proxy


@pytest.fixture
def flags(proxy: Proxy, tmp_path: Path, request: pytest.FixtureRequest) -> tuple[str, ...]:
    """By the proxy, with a lease of its own."""
    name = request.node.name.replace("_", "-")
    return "--kubeconfig", str(proxy.kubeconfig(tmp_path, CONTROLLER)), "--lease-name", name


@pytest.fixture
def users(cluster: Cluster) -> Users:
    return Users(cluster)


def drain(users: Users, *names: str) -> None:
    for name in names:
        users.request(users.create_pod(name), f"drain-{name}")


def wait_for_ends(users: Users, *names: str) -> None:
    for name in names:
        users.wait_for_reason("evictionrequests", f"drain-{name}", "PodDeleted")


def everything_was_done_once(users: Users, *names: str) -> None:
    """No eviction was made twice, and none for anybody else."""
    listed = sorted(eviction["metadata"]["name"] for eviction in users.list("evictions"))
    assert listed == sorted(f"pod-1-{name}" for name in names)
    assert set(users.evictions_called(201)) == set(names)
    for eviction in users.list("evictions"):
        assert states(eviction) == {EVICTOR: "Completed"}


# --- too slow for the deadline -----------------------------------------------------------------


def test_an_overdue_eviction(
    users: Users, cluster: Cluster, flags: tuple[str, ...], tmp_path: Path
) -> None:
    with running(cluster, tmp_path, *flags, "--eviction-deadline", "3") as program:
        program.wait_for_lead()
        pod = users.create_pod("db-0", RESPONDER)
        users.request(pod, "drain")
        users.wait_for_reason("evictionrequests", "drain", "DeadlineExceeded")
        ended = users.wait_for_reason("evictions", "pod-1-db-0", "DeadlineExceeded")
        assert states(ended) == {RESPONDER: "Interrupted", EVICTOR: "Inactive"}
        # The request flips: it asks anew, and is answered once more.
        users.withdraw("drain")
        users.patch(users.path("evictionrequests", "drain"), {"spec": {"intent": "Eviction"}})
        users.wait_for_reason("evictions", "pod-2-db-0", "DeadlineExceeded")
        users.delete("pods", "db-0")
        users.wait_for_reason("evictionrequests", "drain", "PodDeleted")
        assert len(users.list("evictions")) == 3
        eventually(
            lambda: events(users) >= {"ResponderActive", "EvictionFailed", "ResponderInterrupted"},
            "Events about the pod",
        )


def events(users: Users) -> set[str]:
    """The reasons of all Events about pods that the controller has written."""
    return {
        event["reason"]
        for event in users.list("events")
        if event["involvedObject"]["kind"] == "Pod"
        and event["source"].get("component") == "usher-controller"
    }


# --- slow ---------------------------------------------------------------------------------------


def test_slow_answers(
    users: Users, cluster: Cluster, proxy: Proxy, flags: tuple[str, ...], tmp_path: Path
) -> None:
    proxy.delay = 1.0
    with running(cluster, tmp_path, *flags) as program:
        program.wait_for_lead()
        drain(users, "web-0", "web-1", "web-2")
        wait_for_ends(users, "web-0", "web-1", "web-2")
        everything_was_done_once(users, "web-0", "web-1", "web-2")
        assert users.evictions_called() == Counter(["web-0", "web-1", "web-2"])
        assert program.line("the lead is lost") is None
        assert program.ask("/livez") == (200, "ok\n")


def test_answers_too_slow_to_lead(
    users: Users, cluster: Cluster, proxy: Proxy, flags: tuple[str, ...], tmp_path: Path
) -> None:
    swift = ("--lease-duration", "3", "--renew-deadline", "2", "--retry-period", "0.5")
    with running(cluster, tmp_path, *flags, *swift) as program:
        program.wait_for_lead()
        users.request(users.create_pod("db-0", RESPONDER), "drain-db-0")
        users.wait_for("evictions", "pod-1-db-0", lambda e: RESPONDER in states(e))
        proxy.delay = 4.0  # longer than a renewal may take
        eventually(lambda: not program.metric("usher_controller_lease_held"), "the lead is lost")
        before = len(proxy.seen)
        drain(users, "web-0")
        users.report("pod-1-db-0", RESPONDER, completionTime=present())
        time.sleep(6)  # long enough for a controller that would go on
        assert [seen for seen in proxy.seen[before:] if seen.is_write] == []
        assert program.ask("/livez") == (200, "ok\n")
        assert program.metric("usher_controller_lease_held") == 0
        proxy.delay = 0.0
        wait_for_ends(users, "web-0", "db-0")
        assert program.metric("usher_controller_lease_held") == 1
        ended = users.eviction("pod-1-db-0")
        assert states(ended) == {RESPONDER: "Completed", EVICTOR: "Completed"}


# --- answers that get lost ----------------------------------------------------------------------


def test_lost_answers(
    users: Users, cluster: Cluster, proxy: Proxy, flags: tuple[str, ...], tmp_path: Path
) -> None:
    names = [f"web-{number}" for number in range(10)]
    lost: list[Seen] = []

    def loses(seen: Seen) -> bool:
        """The first answer to each write."""
        if not seen.is_write or seen in lost:
            return False
        lost.append(seen)
        return True

    proxy.loses = loses
    bystander = users.create_pod("bystander", node=None)
    with running(cluster, tmp_path, *flags) as program:
        program.wait_for_lead()
        drain(users, *names)
        wait_for_ends(users, *names)
        assert len(lost) > len(names)
        everything_was_done_once(users, *names)
        assert users.get("pods", "bystander") == bystander


def test_an_answer_is_lost_and_watches_are_late(
    users: Users, cluster: Cluster, proxy: Proxy, flags: tuple[str, ...], tmp_path: Path
) -> None:
    """It is tried again as if nothing had happened: a conflict, which is no reason for alarm."""
    lost: list[Seen] = []

    def loses(seen: Seen) -> bool:
        """Three, until another second has come: startTime counts in seconds."""
        if len(lost) == 3 or not seen.path.endswith("/pod-1-web-0/status"):
            return False
        lost.append(seen)
        return True

    proxy.loses = loses
    proxy.mutes = lambda seen: seen.path.endswith("/evictions")
    with running(cluster, tmp_path, *flags) as program:
        program.wait_for_lead()
        drain(users, "web-0")
        eventually(lambda: failures(program, "Conflict", of="failures") > 0, "it notices")
        assert failures(program, "Refused", of="failures") == 0
        proxy.mutes = lambda _: False
        proxy.cut_connections()
        wait_for_ends(users, "web-0")
        everything_was_done_once(users, "web-0")


def test_connections_are_cut(
    users: Users, cluster: Cluster, proxy: Proxy, flags: tuple[str, ...], tmp_path: Path
) -> None:
    names = [f"web-{number}" for number in range(10)]
    with running(cluster, tmp_path, *flags) as program:
        program.wait_for_lead()
        for name in names:
            drain(users, name)
            proxy.cut_connections()
        wait_for_ends(users, *names)
        everything_was_done_once(users, *names)
        eventually(lambda: program.ask("/readyz")[0] == 200, "the controller is ready")


# --- watches ------------------------------------------------------------------------------------


def test_watches_that_end_at_once(
    users: Users, cluster: Cluster, proxy: Proxy, flags: tuple[str, ...], tmp_path: Path
) -> None:
    proxy.ends_watches = True
    with running(cluster, tmp_path, *flags) as program:
        program.wait_for_lead()
        drain(users, "web-0")
        eventually(
            lambda: "can't be watched, only listed" in program.ask("/readyz")[1], "it says so"
        )
        wait_for_ends(users, "web-0")
        assert failures(program, "Silent") > 0
        assert proxy.lists() < 100  # three resources; they are asked for less and less often
        proxy.ends_watches = False
        eventually(lambda: program.ask("/readyz")[0] == 200, "the controller is ready")
        drain(users, "web-1")
        wait_for_ends(users, "web-1")


def test_watches_that_can_not_go_on(
    users: Users, cluster: Cluster, proxy: Proxy, flags: tuple[str, ...], tmp_path: Path
) -> None:
    with running(cluster, tmp_path, *flags) as program:
        program.wait_for_lead()
        drain(users, "web-0")
        wait_for_ends(users, "web-0")
        proxy.forgets = 6
        proxy.cut_connections()
        eventually(lambda: proxy.forgets == 0, "all watches have begun again")
        drain(users, "web-1")
        wait_for_ends(users, "web-1")
        assert failures(program, "Gone") == 6
        everything_was_done_once(users, "web-0", "web-1")


def failures(program: Program, kind: str, of: str = "reading_failures") -> float:
    lines = program.ask("/metrics")[1].splitlines()
    name = f"usher_controller_{of}_total"
    found = [line for line in lines if line.startswith(name) and f'kind="{kind}"' in line]
    return sum(float(line.rsplit(" ", 1)[1]) for line in found)


async def test_a_watch_that_is_open_and_silent(
    users: Users, proxy: Proxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # An API server ends a watch after five minutes; nobody waits for that here.
    monkeypatch.setattr(client_module, "_WATCH_PATIENCE_SECONDS", 2.0)
    failed = prometheus_client.Counter(
        "failures", "", ("resource", "kind"), registry=prometheus_client.CollectorRegistry()
    )
    key, told = Key(users.namespace, "web-0"), asyncio.Event()

    def note(change: Change[KnownPod]) -> None:
        if change.new and change.new.key == key:
            told.set()

    async with Client(proxy.kubeconfig(tmp_path), AGENT) as client:
        informer = Informer(client, PODS, read_pod, Store(), note, failed)
        task = asyncio.create_task(informer.run())
        async with asyncio.timeout(PATIENCE):
            await informer.synced.wait()
            proxy.mutes = lambda _: True
            await asyncio.to_thread(users.create_pod, "web-0")
            await told.wait()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert failed.labels("pods", "Silent")._value.get() > 0
