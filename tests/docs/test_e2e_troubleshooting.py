"""docs/troubleshooting.md: what it says that kubectl prints is what a real API server says."""

import base64
import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import pytest

from certs.issue import issue_authority
from tests.controlplane import ControlPlane, Mode, NoToolchainError
from tests.controlplane.availability import skip_or_fail
from tests.e2e.times import now
from tests.e2e.usher import HOST, WEBHOOK, Usher
from tests.e2e.waiting import eventually
from tests.examples.shell import page

pytestmark = pytest.mark.e2e

PAGE: Final = page("troubleshooting.md")
OTHER_ADDRESS: Final = "127.0.0.2"
REQUEST: Final = """
apiVersion: lifecycle.k8s.io/v1alpha1
kind: EvictionRequest
metadata: {name: drain-web, namespace: default}
spec:
  requester: ops.example.com/drain
  intent: Eviction
  target: {pod: {name: web, uid: 9b0a7a5e-5f0c-4b52-9f0c-6f2a1f0e7d11}}
"""


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    """A cluster of its own: what is installed here fails everybody's writes."""
    try:
        with ControlPlane(Mode.NATIVE) as plane:
            yield plane
    except NoToolchainError as error:
        skip_or_fail(str(error))


@pytest.fixture(scope="module")
def usher(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Usher]:
    """A webhook that knows a cluster which does not answer, and listens at a second address."""
    folder = tmp_path_factory.mktemp("usher")
    silent = plane.kubeconfig().read_text().replace(f":{plane.port}", f":{_closed_port()}")
    (folder / "kubeconfig").write_text(silent)
    usher = Usher(
        folder,
        *("--kubeconfig", str(folder / "kubeconfig"), "--bind", OTHER_ADDRESS, "--mode", "native"),
        readiness=False,  # it does not know the API server's time
    )
    yield usher
    usher.stop()


def _closed_port() -> int:
    with socket.create_server((HOST, 0)) as server:
        return int(server.getsockname()[1])


@contextmanager
def _listening() -> Iterator[int]:
    """The port of somebody who never says a word."""
    with socket.create_server((HOST, 0)) as server:
        yield server.getsockname()[1]


def _printed(plane: ControlPlane, expected: str, identity: str = "admin", **client: Any) -> str:
    """What kubectl prints when the webhook is registered like this, once it is ``expected``."""
    configuration = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "usher"},
        "webhooks": [
            {
                "name": WEBHOOK,
                "admissionReviewVersions": ["v1"],
                "sideEffects": "None",
                "timeoutSeconds": 1,
                "rules": [
                    {
                        "apiGroups": ["lifecycle.k8s.io"],
                        "apiVersions": ["v1alpha1"],
                        "operations": ["CREATE"],
                        "resources": ["evictionrequests"],
                    }
                ],
                "clientConfig": client,
            }
        ],
    }
    plane.kubectl("delete", "validatingwebhookconfiguration/usher", "--ignore-not-found")
    plane.kubectl("create", "-f", "-", stdin=json.dumps(configuration), check=True)

    def look() -> str | None:
        create = ("create", "--dry-run=server", "-f", "-")
        run = plane.kubectl(*create, stdin=REQUEST, identity=identity)
        return run.stderr if expected in run.stderr else None

    return eventually(look, f"kubectl prints {expected!r}")


def _trusting(certificate: bytes) -> str:
    return base64.b64encode(certificate).decode()


def _is_on_the_page(*texts: str) -> None:
    for text in texts:
        assert text in PAGE


def test_nobody_listens(plane: ControlPlane) -> None:
    expected = "connect: connection refused"
    printed = _printed(plane, expected, url=f"https://{HOST}:{_closed_port()}/validate")
    start = f'failed calling webhook "{WEBHOOK}":'
    assert start in printed
    _is_on_the_page(start, expected)


def test_there_is_no_service(plane: ControlPlane) -> None:
    expected = 'service "usher" not found'
    _printed(plane, expected, service={"namespace": "usher-system", "name": "usher"})
    _is_on_the_page(expected)


def test_nobody_answers(plane: ControlPlane) -> None:
    expected = "context deadline exceeded"
    with _listening() as port:
        _printed(plane, expected, url=f"https://{HOST}:{port}/validate")
    _is_on_the_page(expected)


def test_another_ca(plane: ControlPlane, usher: Usher) -> None:
    expected = "x509: certificate signed by unknown authority"
    other = issue_authority(now()).pair.certificate
    url = f"https://{HOST}:{usher.port}/validate"
    _printed(plane, expected, url=url, caBundle=_trusting(other))
    _is_on_the_page(expected)


def test_another_name(plane: ControlPlane, usher: Usher) -> None:
    expected = "x509: certificate is valid for "
    url = f"https://{OTHER_ADDRESS}:{usher.port}/validate"
    bundle = _trusting(usher.authority.pair.certificate)
    printed = _printed(plane, expected, url=url, caBundle=bundle)
    assert f", not {OTHER_ADDRESS}" in printed
    _is_on_the_page(expected)


def test_guards_get_no_answer(plane: ControlPlane, usher: Usher) -> None:
    expected = "the cluster gave no answer on which this one depends; see the log"
    url = f"https://{HOST}:{usher.port}/validate"
    bundle = _trusting(usher.authority.pair.certificate)
    # Of an administrator nobody asks what he may.
    grant = ("create", "clusterrolebinding", "all", "--clusterrole=cluster-admin", "--user=drainer")
    plane.kubectl(*grant, check=True)
    _printed(plane, expected, identity="drainer", url=url, caBundle=bundle)
    _is_on_the_page(expected)
