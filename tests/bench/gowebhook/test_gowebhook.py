"""The Go peer of the benchmarks answers as the API server's own validation does."""

import json
import os
import shutil
import socket
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.controlplane.availability import skip_or_fail
from tests.controlplane.build import NoToolchainError, binary_path
from tests.controlplane.client import ApiClient
from tests.controlplane.credentials import Credentials, issue_credentials
from tests.controlplane.ports import HOST, free_port
from tests.controlplane.process import ChildProcess

pytest_plugins = ("tests.controlplane.availability",)
pytestmark = pytest.mark.e2e

_UID = "272ce49c-7064-51e5-0c98-57dd86b50043"


@pytest.fixture(scope="module")
def webhook(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiClient]:
    """Return a client of a running Go webhook."""
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
        yield ApiClient("localhost", port, files.ca_certificate)
    finally:
        process.stop()


def _wait_for(port: int, process: ChildProcess) -> None:
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        process.ensure_alive()
        with socket.socket() as probe:
            if probe.connect_ex((HOST, port)) == 0:
                return
        time.sleep(0.05)
    pytest.fail(process.last_words())


def _review(operation: str, uid: str) -> dict[str, Any]:
    kind = {"group": "lifecycle.k8s.io", "version": "v1alpha1", "kind": "Eviction"}
    eviction = {
        "apiVersion": "lifecycle.k8s.io/v1alpha1",
        "kind": "Eviction",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {"target": {"pod": {"name": "web-0", "uid": uid}}},
    }
    return {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {"uid": "1", "kind": kind, "operation": operation, "object": eviction},
    }


def _ask(webhook: ApiClient, review: dict[str, Any]) -> dict[str, Any]:
    status, answer = webhook.request("POST", "/validate", review, token="")
    assert status == 200
    # controller-runtime sets no content type, so the client hands over text.
    response: dict[str, Any] = (json.loads(answer) if isinstance(answer, str) else answer)[
        "response"
    ]
    assert response["uid"] == "1"
    return response


def test_lawful_writes_are_allowed(webhook: ApiClient) -> None:
    assert _ask(webhook, _review("CREATE", _UID))["allowed"]


def test_refusals_carry_the_causes(webhook: ApiClient) -> None:
    response = _ask(webhook, _review("CREATE", "no"))
    assert not response["allowed"]
    assert (response["status"]["code"], response["status"]["reason"]) == (422, "Invalid")
    fields = [cause["field"] for cause in response["status"]["details"]["causes"]]
    assert fields == ["spec.target.pod.uid"]


def test_deletions_are_not_judged(webhook: ApiClient) -> None:
    assert _ask(webhook, _review("DELETE", "no"))["allowed"]
