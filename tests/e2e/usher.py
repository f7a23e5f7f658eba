"""``usher serve`` as a process of its own, and its registration with an API server."""

import base64
import json
import os
import signal
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from certs.issue import Authority, issue_authority, issue_serving
from rules.api import RESPONDERS_ANNOTATION
from tests.controlplane.process import ProcessError
from tests.e2e.api import Object
from tests.e2e.cluster import Cluster
from tests.e2e.forked import UsherProcess
from tests.e2e.times import now
from tests.e2e.waiting import eventually

HOST: Final = "127.0.0.1"
WEBHOOK: Final = "validate.usher.dev"
"""The webhook's name: API servers put it into refusals and before audit annotations."""
_NAMES: Final = ("localhost", HOST)
_TIMEOUT_SECONDS: Final = 5
_CONFIGURATIONS: Final = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
_LABEL: Final = "usher.dev/judged-by"
"""On a namespace: the registration that is for it."""
_RULES: Final[list[Object]] = [
    {
        "apiGroups": ["lifecycle.k8s.io"],
        "apiVersions": ["v1alpha1"],
        "operations": ["CREATE", "UPDATE", "DELETE"],
        "resources": [
            "evictions",
            "evictions/status",
            "evictionrequests",
            "evictionrequests/status",
        ],
    },
    {
        "apiGroups": ["usher.dev"],
        "apiVersions": ["v1alpha1"],
        "operations": ["CREATE", "UPDATE"],
        "resources": ["responderpolicies", "clusterresponderpolicies"],
    },
    {
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "operations": ["CREATE", "UPDATE"],
        "resources": ["pods", "pods/status"],
    },
]


_AGE: Final = timedelta(hours=1)
"""Of a certificate, which is to be valid by wrong clocks, too."""


class Usher:
    """One running ``usher serve`` with a certificate for localhost."""

    def __init__(
        self,
        folder: Path,
        *flags: str,
        authority: Authority | None = None,
        readiness: bool = True,
        ahead: int = 0,
    ) -> None:
        """Start it, its files in ``folder``, and wait until its ``readiness`` is that.

        The clock of its machine is so many seconds ``ahead``.
        """
        folder.mkdir(parents=True, exist_ok=True)
        self.authority = authority or issue_authority(now() - _AGE)
        _write_certificate(folder, self.authority)
        self._process = UsherProcess("usher", folder / "log")
        command = [
            *(
                sys.executable,
                "-m",
                *(("tests.e2e.skewed", str(ahead)) if ahead else ("cli.main",)),
            ),
            *("serve", "--log-format", "json"),
            *("--tls-cert", str(folder / "tls.crt"), "--tls-key", str(folder / "tls.key")),
            *("--bind", HOST, "--port", "0", "--health-bind", HOST, "--health-port", "0"),
            *(() if "--kubeconfig" in flags else ("--offline",)),
            *flags,
        ]
        self._process.start(command, os.environ)
        serving = eventually(lambda: self._line("serving"), "usher serves")
        self.port = _port(serving["addresses"])
        self._health_port = _port(serving["health"])
        what = "usher is ready" if readiness else "usher answers that it is not ready"
        eventually(lambda: self._readiness() is readiness, what)

    def is_ready(self) -> bool:
        """Whether it asks for calls; False as well where nobody listens any more."""
        return self._readiness() is True

    def _readiness(self) -> bool | None:
        """Whether it says that it asks for calls; None where nobody says anything."""
        url = f"http://{HOST}:{self._health_port}/readyz"
        try:
            with urllib.request.urlopen(url, timeout=10) as answer:
                return bool(answer.status == 200)
        except urllib.error.HTTPError:
            return False
        except (urllib.error.URLError, OSError):
            return None

    def metric(self, name: str) -> float:
        """The sum of a metric over all its labels."""
        with urllib.request.urlopen(f"http://{HOST}:{self._health_port}/metrics") as answer:
            lines = answer.read().decode().splitlines()
        values = [line.rsplit(" ", 1)[1] for line in lines if line.split("{")[0].split()[0] == name]
        return sum(map(float, values))

    def has_ended(self) -> bool:
        """Whether the process is gone."""
        try:
            self._process.ensure_alive()
        except ProcessError:
            return True
        return False

    def log(self) -> list[Object]:
        """The log lines so far."""
        complete, _, _ = self._process.log.read_text().rpartition("\n")
        return [json.loads(line) for line in complete.splitlines()]

    def terminate(self) -> None:
        """Ask it to go down."""
        assert self._process.pid is not None
        os.kill(self._process.pid, signal.SIGTERM)

    def stop(self) -> None:
        """End it at once."""
        self._process.stop(patience=0)

    def _line(self, event: str) -> Object | None:
        self._process.ensure_alive()
        return next((line for line in self.log() if line["event"] == event), None)


def _write_certificate(folder: Path, authority: Authority) -> None:
    pair = issue_serving(authority, _NAMES, now() - _AGE)
    (folder / "tls.crt").write_bytes(pair.certificate)
    (folder / "tls.key").write_bytes(pair.key)


def _port(addresses: list[str]) -> int:
    return int(addresses[0].rpartition(":")[2])


@contextmanager
def running_usher(
    folder: Path, *flags: str, authority: Authority | None = None, **more: Any
) -> Iterator[Usher]:
    """A webhook that is killed at the end; ``more`` is what :class:`Usher` takes besides."""
    usher = Usher(folder, *flags, authority=authority, **more)
    try:
        yield usher
    finally:
        usher.stop()


def judged_by(name: str) -> dict[str, str]:
    """The labels of a namespace that the registration ``name`` is for."""
    return {_LABEL: name}


class Registration:
    """A ValidatingWebhookConfiguration for the namespaces that it makes, and for no others.

    API servers ask about objects that are in no namespace whatever the selector says.
    """

    def __init__(
        self, cluster: Cluster, name: str, authority: Authority, port: int, failure_policy: str
    ) -> None:
        self._cluster = cluster
        self._name = name
        self._body = _configuration(name, authority, port, failure_policy)

    def create(self) -> None:
        """Register; :meth:`new_namespace` waits until it is in effect."""
        answer = self._cluster.api("POST", _CONFIGURATIONS, self._body)
        assert answer.ok, answer.message

    def delete(self) -> None:
        """Withdraw the registration."""
        answer = self._cluster.api("DELETE", f"{_CONFIGURATIONS}/{self._name}")
        assert answer.ok, answer.message

    def new_namespace(self) -> str:
        """A namespace whose writes the webhook judges from now on."""
        namespace = self._cluster.new_namespace(judged_by(self._name))
        eventually(lambda: self.judges(namespace), f"the webhook judges {namespace}")
        return namespace

    def judges(self, namespace: str) -> bool:
        """Whether a pod that only the webhook would refuse is refused."""
        answer = self._cluster.create(namespace, _PROBE, "?dryRun=All")
        assert answer.ok or WEBHOOK in answer.message, answer.message
        return not answer.ok


_PROBE: Final[Object] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "probe", "annotations": {RESPONDERS_ANNOTATION: "unreadable"}},
    "spec": {"containers": [{"name": "probe", "image": "probe"}]},
}


@contextmanager
def registered(
    cluster: Cluster, name: str, authority: Authority, port: int, failure_policy: str = "Fail"
) -> Iterator[Registration]:
    """A registration that is withdrawn at the end."""
    registration = Registration(cluster, name, authority, port, failure_policy)
    registration.create()
    try:
        yield registration
    finally:
        registration.delete()


def _configuration(name: str, authority: Authority, port: int, failure_policy: str) -> Object:
    bundle = base64.b64encode(authority.pair.certificate).decode()
    webhook: dict[str, Any] = {
        "name": WEBHOOK,
        "admissionReviewVersions": ["v1"],
        "clientConfig": {"url": f"https://localhost:{port}/validate", "caBundle": bundle},
        "failurePolicy": failure_policy,
        "matchPolicy": "Equivalent",
        "namespaceSelector": {"matchLabels": judged_by(name)},
        "rules": _RULES,
        "sideEffects": "None",
        "timeoutSeconds": _TIMEOUT_SECONDS,
    }
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": name},
        "webhooks": [webhook],
    }
