"""Agents and a webhook as processes, on a real API server."""

import base64
import json
import os
import signal
import sys
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import yaml

from certs.holdings import Holdings, bundle_certificates, decode
from tests.controlplane import ControlPlane
from tests.controlplane.process import ProcessError
from tests.e2e.forked import UsherProcess
from tests.e2e.waiting import eventually

ROOT: Final = Path(__file__).parents[2]
HOST: Final = "127.0.0.1"
NAMESPACE: Final = "usher-system"
SECRET: Final = f"/api/v1/namespaces/{NAMESPACE}/secrets/usher-tls"
IDENTITY: Final = "controller"
"""Has the permissions of docs/certificates.md."""
_ADMISSION: Final = "/apis/admissionregistration.k8s.io/v1"
CONFIGURATIONS: Final = {
    kind: f"{_ADMISSION}/{kind}webhookconfigurations/usher" for kind in ("validating", "mutating")
}
_LABEL: Final = "usher.dev/judged"
_MERGE: Final = "application/merge-patch+json"
PLACE: Final = (
    *("--secret", f"{NAMESPACE}/usher-tls"),
    *("--validating", "usher", "--mutating", "usher"),
)
_NAMES: Final = ("--service", f"{NAMESPACE}/usher", "--name", "localhost")


_AHEAD: Final = """
import sys
from datetime import timedelta
from cluster import clock
right, ahead = clock.now, timedelta(hours=int(sys.argv.pop(1)))
clock.now = lambda: right() + ahead
from cli.main import main
main()
"""


class Program:
    """One ``usher`` command that runs on."""

    def __init__(self, folder: Path, *arguments: str, hours_ahead: int = 0) -> None:
        """Start it; its clock is so many hours ahead."""
        self._process = UsherProcess(f"usher {arguments[0]}", folder / f"{uuid.uuid4()}.log")
        program = ("-c", _AHEAD, str(hours_ahead)) if hours_ahead else ("-m", "cli.main")
        command = (sys.executable, *program, *arguments, "--log-format", "json")
        self._process.start(command, os.environ)

    def log(self) -> list[dict[str, Any]]:
        complete, _, _ = self._process.log.read_text().rpartition("\n")
        return [json.loads(line) for line in complete.splitlines() if line.startswith("{")]

    def says(self, text: str) -> bool:
        return any(text in line["event"] for line in self.log())

    def line(self, event: str) -> dict[str, Any] | None:
        self._process.ensure_alive()
        return next((line for line in self.log() if line["event"] == event), None)

    def terminate(self) -> None:
        assert self._process.pid is not None
        os.kill(self._process.pid, signal.SIGTERM)

    def status(self) -> str:
        """How it has ended; "" while it runs."""
        try:
            self._process.ensure_alive()
        except ProcessError as error:
            return str(error).partition(";")[0]
        return ""

    def kill(self) -> None:
        self._process.stop(patience=0)


class Site:
    """A control plane with the configurations, the permissions, and a namespace that is judged."""

    def __init__(self, plane: ControlPlane, folder: Path) -> None:
        self.plane = plane
        self.folder = folder
        self._programs: list[Program] = []

    def call(self, method: str, path: str, body: Any = None, **more: Any) -> Any:
        status, answer = self.plane.request(method, path, body, **more)
        assert 200 <= status < 300, answer
        return answer

    def prepare(self) -> None:
        for name, labels in ((NAMESPACE, {}), ("judged", {_LABEL: "yes"})):
            body = {"metadata": {"name": name, "labels": labels}}
            self.call("POST", "/api/v1/namespaces", body)
        self.plane.kubectl("apply", "-f", "-", stdin=_permissions(), check=True)

    def reset(self, port: int = 1) -> None:
        """Configurations without bundles, for a webhook at ``port``; no Secret."""
        self.plane.request("DELETE", SECRET)
        for kind, path in CONFIGURATIONS.items():
            self.plane.request("DELETE", path)
            self.call("POST", path.rpartition("/")[0], _configuration(kind, port))

    def agent(self, *flags: str, hours_ahead: int = 0) -> Program:
        arguments = (*PLACE, *self.as_agent(), *_NAMES, *flags)
        return self.run("certs", "agent", *arguments, hours_ahead=hours_ahead)

    def as_agent(self) -> tuple[str, str]:
        return ("--kubeconfig", str(self.plane.kubeconfig(IDENTITY)))

    def run(self, *arguments: str, hours_ahead: int = 0) -> Program:
        program = Program(self.folder, *arguments, hours_ahead=hours_ahead)
        self._programs.append(program)
        return program

    def serve(self, certs: Path, port: int) -> Program:
        eventually((certs / "tls.crt").exists, "the agent writes the pair")
        flags = ("--tls-cert", str(certs / "tls.crt"), "--tls-key", str(certs / "tls.key"))
        binds = ("--bind", HOST, "--port", str(port), "--health-bind", HOST, "--health-port", "0")
        program = self.run("serve", *flags, *binds, "--offline")
        eventually(lambda: program.line("serving"), "usher serves")
        return program

    def stop(self) -> None:
        for program in self._programs:
            program.kill()
        self._programs.clear()

    def held(self) -> Holdings:
        """What the Secret holds."""
        status, secret = self.plane.request("GET", SECRET)
        data = secret.get("data") or {} if status == 200 else {}
        return decode({name: base64.b64decode(value) for name, value in data.items()})

    def bundles(self) -> list[set[Any]]:
        """The CAs of every webhook."""
        return [
            set(bundle_certificates(base64.b64decode(hook["clientConfig"].get("caBundle", ""))))
            for path in CONFIGURATIONS.values()
            for hook in self.call("GET", path)["webhooks"]
        ]

    def agrees(self) -> bool:
        """Whether there is a pair, and every bundle holds its CAs."""
        held = self.held()
        return (
            held.serving is not None
            and held.issuer is not None
            and all(found == set(held.authorities) for found in self.bundles())
        )

    def overwrite(self, **data: bytes) -> None:
        content = {
            name.replace("_", "."): base64.b64encode(value).decode() for name, value in data.items()
        }
        self.call("PATCH", SECRET, {"data": content}, content_type=_MERGE)

    def store(self, **files: bytes) -> None:
        """Create the Secret."""
        data = {name: base64.b64encode(content).decode() for name, content in files.items()}
        body = {"metadata": {"name": SECRET.rpartition("/")[2]}, "data": data}
        self.call("POST", SECRET.rpartition("/")[0], {**body, "type": "kubernetes.io/tls"})

    def trust(self, authorities: bytes) -> None:
        """Put CAs into every bundle."""
        content = base64.b64encode(authorities).decode()
        for path in CONFIGURATIONS.values():
            webhooks = self.call("GET", path)["webhooks"]
            for webhook in webhooks:
                webhook["clientConfig"]["caBundle"] = content
            self.call("PATCH", path, {"webhooks": webhooks}, content_type=_MERGE)

    def empty_bundles(self) -> None:
        for path in CONFIGURATIONS.values():
            webhooks = self.call("GET", path)["webhooks"]
            for webhook in webhooks:
                del webhook["clientConfig"]["caBundle"]
            self.call("PATCH", path, {"webhooks": webhooks}, content_type=_MERGE)

    def write(self) -> str:
        """A write that needs the webhook; why it was refused, or ""."""
        path = "/api/v1/namespaces/judged/configmaps?dryRun=All"
        status, answer = self.plane.request("POST", path, {"metadata": {"name": "a"}})
        return "" if status == 201 else str(answer)

    @contextmanager
    def writing(self) -> Iterator[list[str]]:
        """Write ten times a second or somewhat less, meanwhile; what :meth:`write` has answered."""
        answers: list[str] = []
        stop = threading.Event()

        def work() -> None:
            while not stop.wait(0.1):
                answers.append(self.write())

        thread = threading.Thread(target=work)
        thread.start()
        try:
            yield answers
        finally:
            stop.set()
            thread.join()


def _permissions() -> str:
    """The RBAC of the page, and bindings for it."""
    page = (ROOT / "docs" / "certificates.md").read_text(encoding="utf-8")
    block = page.partition("```yaml\n")[2].partition("```")[0]
    objects = list(yaml.safe_load_all(block))
    subject = {"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": IDENTITY}
    for role in list(objects):
        kind = role["kind"]
        reference = {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": kind,
            "name": role["metadata"]["name"],
        }
        objects.append(
            {
                "apiVersion": role["apiVersion"],
                "kind": f"{kind}Binding",
                "metadata": role["metadata"],
                "subjects": [subject],
                "roleRef": reference,
            }
        )
    return yaml.safe_dump_all(objects)


def _configuration(kind: str, port: int) -> dict[str, Any]:
    path = "validate" if kind == "validating" else "mutate"
    webhook = {
        "name": f"{path}.usher.dev",
        "admissionReviewVersions": ["v1"],
        "clientConfig": {"url": f"https://localhost:{port}/{path}"},
        "failurePolicy": "Fail",
        "sideEffects": "None",
        "timeoutSeconds": 20,
        "namespaceSelector": {"matchLabels": {_LABEL: "yes"}},
        "rules": [
            {
                "apiGroups": [""],
                "apiVersions": ["v1"],
                "operations": ["CREATE"],
                "resources": ["configmaps"],
            }
        ],
    }
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": f"{kind.capitalize()}WebhookConfiguration",
        "metadata": {"name": "usher"},
        "webhooks": [webhook],
    }
