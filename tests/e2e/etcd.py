"""Writes objects past the API server, into its storage.

Stored objects of a test are often older than any write could make them now: a heartbeat of 20
minutes ago, or a list that breaks a limit which came later.
"""

import base64
import http.client
import json
from typing import Any, Final

from tests.controlplane import ControlPlane, Mode
from tests.e2e.pool import PATIENCE, Pool

# Keys of custom resources have the group in them, those of built-in ones have not.
_CUSTOM: Final = "lifecycle.k8s.io/"


class Etcd:
    """The storage of one control plane; threads may share it."""

    def __init__(self, plane: ControlPlane) -> None:
        self._mode = plane.mode
        port = plane.etcd_port
        self._pool = Pool(lambda: http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE))
        self.close = self._pool.close

    def put(self, resource: str, stored: dict[str, Any]) -> str:
        """Store an object as it is; return its ``resourceVersion``."""
        meta = stored["metadata"]
        is_custom = resource != "pods" and self._mode is not Mode.NATIVE
        group = _CUSTOM if is_custom else ""
        key = f"/registry/{group}{resource}/{meta['namespace']}/{meta['name']}"
        body = {"key": _encode(key), "value": _encode(json.dumps(stored))}
        status, _, text = self._pool.send("POST", "/v3/kv/put", body, {})
        assert status == 200, text
        return str(json.loads(text)["header"]["revision"])


def _encode(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
