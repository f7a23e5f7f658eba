"""What a cluster has beyond its API server: controllers, and kubelets that only pretend."""

import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path

from tests.controlplane.build import binary_path
from tests.controlplane.client import ApiClient
from tests.controlplane.commands import (
    controller_manager_arguments,
    environment,
    kubelet_arguments,
)
from tests.controlplane.credentials import Credentials
from tests.controlplane.ports import HOST, PORT_ATTEMPTS, PORT_TAKEN, free_port
from tests.controlplane.process import ChildProcess, ProcessError, wait_until


@dataclass(frozen=True, slots=True)
class Part:
    """One more program; ``arguments`` and ``is_ready`` are told its port on loopback."""

    binary: str
    arguments: Callable[[int], list[str]]
    is_ready: Callable[[int], bool]


def controller_manager(kubeconfig: Path, keys: Credentials, *, workloads: bool) -> Part:
    """Kubernetes' garbage collectors, its disruption and its namespace controller, or more."""

    def is_ready(port: int) -> bool:
        client = ApiClient(HOST, port, keys.ca_certificate)
        return client.request("GET", "/healthz", token="")[0] == HTTPStatus.OK

    return Part(
        "kube-controller-manager",
        lambda port: controller_manager_arguments(port, kubeconfig, keys, workloads=workloads),
        is_ready,
    )


def kubelet(kubeconfig: Path) -> Part:
    """The fake kubelet of all nodes: they are ready at once, pods on them run and end."""
    stages = sorted(binary_path("kwok").parent.glob("*.yaml"))

    def is_ready(port: int) -> bool:
        with urllib.request.urlopen(f"http://{HOST}:{port}/healthz", timeout=10) as answer:
            return bool(answer.status == HTTPStatus.OK)

    return Part("kwok", lambda port: kubelet_arguments(port, kubeconfig, stages), is_ready)


def start(part: Part, folder: Path) -> ChildProcess:
    """Start a part, with its log in ``folder``; return when it is ready."""
    program = str(binary_path(part.binary))
    for attempt in range(1, PORT_ATTEMPTS + 1):
        port = free_port()
        process = ChildProcess(part.binary, folder / f"{part.binary}.log")
        process.start([program, *part.arguments(port)], environment())
        try:
            wait_until(lambda: part.is_ready(port), process)  # noqa: B023 - called at once
        except ProcessError as error:
            process.stop(patience=0)
            if PORT_TAKEN not in str(error) or attempt == PORT_ATTEMPTS:
                raise
        else:
            return process
    raise AssertionError("the last attempt returns or raises")
