"""Writes objects past the API server, into its storage.

Stored objects of a test are often older than any write could make them now: a heartbeat of 20
minutes ago, or a list that breaks a limit which came later.
"""

import base64
import http.client
import json
from typing import Any, Final

from rules.api import GROUP
from rules.policies import POLICY_GROUP
from tests.controlplane import ControlPlane, Mode
from tests.e2e.pool import Pool
from tests.patience import PATIENCE

_CUSTOM: Final = {"evictions": GROUP, "evictionrequests": GROUP}
"""Resource → its group, which is a part of the keys of custom resources; natively it is not."""
_ALWAYS_CUSTOM: Final = {
    "responderpolicies": POLICY_GROUP,
    "clusterresponderpolicies": POLICY_GROUP,
}


class Etcd:
    """The storage of one control plane; threads may share it."""

    def __init__(self, plane: ControlPlane) -> None:
        self._groups = _ALWAYS_CUSTOM | ({} if plane.mode is Mode.NATIVE else _CUSTOM)
        port = plane.etcd_port
        self._pool = Pool(lambda: http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE))
        self.close = self._pool.close

    def put(self, resource: str, stored: dict[str, Any]) -> str:
        """Store an object as it is; return its ``resourceVersion``."""
        meta = stored["metadata"]
        parts = (self._groups.get(resource), resource, meta.get("namespace"), meta["name"])
        key = "/".join(("/registry", *filter(None, parts)))
        body = {"key": _encode(key), "value": _encode(json.dumps(stored))}
        status, _, text = self._pool.send("POST", "/v3/kv/put", body, {})
        assert status == 200, text
        return str(json.loads(text)["header"]["revision"])


def _encode(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
