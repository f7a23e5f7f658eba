"""What a webhook adds to a status PATCH through a real API server."""

import base64
import json
import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from http.client import HTTPSConnection
from pathlib import Path
from typing import Any, Final, Self

from rules.times import format_time
from tests.bench import review
from tests.bench.servers import Server
from tests.controlplane import ControlPlane
from tests.patience import PATIENCE

_CONFIGURATIONS: Final = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
_EVICTIONS: Final = "/apis/lifecycle.k8s.io/v1alpha1/namespaces/default/evictions"
_NAME: Final = "bench"


def create_eviction(plane: ControlPlane) -> None:
    """Create the Eviction that is patched, with its first responder Active."""
    now = format_time(datetime.now(UTC))
    target = {"pod": {"name": "web-0", "uid": review.UID}}
    body = {
        "apiVersion": "lifecycle.k8s.io/v1alpha1", "kind": "Eviction",
        "metadata": {"name": _NAME}, "spec": {"target": target},
    }  # fmt: skip
    targets = review.target_responders()
    for position, responder in enumerate(targets):
        responder["state"] = "Inactive" if position else "Active"
    responders: list[dict[str, Any]] = [{"name": responder["name"]} for responder in targets]
    responders[0]["startTime"] = now
    status = {"targetResponders": targets, "responders": responders, "observedGeneration": 1}
    for method, path, content in (
        ("POST", _EVICTIONS, body),
        ("PATCH", f"{_EVICTIONS}/{_NAME}/status", {"status": status}),
    ):
        kind = "application/json" if method == "POST" else "application/merge-patch+json"
        code, answer = plane.request(method, path, content, content_type=kind)
        if code not in (200, 201):
            raise RuntimeError(f"{method} {path}: {code} {answer}")


@contextmanager
def registered(plane: ControlPlane, server: Server | None, authority: Path) -> Iterator[None]:
    """Have ``server`` asked about status updates, until the end of the block."""
    if server is None:
        yield
        return
    webhook = {
        "name": "bench.usher.dev",
        "clientConfig": {
            "url": server.url, "caBundle": base64.b64encode(authority.read_bytes()).decode()
        },
        "rules": [{
            "apiGroups": ["lifecycle.k8s.io"], "apiVersions": ["v1alpha1"],
            "operations": ["UPDATE"], "resources": ["evictions/status"],
        }],
        "admissionReviewVersions": ["v1"], "sideEffects": "None", "timeoutSeconds": 5,
    }  # fmt: skip
    body = {
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": _NAME}, "webhooks": [webhook],
    }  # fmt: skip
    plane.request("POST", _CONFIGURATIONS, body)
    try:
        _wait_until_asked(plane)
        yield
    finally:
        plane.request("DELETE", f"{_CONFIGURATIONS}/{_NAME}")
        _wait_until_asked(plane, asked=False)


def _wait_until_asked(plane: ControlPlane, *, asked: bool = True) -> None:
    """Wait until the API server asks the webhook, or no longer does, as its own metric tells."""
    deadline = time.monotonic() + PATIENCE
    with Patches(plane) as patches:
        while time.monotonic() < deadline:
            before = _calls(plane)
            patches.send()
            if (_calls(plane) > before) is asked:
                return
    raise RuntimeError("the API server did not take up the webhook configuration")


def _calls(plane: ControlPlane) -> float:
    _, text = plane.request("GET", "/metrics")
    prefix = "apiserver_admission_webhook_admission_duration_seconds_count"
    lines = [line for line in text.splitlines() if line.startswith(prefix)]
    return sum(float(line.rpartition(" ")[2]) for line in lines)


class Patches:
    """Status PATCHes, one after another over one kept connection."""

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane
        self._count = 0

    def __enter__(self) -> Self:
        host, _, port = self._plane.url.rpartition("/")[2].rpartition(":")
        trust = ssl.create_default_context(cafile=str(self._plane.ca_file))
        self._connection = HTTPSConnection(host, int(port), context=trust)
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def send(self) -> float:
        """Change the Active responder's message; return how long that took, in milliseconds."""
        self._count += 1
        path = "/status/responders/0/message"
        message = f"{self._count} done at {time.monotonic_ns()}"
        body = json.dumps([{"op": "add", "path": path, "value": message}])
        began = time.perf_counter()
        self._connection.request(
            "PATCH", f"{_EVICTIONS}/{_NAME}/status", body,
            {
                "Content-Type": "application/json-patch+json",
                "Authorization": f"Bearer {self._plane.token('admin')}",
            },
        )  # fmt: skip
        answer = self._connection.getresponse()
        text = answer.read()
        if answer.status != 200:
            raise RuntimeError(f"PATCH: {answer.status} {text.decode()}")
        return (time.perf_counter() - began) * 1000
