"""A cluster that runs what a chart installs: control plane, controllers, and a kubelet."""

import ipaddress
import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

import yaml

from tests.chart.sandbox import ROOT, why_not
from tests.controlplane import ControlPlane, Mode, NoToolchainError, binary_path
from tests.controlplane.availability import skip_or_fail
from tests.controlplane.process import ChildProcess
from tests.e2e.waiting import eventually

CHART: Final = ROOT / "charts" / "usher"
NAMESPACE: Final = "usher-system"
RELEASE: Final = "usher"
HELM_VERSIONS: Final = ("helm", "helm-3")
"""Programs of the test bed."""


@dataclass(frozen=True, slots=True)
class Result:
    """What a program has said."""

    status: int
    output: str
    errors: str

    @property
    def text(self) -> str:
        return self.output + self.errors


class _Rollout(NamedTuple):
    """How far a Deployment has come."""

    is_seen: bool
    wanted: int
    updated: int
    total: int
    ready: int
    pods: int

    @property
    def is_complete(self) -> bool:
        counts = (self.updated, self.total, self.ready, self.pods)
        return self.is_seen and all(count == self.wanted for count in counts)


class Cluster:
    """Reached through ``plane``; ``folder`` holds logs."""

    def __init__(self, plane: ControlPlane, folder: Path) -> None:
        self.plane = plane
        self.folder = folder
        self._kubelet = ChildProcess("kubelet", folder / "kubelet.log")
        self._network = _free_network()
        self.address = str(next(ipaddress.ip_network(self._network).hosts()))
        """Where this machine's Services are reached, at their ports."""

    # --- programs -----------------------------------------------------------------------------

    def start_kubelet(self) -> None:
        """Run pods, from now on."""
        command = (
            *(sys.executable, "-m", "tests.chart.kubelet"),
            *("--kubeconfig", str(self.plane.kubeconfig()), "--ca-file", str(self.plane.ca_file)),
            *("--folder", str(self.folder), "--network", self._network),
        )
        self._kubelet.start(command, os.environ)

    def stop_kubelet(self) -> None:
        """The node is gone, and with it all processes of its pods."""
        self._kubelet.stop(patience=0)

    @contextmanager
    def paused_kubelet(self) -> Iterator[None]:
        """Nobody looks after the pods."""
        self._kubelet.ensure_alive()
        assert self._kubelet.pid is not None
        os.kill(self._kubelet.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(self._kubelet.pid, signal.SIGCONT)

    def helm(self, *arguments: str, program: str = "helm", check: bool = True) -> Result:
        """Run helm in the namespace of the release, with a home of its own."""
        home = self.plane.folder / "home"
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "KUBECONFIG": str(self.plane.kubeconfig()),
            "HELM_NAMESPACE": NAMESPACE,
        }
        run = subprocess.run(
            [binary_path(program), *arguments],
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            cwd=ROOT,
        )
        if check:
            assert run.returncode == 0, f"helm {' '.join(arguments)}: {run.stderr}{run.stdout}"
        return Result(run.returncode, run.stdout, run.stderr)

    # --- objects ------------------------------------------------------------------------------

    def call(self, method: str, path: str, body: Any = None, **more: Any) -> Any:
        """One request that must succeed."""
        status, answer = self.plane.request(method, path, body, **more)
        assert 200 <= status < 300, answer
        return answer

    def exists(self, path: str) -> bool:
        return self.plane.request("GET", path)[0] == 200

    def pods(self, selector: str = "app.kubernetes.io/name=usher") -> list[dict[str, Any]]:
        """Pods of the release."""
        path = f"/api/v1/namespaces/{NAMESPACE}/pods?labelSelector={selector}"
        return list(self.call("GET", path)["items"])

    def await_rollout(self) -> None:
        """Wait until all replicas are new, and ready, and no others are left; else say why not.

        Each step may take as long as anything may.
        """
        seen = self._rollout()
        while not seen.is_complete:
            seen = self._await_other(seen)

    def _await_other(self, seen: "_Rollout") -> "_Rollout":
        def other() -> "_Rollout | None":
            found = self._rollout()
            return found if found != seen else None

        try:
            return eventually(other, f"{seen} goes on")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.why()}") from None

    def _rollout(self) -> "_Rollout":
        path = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/{RELEASE}"
        found = self.call("GET", path)
        status = found.get("status", {})
        return _Rollout(
            is_seen=status.get("observedGeneration") == found["metadata"]["generation"],
            wanted=found["spec"]["replicas"],
            updated=status.get("updatedReplicas", 0),
            total=status.get("replicas", 0),
            ready=status.get("readyReplicas", 0),
            pods=len(self.pods()),
        )

    def why(self) -> str:
        """What may explain that pods don't run."""
        lines = [
            json.dumps({pod["metadata"]["name"]: pod.get("status", {}).get("containerStatuses")})
            for pod in self.pods()
        ]
        for log in sorted(self.folder.glob("*/*.log")):
            lines += [f"--- {log.relative_to(self.folder)}", *log.read_text().splitlines()[-8:]]
        return "\n".join([*lines, "--- kubelet", self._kubelet.tail()])

    # --- containers ---------------------------------------------------------------------------

    def pid(self, pod: str, container: str) -> int:
        """The first process of a container."""
        return int((self.folder / f"{NAMESPACE}_{pod}" / f"{container}.pid").read_text())

    def log(self, pod: str, container: str) -> str:
        return (self.folder / f"{NAMESPACE}_{pod}" / f"{container}.log").read_text()

    def kill_containers(self) -> None:
        """SIGKILL to every container of the release, again and again as kubelets start them."""
        for pod in self.pods():
            for path in (self.folder / f"{NAMESPACE}_{pod['metadata']['name']}").glob("*.pid"):
                kill_group(int(path.read_text()))


def kill_group(pid: int) -> None:
    """SIGKILL to a container."""
    with suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


@contextmanager
def running_cluster(
    mode: Mode, folder: Path, *, audit: bool = False, arguments: Sequence[str] = ()
) -> Iterator[Cluster]:
    """A cluster without anything installed."""
    if reason := why_not():
        skip_or_fail(reason)
    plane = ControlPlane(
        mode, workloads=True, audit=audit, audit_bodies=False, extra_arguments=arguments
    )
    cluster = Cluster(plane, folder)
    try:
        plane.start()
        plane.start_controller_manager()
        cluster.start_kubelet()
        yield cluster
    except NoToolchainError as error:
        skip_or_fail(str(error))
    finally:
        cluster.stop_kubelet()
        plane.stop()


def _free_network() -> str:
    """A /24 out of what is meant for networks like this (RFC 6598) that nobody uses here."""
    used = subprocess.run(
        ["ip", "-4", "route", "show", "table", "all"], capture_output=True, text=True, check=True
    ).stdout
    while True:
        prefix = f"100.{random.randint(64, 127)}.{random.randint(0, 255)}."
        if prefix not in used:
            return f"{prefix}0/24"


def documents(text: str) -> list[dict[str, Any]]:
    """The objects of a stream of YAML."""
    return [each for each in yaml.load_all(text, yaml.CSafeLoader) if each]
