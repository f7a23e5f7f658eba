"""The Go peer of the benchmarks answers as the API server's own validation does."""

import base64
import json
import os
import shutil
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.controlplane import ControlPlane
from tests.controlplane.availability import skip_or_fail
from tests.controlplane.build import NoToolchainError, binary_path
from tests.controlplane.client import ApiClient
from tests.controlplane.credentials import Credentials, issue_credentials
from tests.controlplane.fixtures import only_crd
from tests.controlplane.ports import HOST, free_port
from tests.controlplane.process import ChildProcess
from tests.patience import PATIENCE

pytest_plugins = ("tests.controlplane.availability", "tests.controlplane.fixtures")
pytestmark = pytest.mark.e2e

_UID = "272ce49c-7064-51e5-0c98-57dd86b50043"


@dataclass(frozen=True, slots=True)
class Webhook:
    """A running Go webhook and a client of it."""

    url: str
    ca_file: Path
    client: ApiClient

    def ask(self, review: dict[str, Any]) -> dict[str, Any]:
        """Return the ``response`` of an answer."""
        status, answer = self.client.request("POST", "/validate", review, token="")
        assert status == 200
        # controller-runtime sets no content type, so the client hands over text.
        response: dict[str, Any] = json.loads(answer)["response"]
        assert response["uid"] == "1"
        return response


@pytest.fixture(scope="module")
def webhook(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Webhook]:
    """Run the Go webhook on a free port."""
    try:
        program = binary_path("gowebhook")
    except NoToolchainError as error:
        skip_or_fail(str(error))
    folder = tmp_path_factory.mktemp("gowebhook")
    issue_credentials(folder)
    files = Credentials.in_folder(folder)
    shutil.copy(files.serving_certificate, folder / "tls.crt")
    shutil.copy(files.serving_key, folder / "tls.key")
    port = free_port()
    process = ChildProcess("gowebhook", folder / "gowebhook.log")
    process.start([str(program), f"--port={port}", f"--cert-dir={folder}"], os.environ)
    try:
        _wait_for(port, process)
        client = ApiClient("localhost", port, files.ca_certificate)
        yield Webhook(f"https://localhost:{port}/validate", files.ca_certificate, client)
    finally:
        process.stop()


def _wait_for(port: int, process: ChildProcess) -> None:
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        process.ensure_alive()
        with socket.socket() as probe:
            if probe.connect_ex((HOST, port)) == 0:
                return
        time.sleep(0.05)
    pytest.fail(process.last_words())


def _eviction(uid: str) -> dict[str, Any]:
    return {
        "apiVersion": "lifecycle.k8s.io/v1alpha1",
        "kind": "Eviction",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {"target": {"pod": {"name": "web-0", "uid": uid}}},
    }


def _review(operation: str, uid: str) -> dict[str, Any]:
    kind = {"group": "lifecycle.k8s.io", "version": "v1alpha1", "kind": "Eviction"}
    request = {"uid": "1", "kind": kind, "operation": operation, "object": _eviction(uid)}
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}


def _definition() -> dict[str, Any]:
    """Accept evictions of any shape, so that only the webhook judges them."""
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {
        "name": "v1alpha1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": anything},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": "evictions.lifecycle.k8s.io",
            "annotations": {"api-approved.kubernetes.io": "unapproved, for tests only"},
        },
        "spec": {
            "group": "lifecycle.k8s.io",
            "names": {"plural": "evictions", "singular": "eviction", "kind": "Eviction"},
            "scope": "Namespaced",
            "versions": [version],
        },
    }


def _registration(webhook: Webhook) -> dict[str, Any]:
    rule = {
        "apiGroups": ["lifecycle.k8s.io"],
        "apiVersions": ["v1alpha1"],
        "resources": ["evictions"],
        "operations": ["CREATE"],
    }
    authority = base64.b64encode(webhook.ca_file.read_bytes()).decode()
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "gowebhook"},
        "webhooks": [
            {
                "name": "gowebhook.usher.dev",
                "clientConfig": {"url": webhook.url, "caBundle": authority},
                "rules": [rule],
                "sideEffects": "None",
                "admissionReviewVersions": ["v1"],
            }
        ],
    }


@pytest.fixture
def judged_plane(controlplane: ControlPlane, webhook: Webhook) -> Iterator[ControlPlane]:
    """Serve evictions by a definition and have them judged by the webhook."""
    setup = {"apiVersion": "v1", "kind": "List", "items": [_definition(), _registration(webhook)]}
    controlplane.kubectl("create", "-f", "-", stdin=json.dumps(setup), check=True)
    controlplane.kubectl("wait", "--for=condition=Established", "crd", "--all", check=True)
    yield controlplane
    controlplane.kubectl("delete", "-f", "-", stdin=json.dumps(setup), check=True)


def test_lawful_writes_are_allowed(webhook: Webhook) -> None:
    assert webhook.ask(_review("CREATE", _UID))["allowed"]


def test_refusals_carry_the_causes(webhook: Webhook) -> None:
    response = webhook.ask(_review("CREATE", "no"))
    assert not response["allowed"]
    assert (response["status"]["code"], response["status"]["reason"]) == (422, "Invalid")
    fields = [cause["field"] for cause in response["status"]["details"]["causes"]]
    assert fields == ["spec.target.pod.uid"]


def test_deletions_are_not_judged(webhook: Webhook) -> None:
    assert webhook.ask(_review("DELETE", "no"))["allowed"]


@only_crd
def test_an_api_server_passes_its_verdicts_on(judged_plane: ControlPlane) -> None:
    path = "/apis/lifecycle.k8s.io/v1alpha1/namespaces/default/evictions"
    deadline = time.monotonic() + PATIENCE
    status = 0
    answer: dict[str, Any] = {}
    while status != 422 and time.monotonic() < deadline:
        # It takes the API server a moment to notice a new webhook.
        status, answer = judged_plane.request("POST", f"{path}?dryRun=All", _eviction("no"))
        time.sleep(0.1)
    assert status == 422
    assert [cause["field"] for cause in answer["details"]["causes"]] == ["spec.target.pod.uid"]
    assert judged_plane.request("POST", f"{path}?dryRun=All", _eviction(_UID))[0] == 201
    denied = judged_plane.kubectl("create", "-f", "-", stdin=json.dumps(_eviction("no")))
    assert "spec.target.pod.uid: Invalid value" in denied.stderr
