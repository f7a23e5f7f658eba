"""Three replicas of an installed Usher at work: nothing fails that need not fail."""

import base64
import os
import signal
import time
from collections.abc import Iterator
from typing import Final

import pytest

from certs.holdings import Holdings, decode
from tests.chart.cluster import NAMESPACE, RELEASE, Cluster, kill_group, running_cluster
from tests.chart.load import load
from tests.chart.release import SECRET, Release
from tests.chart.scene import ROLES, Scene
from tests.controlplane import Mode
from tests.e2e.waiting import eventually

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

_REPLICAS: Final = 3
_VALUES: Final = {**ROLES, "replicas": _REPLICAS, "mode": "native"}
_DEPLOYMENT: Final = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/{RELEASE}"
_SLICES: Final = (
    f"/apis/discovery.k8s.io/v1/namespaces/{NAMESPACE}/endpointslices"
    f"?labelSelector=kubernetes.io/service-name={RELEASE}"
)
_WRITERS: Final = 8
_LIVES: Final = {"caLife": "66s", "leafLife": "60s", "wait": "5s"}
"""The CA is renewed after 44 s, the leaf after 40 s: 20 s and more are left for a slow machine."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running_cluster(Mode.NATIVE, tmp_path_factory.mktemp("service")) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def release(cluster: Cluster) -> Release:
    """Installed with the chart's own numbers."""
    release = Release(cluster)
    release.install(_VALUES)
    cluster.await_rollout()
    release.await_verdicts()
    return release


@pytest.fixture(scope="module")
def paths(release: Release) -> list[str]:
    """Statuses of Evictions that a responder is writing."""
    scene = Scene(release.cluster, "service")
    return scene.begin(*(f"web-{number}" for number in range(_WRITERS)))


def test_a_pod_leaves_when_its_responder_is_done(release: Release) -> None:
    scene = Scene(release.cluster, "leaving")
    (path,) = scene.begin("db-0")
    status, answer = scene.respond(path, heartbeatTime="2020-01-01T00:00:00Z")
    assert (status, answer["reason"]) == (422, "Invalid")
    assert [cause["field"] for cause in answer["details"]["causes"]] == [
        "status.responders[0].heartbeatTime"
    ]
    scene.finish(path)
    eventually(lambda: scene.is_evicted("db-0"), "the controller in a pod evicts")


def test_no_write_fails_during_a_rolling_restart(release: Release, paths: list[str]) -> None:
    cluster = release.cluster
    before = {pod["metadata"]["name"] for pod in cluster.pods()}
    with load(cluster.plane, "responder-a", paths) as writes:
        writes.go_on()
        cluster.plane.kubectl(
            "rollout", "restart", f"deployment/{RELEASE}", "-n", NAMESPACE, check=True
        )
        cluster.await_rollout()
        writes.go_on()
    assert before.isdisjoint(pod["metadata"]["name"] for pod in cluster.pods())
    assert writes.failures == []


def test_no_write_fails_during_an_upgrade(release: Release, paths: list[str]) -> None:
    cluster = release.cluster
    with load(cluster.plane, "responder-a", paths) as writes:
        writes.go_on()
        release.upgrade({"log.level": "debug", "registration.validating.timeoutSeconds": 6})
        cluster.await_rollout()
        writes.go_on()
    assert writes.failures == []


def test_a_killed_replica_is_left_when_somebody_notices(release: Release, paths: list[str]) -> None:
    """Calls under way are lost with it, and those that come to it while its endpoint stays."""
    cluster = release.cluster
    victim = cluster.pods()[0]["metadata"]["name"]
    with load(cluster.plane, "responder-a", paths) as writes:
        writes.go_on()
        with cluster.paused_kubelet():
            before, served = writes.made, writes.succeeded
            kill_group(cluster.pid(victim, "webhook"))
            writes.go_on(400)
            print(f"{len(writes.failures)} of {writes.made - before} fail while nobody notices")
            assert writes.succeeded > served
            assert victim in _ready(cluster)
        eventually(lambda: victim not in _ready(cluster), "the endpoint is not ready")
        writes.go_on()
        lost = len(writes.failures)
        eventually(lambda: victim in _ready(cluster), "the replica is back")
        writes.go_on()
    assert all("failed calling webhook" in failure for failure in writes.failures)
    assert len(writes.failures) == lost


def test_a_replica_that_is_cut_off_is_left_by_its_probe(release: Release, paths: list[str]) -> None:
    cluster = release.cluster
    victim = cluster.pods()[0]["metadata"]["name"]
    pid = cluster.pid(victim, "webhook")
    with load(cluster.plane, "responder-a", paths) as writes:
        writes.go_on()
        began = time.monotonic()
        os.kill(pid, signal.SIGSTOP)  # accepts connections, and never answers
        try:
            eventually(lambda: victim not in _ready(cluster), "the endpoint is not ready")
            print(f"left after {time.monotonic() - began:.0f} s")
            served = writes.succeeded
            eventually(lambda: writes.succeeded > served + 100, "the others serve")
        finally:
            os.kill(pid, signal.SIGCONT)
        eventually(lambda: len(_ready(cluster)) == _REPLICAS, "all are back")
    assert all("failed calling webhook" in failure for failure in writes.failures)


def _ready(cluster: Cluster) -> set[str]:
    """Pods that API servers call."""
    return {
        endpoint["targetRef"]["name"]
        for each in cluster.call("GET", _SLICES)["items"]
        for endpoint in each["endpoints"] or ()
        if endpoint["conditions"]["ready"]
    }


# --- certificates -----------------------------------------------------------------------------


def _held(cluster: Cluster) -> Holdings:
    data = cluster.call("GET", SECRET).get("data") or {}
    return decode({name: base64.b64decode(value) for name, value in data.items()})


def _is_sound(release: Release) -> bool:
    held = _held(release.cluster)
    return (
        not held.flaws
        and held.issuer is not None
        and all(bundle == set(held.authorities) for bundle in release.bundles())
    )


def test_two_rotations_fail_no_write(cluster: Cluster) -> None:
    """Leaf and CA, twice in a row, by their own lives."""
    release = Release(cluster)
    release.clear()
    release.install({**_VALUES, "certificates.own": _LIVES})
    cluster.await_rollout()
    release.await_verdicts()
    scene = Scene(cluster, "rotation")
    paths = scene.begin(*(f"web-{number}" for number in range(_WRITERS)))
    first = _held(cluster)
    seen = [first.authorities[0]]
    leaves = {first.serving}

    def has_rotated() -> bool:
        held = _held(cluster)
        leaves.add(held.serving)
        return held.issuer == held.newest != seen[-1]

    with load(cluster.plane, "responder-a", paths) as writes:
        for _ in range(2):
            eventually(has_rotated, "a new CA has signed a new certificate")
            seen.append(_held(cluster).authorities[0])
        eventually(lambda: first.authorities[0] not in _held(cluster).authorities, "one is dropped")
        eventually(lambda: _is_sound(release), "the bundles follow")
        writes.go_on()
    print(f"{len(seen)} CAs, {len(leaves)} leaves")
    assert writes.failures == []
