"""The test bed itself: what every other end-to-end test takes for granted."""

import shutil
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from tests.controlplane import IDENTITIES, ControlPlane, Mode, ProcessError
from tests.controlplane.fixtures import only_native
from tests.e2e.waiting import eventually
from tests.patience import PATIENCE

pytest_plugins = ("tests.controlplane.fixtures",)
pytestmark = pytest.mark.e2e

_needs_programs = pytest.mark.usefixtures("programs")

_GROUP = "/apis/lifecycle.k8s.io/v1alpha1"
_EVICTIONS = f"{_GROUP}/namespaces/default/evictions"
_CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
_UID = "272ce49c-7064-51e5-0c98-57dd86b50043"


def _eviction(name: str, *, uid: str = _UID) -> dict[str, Any]:
    return {
        "apiVersion": "lifecycle.k8s.io/v1alpha1",
        "kind": "Eviction",
        "metadata": {"name": name},
        "spec": {"target": {"pod": {"name": "web-0", "uid": uid}}},
    }


def _config_map(name: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}


def _is_running(pid: int) -> bool:
    try:
        _, _, after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")
    except FileNotFoundError:
        return False
    return after_name.split()[0] != "Z"  # a zombie is dead, whoever will reap it


def _all_end_soon(pids: Iterable[int]) -> bool:
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        if not any(_is_running(pid) for pid in pids):
            return True
        time.sleep(0.05)
    return False


def test_every_mode_reports_its_release(controlplane: ControlPlane) -> None:
    status, version = controlplane.request("GET", "/version")
    wanted = "v1.34.4" if controlplane.mode is Mode.CRD_1_34 else "v1.37.2"
    assert (status, version["gitVersion"]) == (200, wanted)


def test_kubectl_understands_every_release(controlplane: ControlPlane) -> None:
    result = controlplane.kubectl("version", check=True)
    assert "Server Version: v1.3" in result.stdout
    # kubectl warns about a version that it can't parse.
    assert "error" not in result.stderr


@only_native
def test_native_mode_serves_and_judges_evictions(controlplane: ControlPlane) -> None:
    status, _ = controlplane.request("POST", _EVICTIONS, _eviction("served"))
    assert status == 201
    status, answer = controlplane.request("POST", _EVICTIONS, _eviction("bad", uid="no"))
    assert status == 422
    assert [cause["field"] for cause in answer["details"]["causes"]] == ["spec.target.pod.uid"]


def test_only_native_mode_serves_the_group(controlplane: ControlPlane) -> None:
    status, _ = controlplane.request("GET", _GROUP)
    assert status == (200 if controlplane.mode is Mode.NATIVE else 404)


@only_native
@pytest.mark.parametrize("user", list(IDENTITIES))
def test_identities_are_who_they_are(user: str, controlplane: ControlPlane) -> None:
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    status, answer = controlplane.request(
        "POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", review, identity=user
    )
    assert status == 201
    info = answer["status"]["userInfo"]
    assert info["username"] == user
    assert info["groups"] == [*IDENTITIES[user].groups, "system:authenticated"]


@only_native
def test_only_built_in_users_have_rights(controlplane: ControlPlane) -> None:
    allowed = {
        user
        for user in IDENTITIES
        if controlplane.request("GET", _CONFIG_MAPS, identity=user)[0] == 200
    }
    assert allowed == {"admin", "system:kube-controller-manager"}


@only_native
def test_kubeconfigs_carry_the_identity(controlplane: ControlPlane) -> None:
    result = controlplane.kubectl("auth", "whoami", "-o", "name", identity="drainer")
    assert result.returncode == 0, result.stderr
    denied = controlplane.kubectl("get", "pods", identity="drainer")
    assert 'User "drainer" cannot list resource "pods"' in denied.stderr


@only_native
def test_kubectl_reads_standard_input(controlplane: ControlPlane) -> None:
    manifest = '{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "piped"}}'
    result = controlplane.kubectl("apply", "-f", "-", stdin=manifest, check=True)
    assert result.stdout == "configmap/piped created\n"


@only_native
def test_audit_log_names_the_user(controlplane: ControlPlane) -> None:
    controlplane.request("GET", f"{_CONFIG_MAPS}/audited", identity="viewer")
    found = [
        event["user"]["username"]
        for event in controlplane.audit_events()
        if event["requestURI"].endswith("/audited")
    ]
    assert found == ["viewer"]


@_needs_programs
def test_restart_keeps_data_and_switches_the_mode() -> None:
    with ControlPlane(Mode.CRD) as plane:
        url = plane.url
        assert plane.request("POST", _CONFIG_MAPS, _config_map("kept"))[0] == 201
        assert plane.kubectl("get", "evictions").returncode != 0

        plane.restart_apiserver(mode=Mode.NATIVE)

        assert plane.url == url
        assert plane.request("GET", f"{_CONFIG_MAPS}/kept")[0] == 200
        assert plane.kubectl("get", "evictions").returncode == 0


@only_native
def test_stopped_apiserver_does_not_answer(controlplane: ControlPlane) -> None:
    controlplane.stop_apiserver()
    try:
        with pytest.raises(OSError, match="refused"):
            controlplane.request("GET", "/readyz")
    finally:
        controlplane.start_apiserver()
    assert controlplane.request("GET", "/readyz") == (200, "ok")


@_needs_programs
def test_dying_apiserver_gives_a_readable_error() -> None:
    plane = ControlPlane(Mode.CRD, feature_gates={"NoSuchGate": True})
    with pytest.raises(ProcessError) as caught:
        plane.start()
    message = str(caught.value)
    assert message.startswith("kube-apiserver ended with status 1; the end of its log:")
    assert "NoSuchGate" in message


@_needs_programs
def test_stop_leaves_nothing_behind() -> None:
    with ControlPlane(Mode.CRD) as plane:
        folder, pids = plane.folder, plane.pids()
        assert sorted(pids) == ["etcd", "kube-apiserver"]
        assert all(_is_running(pid) for pid in pids.values())
    assert not folder.exists()
    assert not any(_is_running(pid) for pid in pids.values())


def _pod(name: str, node: str) -> dict[str, Any]:
    return {
        "metadata": {"name": name},
        "spec": {"nodeName": node, "containers": [{"name": "c", "image": "c"}]},
    }


@_needs_programs
def test_a_cluster_lives() -> None:
    with ControlPlane(Mode.CRD) as plane:
        plane.start_controller_manager()
        plane.start_kubelet("node-0")
        pids = plane.pids()
        assert {"kube-controller-manager", "kwok"} <= pids.keys()
        pods = "/api/v1/namespaces/default/pods"
        assert plane.request("POST", pods, _pod("web-0", "node-0"))[0] == 201
        eventually(
            lambda: plane.request("GET", f"{pods}/web-0")[1]["status"]["phase"] == "Running",
            "the pod runs",
        )
        plane.request("DELETE", f"{pods}/web-0")
        eventually(lambda: plane.request("GET", f"{pods}/web-0")[0] == 404, "the pod ends")
        assert plane.request("POST", "/api/v1/namespaces", {"metadata": {"name": "a"}})[0] == 201
        plane.request("DELETE", "/api/v1/namespaces/a")
        eventually(lambda: plane.request("GET", "/api/v1/namespaces/a")[0] == 404, "it is gone")
    assert not any(_is_running(pid) for pid in pids.values())


_KILLED_TEST = """
import os, signal
from tests.controlplane import ControlPlane, Mode
plane = ControlPlane(Mode.CRD).start()
print(*plane.pids().values(), plane.folder, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


@_needs_programs
def test_killed_tests_leave_no_process() -> None:
    result = subprocess.run(
        [sys.executable, "-c", _KILLED_TEST], capture_output=True, text=True, check=False
    )
    *pids, folder = result.stdout.split()
    try:
        assert len(pids) == 2
        assert _all_end_soon([int(pid) for pid in pids])
    finally:
        shutil.rmtree(folder)
