"""``usher controller`` as a process of its own on a real API server, and what users do there."""

import json
import os
import re
import signal
import sys
import urllib.error
import urllib.request
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final, Self

import pytest

from rules.api import API_VERSION, RESPONDERS_ANNOTATION
from tests.controller.rights import (
    CONTROLLER,
    DRAINER,
    RESPONDERS,
    STRANGER,
    grant_controller,
    grant_users,
)
from tests.controlplane import Mode, NoToolchainError
from tests.controlplane.availability import skip_or_fail
from tests.controlplane.process import ProcessError
from tests.e2e.api import MERGE_PATCH, Answer, Object
from tests.e2e.cluster import Cluster, running_cluster
from tests.e2e.forked import UsherProcess
from tests.e2e.guarded import NAME, guarded
from tests.e2e.usher import judged_by
from tests.e2e.waiting import eventually
from tests.patience import PATIENCE

_HOST: Final = "127.0.0.1"
NODE: Final = "node-0"
"""The node with a kubelet."""
_GROUPS: Final = {
    "evictions": API_VERSION,
    "evictionrequests": API_VERSION,
    "jobs": "batch/v1",
    "poddisruptionbudgets": "policy/v1",
}
"""Resource → group and version, where it is not the core group."""


class Program:
    """One running controller."""

    def __init__(
        self, cluster: Cluster, folder: Path, *flags: str, identity: str = "", ahead: int = 0
    ) -> None:
        """Start it as ``identity``; by default as the account of its own, which gets its rights.

        The clock of its machine is so many seconds ``ahead``.
        """
        if not identity:
            grant_controller(cluster)
        folder.mkdir(parents=True, exist_ok=True)
        self._process = UsherProcess("usher controller", folder / f"{uuid.uuid4()}.log")
        command = [
            *(sys.executable, "-m"),
            *(("tests.e2e.skewed", str(ahead)) if ahead else ("cli.main",)),
            *("controller", "--log-format", "json"),
            *("--kubeconfig", str(cluster.plane.kubeconfig(identity or CONTROLLER))),
            *("--health-bind", _HOST, "--health-port", "0", "--log-level", "debug"),
            *flags,
        ]
        self._process.start(command, os.environ)
        self._health = eventually(partial(self.line, "started"), "the controller starts")["health"]

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    def written(self) -> int:
        """How many writes it has made so far, by its log."""
        return sum(line["event"] in ("created", "written") for line in self.log())

    def log(self) -> list[Object]:
        complete, _, _ = self._process.log.read_text().rpartition("\n")
        return [json.loads(line) for line in complete.splitlines() if line.startswith("{")]

    def line(self, event: str) -> Object | None:
        """The first log line about ``event``."""
        self._process.ensure_alive()
        return next((line for line in self.log() if event in line["event"]), None)

    def has_ended(self) -> bool:
        try:
            self._process.ensure_alive()
        except ProcessError:
            return True
        return False

    def leads(self) -> bool:
        return self.line("leading") is not None

    def wait_for_lead(self) -> None:
        eventually(self.leads, "the controller leads")

    def ask(self, path: str) -> tuple[int, str]:
        """Status and text of /livez, /readyz or /metrics."""
        try:
            with urllib.request.urlopen(
                f"http://{self._health[0]}{path}", timeout=PATIENCE
            ) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def metric(self, name: str) -> float:
        """The sum of a metric over all its labels."""
        lines = self.ask("/metrics")[1].splitlines()
        values = [line.rsplit(" ", 1)[1] for line in lines if line.split("{")[0].split()[0] == name]
        return sum(map(float, values))

    def zone_state(self, zone: str) -> str | None:
        """The state of a zone, by the metric."""
        sample = f'{{region="eu-1",state="(.*)",zone="{zone}"}} 1.0'
        found = re.search(
            f"usher_controller_node_health_zone_state{sample}", self.ask("/metrics")[1]
        )
        return found[1] if found else None

    def terminate(self) -> None:
        os.kill(self.pid, signal.SIGTERM)

    def kill(self) -> None:
        self._process.stop(patience=0)

    @contextmanager
    def killed_afterwards(self) -> Iterator[Self]:
        try:
            yield self
        finally:
            self.kill()

    def errors(self) -> list[Object]:
        """What a controller must never have to say."""
        return [line for line in self.log() if line["level"] in ("error", "critical")]


@contextmanager
def running(cluster: Cluster, folder: Path, *flags: str, **more: Any) -> Iterator[Program]:
    """A controller that is killed at the end, and has had nothing terrible to say."""
    program = Program(cluster, folder, *flags, **more)
    try:
        yield program
        assert program.errors() == []
    finally:
        program.kill()


class Users:
    """Everybody but the controller, in a namespace of their own, which the webhook judges.

    Requests are made as their requester, reports as their responder, all the rest as admin.
    """

    def __init__(self, cluster: Cluster) -> None:
        grant_users(cluster)
        self.cluster = cluster
        self.namespace = cluster.new_namespace(judged_by(NAME))

    def path(self, resource: str, name: str = "", subresource: str = "") -> str:
        group = _GROUPS.get(resource, "v1")
        prefix = "/apis" if "/" in group else "/api"
        parts = (group, "namespaces", self.namespace, resource, name, subresource)
        return "/".join((prefix, *filter(None, parts)))

    def call(self, method: str, path: str, body: Any = None, **more: Any) -> Answer:
        identity = DRAINER if path.startswith(self.path("evictionrequests")) else "admin"
        answer = self.cluster.api(method, path, body, **{"identity": identity, **more})
        assert answer.ok, answer.message
        return answer

    def create_pod(
        self, name: str, *responders: str, node: str | None = NODE, **metadata: Any
    ) -> Object:
        """A pod; ``responders`` are declared in the way of the cluster, the first one first.

        Its kubelet runs it, and ends it when it is deleted. Without a node nobody does.
        """
        declared = [
            {"name": responder, "priority": 9000 - place}
            for place, responder in enumerate(responders)
        ]
        spec: Object = {"containers": [{"name": "c", "image": "c"}]}
        if node:
            spec["nodeName"] = node
        metadata = {"name": name, **metadata}
        if declared and self.cluster.is_native:
            spec["evictionResponders"] = declared
        elif declared:
            metadata["annotations"] = {RESPONDERS_ANNOTATION: json.dumps(declared)}
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
        pod: Object = self.call("POST", self.path("pods"), body).body
        return pod

    def request(
        self, pod: Object, name: str, intent: str = "Eviction", identity: str = DRAINER
    ) -> Object:
        """An EvictionRequest for ``pod``."""
        target = {"pod": {"name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]}}
        body = {
            "apiVersion": API_VERSION,
            "kind": "EvictionRequest",
            "metadata": {"name": name},
            "spec": {
                "target": target,
                "requester": f"{name}.acme.io/drain",
                "intent": intent,
            },
        }
        path = self.path("evictionrequests")
        created: Object = self.call("POST", path, body, identity=identity).body
        return created

    def patch(self, path: str, change: Object) -> Object:
        changed: Object = self.call("PATCH", path, change, content_type=MERGE_PATCH).body
        return changed

    def withdraw(self, name: str) -> None:
        path = self.path("evictionrequests", name)
        self.patch(path, {"spec": {"intent": "Withdrawn"}})

    def delete(self, resource: str, name: str) -> None:
        self.call("DELETE", self.path(resource, name))

    def wait_until_gone(self, resource: str, name: str) -> None:
        eventually(lambda: self.get(resource, name) is None, f"the end of {resource}/{name}")

    def list(self, resource: str) -> list[Object]:
        found: list[Object] = self.call("GET", self.path(resource)).body["items"]
        return found

    def get(self, resource: str, name: str) -> Object | None:
        answer = self.cluster.api("GET", self.path(resource, name))
        return answer.body if answer.ok else None

    def evictions_called(self, *codes: int) -> Counter[str]:
        """Pod → how often its eviction was called (and answered so), by the audit log."""
        references = [
            event.get("objectRef", {})
            for event in self.cluster.plane.audit_events()
            if event["stage"] == "ResponseComplete"
            and (not codes or event["responseStatus"]["code"] in codes)
        ]
        return Counter(
            reference["name"]
            for reference in references
            if reference.get("subresource") == "eviction"
            and reference.get("namespace") == self.namespace
        )

    def eviction(self, name: str) -> Object:
        """The Eviction of that name, as soon as there is one."""
        return eventually(lambda: self.get("evictions", name), f"Eviction {name}")

    def wait_for(self, resource: str, name: str, what: Callable[[Object], bool]) -> Object:
        """The object as soon as ``what`` holds."""

        def look() -> Object | None:
            found = self.get(resource, name)
            return found if found is not None and what(found) else None

        return eventually(look, f"{resource}/{name}")

    def wait_for_reason(self, resource: str, name: str, reason: str) -> Object:
        """The object as soon as one of its conditions is True for ``reason``."""
        return self.wait_for(resource, name, lambda found: reason in reasons(found))

    def report(self, eviction: str, responder: str, **changes: Any) -> None:
        """A responder reports; a conflict with others is tried again."""

        def attempt() -> bool:
            document = self.get("evictions", eviction)
            assert document is not None
            for entry in document["status"]["responders"]:
                if entry["name"] == responder:
                    entry.update(changes)
            path = self.path("evictions", eviction, "status")
            answer = self.cluster.api("PUT", path, document, identity=RESPONDERS[responder])
            assert answer.ok or answer.code == 409, answer.message
            return answer.ok

        eventually(attempt, "the report is taken")


def reasons(document: Object) -> set[str]:
    """Why which conditions are True."""
    conditions = document.get("status", {}).get("conditions", [])
    return {condition["reason"] for condition in conditions if condition["status"] == "True"}


def states(eviction: Object) -> dict[str, str]:
    """Responder → state."""
    listed = eviction.get("status", {}).get("targetResponders", [])
    return {responder["name"]: responder["state"] for responder in listed}


def present() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@contextmanager
def prepared(mode: Mode) -> Iterator[Cluster]:
    """A cluster with an audit log, a node, Kubernetes' own controllers, and guards that all deny.

    The tests are skipped where there can be none.
    """
    try:
        with running_cluster(mode, audit=True) as cluster:
            cluster.plane.start_controller_manager()
            cluster.plane.start_kubelet(NODE)
            with guarded(cluster, cluster.plane.folder / "usher", CONTROLLER, STRANGER):
                yield cluster
    except NoToolchainError as error:
        skip_or_fail(str(error))


@pytest.fixture(scope="module", params=[Mode.NATIVE, Mode.CRD], ids=str)
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """Each way to have the API, in 1.37.2."""
    with prepared(request.param) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def controller(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    """One controller for the tests of a module."""
    with running(cluster, tmp_path_factory.mktemp("controller")) as program:
        program.wait_for_lead()
        yield program


@pytest.fixture
def users(cluster: Cluster, controller: Program) -> Users:
    """A new namespace, and a controller that cares for it."""
    return Users(cluster)
