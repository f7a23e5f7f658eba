"""An admission webhook for ``pods/eviction``: it takes its time, or moves pods by itself."""

import base64
import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Final

from certs.issue import Pair, issue_authority, issue_serving
from tests.controller.program import Users
from tests.e2e.api import Object
from tests.e2e.times import now

_HOST: Final = "127.0.0.1"
_PATH: Final = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
_TIMEOUT_SECONDS: Final = 30
"""The longest that API servers wait."""


class EvictionAdmission:
    """Allows evictions, but not at once."""

    def __init__(self, folder: Path, seconds: float, refusal: Object | None) -> None:
        """Serve; until all are released each call takes so long, and gets ``refusal`` as status."""
        self.waiting = 0
        """How many calls wait for their answer."""
        self.answered = 0
        self._seconds = seconds
        self._refusal = refusal
        self._released = threading.Event()
        self._lock = threading.Lock()
        authority = issue_authority(now())
        self.authority: bytes = authority.pair.certificate
        admission = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                response = {"uid": review["request"]["uid"], **admission.decide()}
                body = json.dumps({**review, "request": None, "response": response}).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Nobody reads it."""

        self._server = ThreadingHTTPServer((_HOST, 0), Handler)
        context = _context(folder, issue_serving(authority, ("localhost", _HOST), now()))
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.port = self._server.server_port
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()

    def decide(self) -> Object:
        with self._lock:
            self.waiting += 1
        is_released = self._released.wait(self._seconds)
        with self._lock:
            self.waiting -= 1
            self.answered += 1
        if is_released or self._refusal is None:
            return {"allowed": True}
        return {"allowed": False, "status": self._refusal}

    def release(self) -> None:
        """From now on answer at once."""
        self._released.set()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _context(folder: Path, pair: Pair) -> ssl.SSLContext:
    certificate, key = folder / "admission.crt", folder / "admission.key"
    certificate.write_bytes(pair.certificate)
    key.write_bytes(pair.key)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)
    return context


@contextmanager
def eviction_admission(
    users: Users, folder: Path, *, seconds: float = 0.0, refusal: Object | None = None
) -> Iterator[EvictionAdmission]:
    """It is asked about evictions in the namespace of ``users``."""
    admission = EvictionAdmission(folder, seconds, refusal)
    name = f"evictions-{users.namespace}"
    hook = {
        "name": "evictions.acme.io",
        "clientConfig": {
            "url": f"https://localhost:{admission.port}/",
            "caBundle": base64.b64encode(admission.authority).decode(),
        },
        "rules": [
            {
                "apiGroups": [""],
                "apiVersions": ["v1"],
                "operations": ["CREATE"],
                "resources": ["pods/eviction"],
            }
        ],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": users.namespace}},
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "timeoutSeconds": _TIMEOUT_SECONDS,
    }
    users.call("POST", _PATH, {"metadata": {"name": name}, "webhooks": [hook]})
    try:
        yield admission
    finally:
        admission.release()
        users.call("DELETE", f"{_PATH}/{name}")
        admission.stop()
