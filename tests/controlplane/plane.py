"""``ControlPlane``: one etcd and one kube-apiserver, from start to clean-up, and on demand more."""

import atexit
import json
import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.controlplane import parts
from tests.controlplane.build import binary_path
from tests.controlplane.client import ApiClient, Body
from tests.controlplane.commands import (
    ApiserverOptions,
    apiserver_arguments,
    audit_policy,
    environment,
    etcd_arguments,
)
from tests.controlplane.credentials import Credentials, issue_credentials
from tests.controlplane.identities import IDENTITIES, token_file_lines
from tests.controlplane.kubeconfig import render_kubeconfig
from tests.controlplane.mode import Mode
from tests.controlplane.ports import HOST, PORT_ATTEMPTS, PORT_TAKEN, free_port
from tests.controlplane.process import ChildProcess, ProcessError, wait_until


class ControlPlane:
    """A throwaway control plane on loopback.

    >>> with ControlPlane(Mode.NATIVE) as plane:
    ...     print(plane.kubectl("get", "evictions", "-A").stdout)

    Programs are built on the first use (see ``build``). Nothing outlives the ``with`` block; when
    the tests are killed no process does.
    """

    def __init__(
        self,
        mode: Mode = Mode.NATIVE,
        *,
        port: int | None = None,
        audit: bool = False,
        audit_bodies: bool = True,
        workloads: bool = False,
        feature_gates: Mapping[str, bool] | None = None,
        extra_arguments: Sequence[str] = (),
    ) -> None:
        """Prepare a plane; ``start`` or ``with`` starts it.

        ``port`` fixes the API server's port; ``audit`` keeps an audit log, with bodies unless
        ``audit_bodies`` is off; with ``workloads`` Deployments get pods (whose addresses reach the
        API server) and Services get endpoints (at which it calls webhooks) from the controller
        manager; ``feature_gates`` are set on top of the mode's; ``extra_arguments`` go to
        kube-apiserver.
        """
        self.mode = mode
        self._port = port
        self._audit = audit
        self._audit_bodies = audit_bodies
        self._workloads = workloads
        self._extra_arguments = tuple(extra_arguments)
        self._feature_gates = dict(feature_gates or {})
        self.etcd_port = 0
        """Where etcd serves plain HTTP on loopback; 0 before the start."""
        self._folder: Path | None = None
        self._client: ApiClient | None = None
        self._etcd: ChildProcess | None = None
        self._apiserver: ChildProcess | None = None
        self._others: dict[str, ChildProcess] = {}

    # Life

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def start(self) -> Self:
        """Build what is missing, start both programs, return when the API is ready.

        Raises ``BuildError`` or ``ProcessError``; nothing is left running then.
        """
        # Built before anything runs: a build takes minutes and may fail.
        for name in ("etcd", self.mode.apiserver, "kubectl"):
            binary_path(name)
        self._folder = Path(tempfile.mkdtemp(prefix="usher-controlplane-"))
        atexit.register(self.stop)
        try:
            self._write_files()
            self._start_etcd()
            self.start_apiserver()
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """Kill all programs and remove every file. Does nothing twice."""
        for process in self._processes():
            process.stop(patience=0)  # nothing to save: the data goes with them
        self._others.clear()
        self._apiserver = self._etcd = self._client = None
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None
        atexit.unregister(self.stop)

    def start_apiserver(self) -> None:
        """Start the API server alone, on the port and data it had before."""
        chosen = self._port
        for attempt in range(1, PORT_ATTEMPTS + 1):
            self._port = chosen or free_port()
            try:
                self._start_apiserver_once()
            except ProcessError as error:
                self.stop_apiserver()
                is_race = PORT_TAKEN in str(error) and chosen is None
                if not is_race or attempt == PORT_ATTEMPTS:
                    self._port = chosen
                    raise
            else:
                return

    def stop_apiserver(self) -> None:
        """Stop the API server alone; etcd and its data stay."""
        if self._apiserver is not None:
            self._apiserver.stop()
            self._apiserver = None

    def restart_apiserver(
        self,
        *,
        mode: Mode | None = None,
        feature_gates: Mapping[str, bool] | None = None,
        extra_arguments: Sequence[str] | None = None,
    ) -> None:
        """Stop and start the API server on the same port and data.

        ``mode`` switches release and built-in API, as an upgrade of a cluster would;
        ``feature_gates`` are set on top of the mode's; ``extra_arguments`` replace the former
        ones. What is not given stays as it is.
        """
        self.stop_apiserver()
        if mode is not None:
            self.mode = mode
        if feature_gates is not None:
            self._feature_gates = dict(feature_gates)
        if extra_arguments is not None:
            self._extra_arguments = tuple(extra_arguments)
        # Another mode serves other resources; kubectl would remember the old ones for hours.
        shutil.rmtree(self.folder / "home", ignore_errors=True)
        self.start_apiserver()

    def start_controller_manager(self) -> None:
        """Start garbage collectors, disruption and namespace controller, until ``stop``.

        With ``workloads`` also those of Deployments, Services and service accounts.

        What they are to collect should be served by then: what comes later is found twice a
        minute only.
        """
        keys = Credentials.in_folder(self.folder)
        kubeconfig = self.kubeconfig("system:kube-controller-manager")
        part = parts.controller_manager(kubeconfig, keys, workloads=self._workloads)
        self._start_part(part)

    def stop_controller_manager(self) -> None:
        """Stop the controller manager alone."""
        self._others.pop("kube-controller-manager").stop(patience=0)

    def start_kubelet(self, *nodes: str) -> None:
        """Start the fake kubelet (kwok) of all nodes, until ``stop``, and create those named."""
        self._start_part(parts.kubelet(self.kubeconfig()))
        for node in nodes:
            status, answer = self.request("POST", "/api/v1/nodes", {"metadata": {"name": node}})
            if status != HTTPStatus.CREATED:
                raise ProcessError(f"no node {node}: {answer}")

    # Addresses and identities

    @property
    def folder(self) -> Path:
        """Temporary folder of the plane; gone after ``stop``."""
        if self._folder is None:
            raise ProcessError("the control plane is not running")
        return self._folder

    @property
    def port(self) -> int:
        """Port of the API server on loopback."""
        if self._port is None:
            raise ProcessError("the control plane is not running")
        return self._port

    @property
    def url(self) -> str:
        """Base URL of the API server."""
        return f"https://{HOST}:{self.port}"

    @property
    def ca_file(self) -> Path:
        """CA certificate that signed the API server's certificate (PEM)."""
        return Credentials.in_folder(self.folder).ca_certificate

    def token(self, identity: str = "admin") -> str:
        """Bearer token of ``identity``, a user name in ``IDENTITIES``."""
        return IDENTITIES[identity].token

    def kubeconfig(self, identity: str = "admin") -> Path:
        """Path of a kubeconfig for ``identity``, a user name in ``IDENTITIES``."""
        path = self.folder / f"{identity.replace(':', '-')}.kubeconfig"
        if not path.exists():
            path.touch(mode=0o600)
            path.write_text(render_kubeconfig(self.url, self.ca_file, IDENTITIES[identity]))
        return path

    def pids(self) -> dict[str, int]:
        """Return the process ids of the running programs by name, for measurements."""
        return {
            process.name: process.pid for process in self._processes() if process.pid is not None
        }

    # Use

    def kubectl(
        self,
        *arguments: str,
        identity: str = "admin",
        stdin: str | None = None,
        check: bool = False,
    ) -> subprocess.CompletedProcess[str]:
        """Run kubectl as ``identity``; with ``check`` a failure raises ``CalledProcessError``."""
        # A home of its own keeps its caches and preferences apart from the user's.
        home = self.folder / "home"
        home.mkdir(exist_ok=True)
        environment = {
            **os.environ,
            "HOME": str(home),
            "KUBECONFIG": str(self.kubeconfig(identity)),
        }
        return subprocess.run(
            [binary_path("kubectl"), *arguments],
            env=environment,
            input=stdin if stdin is not None else "",
            capture_output=True,
            text=True,
            check=check,
        )

    def request(
        self,
        method: str,
        path: str,
        body: Body = None,
        identity: str = "admin",
        content_type: str = "application/json",
    ) -> tuple[int, Any]:
        """Send one request as ``identity``; return status and parsed JSON (or text).

        ``path`` may carry a query. For a patch, ``content_type`` names its kind. Raises
        ``OSError`` when the API server does not answer.
        """
        if self._client is None:
            raise ProcessError("the API server is not running")
        return self._client.request(
            method, path, body, token=self.token(identity), content_type=content_type
        )

    def audit_events(self) -> list[dict[str, Any]]:
        """Return the audit log so far, oldest first; empty without ``audit``."""
        path = self._audit_log
        if not path.exists():
            return []
        # The last line may still be in the writing.
        complete, _, _ = path.read_text().rpartition("\n")
        return [json.loads(line) for line in complete.splitlines()]

    def apiserver_log(self, lines: int = 100) -> str:
        """Return the last lines of kube-apiserver's log."""
        return _log_of("kube-apiserver", self.folder).tail(lines)

    # Within

    def _start_part(self, part: parts.Part) -> None:
        self._others[part.binary] = parts.start(part, self.folder)

    def _processes(self) -> list[ChildProcess]:
        """All that run, in the order in which they may be killed."""
        first = (*self._others.values(), self._apiserver, self._etcd)
        return [process for process in first if process is not None]

    @property
    def _audit_log(self) -> Path:
        return self.folder / "audit.log"

    def _write_files(self) -> None:
        issue_credentials(self.folder)
        tokens = self.folder / "tokens.csv"
        tokens.touch(mode=0o600)
        tokens.write_text(token_file_lines())
        (self.folder / "audit-policy.json").write_text(audit_policy(bodies=self._audit_bodies))

    def _start_etcd(self) -> None:
        for attempt in range(1, PORT_ATTEMPTS + 1):
            self.etcd_port = free_port()
            arguments = etcd_arguments(self.folder / "etcd", self.etcd_port, free_port())
            self._etcd = _log_of("etcd", self.folder)
            self._etcd.start([str(binary_path("etcd")), *arguments], environment())
            try:
                wait_until(self._etcd_answers, self._etcd)
            except ProcessError as error:
                if PORT_TAKEN not in str(error) or attempt == PORT_ATTEMPTS:
                    raise
            else:
                return

    def _etcd_answers(self) -> bool:
        with socket.create_connection((HOST, self.etcd_port), timeout=1):
            return True

    def _start_apiserver_once(self) -> None:
        options = ApiserverOptions(
            port=self.port,
            etcd_url=f"http://{HOST}:{self.etcd_port}",
            credentials=Credentials.in_folder(self.folder),
            token_file=self.folder / "tokens.csv",
            feature_gates={**self.mode.feature_gates, **self._feature_gates},
            runtime_config=self.mode.runtime_config,
            audit_policy=self.folder / "audit-policy.json" if self._audit else None,
            audit_log=self._audit_log if self._audit else None,
            workloads=self._workloads,
            extra_arguments=self._extra_arguments,
        )
        self._client = ApiClient(HOST, self.port, self.ca_file)
        self._apiserver = _log_of("kube-apiserver", self.folder)
        program = str(binary_path(self.mode.apiserver))
        self._apiserver.start([program, *apiserver_arguments(options)], environment())
        watched = [process for process in (self._apiserver, self._etcd) if process is not None]
        wait_until(self._apiserver_is_ready, *watched)

    def _apiserver_is_ready(self) -> bool:
        status, _ = self.request("GET", "/readyz")
        return status == 200


def _log_of(name: str, folder: Path) -> ChildProcess:
    return ChildProcess(name, folder / f"{name}.log")
