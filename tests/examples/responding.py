"""``examples/responder.py`` as a process of its own, with the rights that its manifest gives it."""

import json
import os
import signal
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import yaml

from tests.controller.program import Users
from tests.controlplane.identities import Identity
from tests.controlplane.kubeconfig import render_kubeconfig
from tests.controlplane.process import ChildProcess, ProcessError
from tests.e2e.api import Object
from tests.e2e.cluster import Cluster

EXAMPLES: Final = Path(__file__).parents[2] / "examples"
PROGRAM: Final = EXAMPLES / "responder.py"
NAME: Final = "db.acme.io/failover"
"""The responder that the manifest is for."""
_ACCOUNT: Final = "responder"
_NAMESPACE: Final = "db"
_RIGHTS: Final = ("ServiceAccount", "Role", "RoleBinding")


def documents(manifest: str) -> list[Object]:
    """What one of the example's manifests holds."""
    return list(yaml.safe_load_all((EXAMPLES / manifest).read_text()))


class Database(Users):
    """A namespace whose writes the webhook judges."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        super().__init__(cluster)
        self.folder = folder

    def apply(self, document: Object) -> None:
        """Apply a document of a manifest in this namespace instead of the manifest's."""
        text = json.dumps(document).replace(f'"{_NAMESPACE}"', f'"{self.namespace}"')
        self.cluster.plane.kubectl("apply", "-f", "-", stdin=text, check=True)

    def kubeconfig(self, name: str) -> Path:
        """For an account with the rights of the manifest, but for the responder ``name``."""
        account = name.replace("/", "-").replace(".", "-")
        for document in documents("responder.yaml"):
            if document["kind"] in _RIGHTS:
                text = json.dumps(document).replace(f'"{_ACCOUNT}"', f'"{account}"')
                self.apply(json.loads(text.replace(NAME, name)))
        arguments = ("-n", self.namespace, "create", "token", account)
        token = self.cluster.plane.kubectl(*arguments, check=True).stdout
        plane = self.cluster.plane
        path = self.folder / f"{account}.kubeconfig"
        path.write_text(render_kubeconfig(plane.url, plane.ca_file, Identity(account, token=token)))
        return path

    def script(self, text: str) -> str:
        """A drain command that runs ``text``, in the folder of the test."""
        path = self.folder / f"{uuid.uuid4()}.sh"
        path.write_text(f"cd {self.folder}\n{text}\n")
        return f"sh {path}"

    def script_that_waits(self, text: str = "true") -> str:
        """A drain command that runs ``text`` and ends after :meth:`go_on`."""
        return self.script(f"{text}; until test -e go-on; do sleep 0.1; done")

    def go_on(self) -> None:
        """Let the drain commands end."""
        (self.folder / "go-on").touch()

    def entry(self, eviction: str, name: str = NAME) -> Object:
        """What the responder ``name`` has reported; empty as long as there is no such entry."""
        found = self.get("evictions", eviction) or {}
        entries = found.get("status", {}).get("responders", [])
        return next((entry for entry in entries if entry["name"] == name), {})


class Responder:
    """One running responder."""

    def __init__(
        self, database: Database, drain: str, *flags: str, name: str = NAME, rights: str = ""
    ) -> None:
        """``rights``: for which responder the account has the rights; by default for this one."""
        log = database.folder / f"{uuid.uuid4()}.log"
        self._process = ChildProcess("the example responder", log)
        kubeconfig = database.kubeconfig(rights or name)
        command = [
            *(sys.executable, str(PROGRAM), "--name", name, "--drain", drain),
            *("--namespace", database.namespace, "--kubeconfig", str(kubeconfig)),
            *flags,
        ]
        self._process.start(command, os.environ)

    def says(self, text: str) -> bool:
        """Whether it has logged ``text``; raises if it has ended."""
        self._process.ensure_alive()
        return text in self._process.log.read_text()

    def kill(self) -> None:
        self._process.stop(patience=0)

    def terminate(self) -> None:
        assert self._process.pid is not None
        os.kill(self._process.pid, signal.SIGTERM)

    def end(self) -> str | None:
        """How it has ended, with the end of its log; None while it runs."""
        try:
            self._process.ensure_alive()
        except ProcessError as error:
            return str(error)
        return None


@contextmanager
def responding(database: Database, drain: str, *flags: str, **more: str) -> Iterator[Responder]:
    """A responder that is killed at the end, and has not ended by itself."""
    responder = Responder(database, drain, *flags, **more)
    try:
        yield responder
        assert responder.end() is None
    finally:
        responder.kill()
