"""A client that sees what kubectl sees: status, causes and warnings."""

import http.client
import json
import re
import ssl
from dataclasses import dataclass
from typing import Any, Final

from tests.controlplane import ControlPlane
from tests.e2e.pool import Pool
from tests.patience import PATIENCE

JSON: Final = "application/json"
JSON_PATCH: Final = "application/json-patch+json"
MERGE_PATCH: Final = "application/merge-patch+json"
STRATEGIC_PATCH: Final = "application/strategic-merge-patch+json"
APPLY: Final = "application/apply-patch+yaml"

Object = dict[str, Any]
Cause = tuple[str, str]
"""``reason`` and ``field`` of one cause."""

# What an API server appends when a schema error kept it from looking at the CEL rules.
_NOT_ALL_CHECKED: Final = "some validation rules were not checked"
_warnings = re.compile(r'299 \S+ "((?:[^"\\]|\\.)*)"').findall


@dataclass(frozen=True, slots=True)
class Answer:
    """What an API server said to one request."""

    code: int
    body: Any
    warnings: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        return 200 <= self.code < 300

    @property
    def message(self) -> str:
        """Why the request was refused."""
        return str(self.body["message"]) if isinstance(self.body, dict) else str(self.body)

    @property
    def causes(self) -> set[Cause]:
        """Every cause of a refusal."""
        found = (self.body.get("details") or {}).get("causes") or ()
        return {
            (cause.get("reason", ""), cause.get("field", ""))
            for cause in found
            if _NOT_ALL_CHECKED not in cause.get("message", "")
        }


class Api:
    """Requests to the API server of one plane; threads may share it."""

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane
        tls = ssl.create_default_context(cafile=str(plane.ca_file))
        self._pool = Pool(
            lambda: http.client.HTTPSConnection(
                "127.0.0.1", plane.port, context=tls, timeout=PATIENCE
            )
        )
        self.close = self._pool.close

    def __call__(
        self,
        method: str,
        path: str,
        body: Object | list[Any] | None = None,
        *,
        identity: str = "admin",
        content_type: str = JSON,
    ) -> Answer:
        """Send one request. Raises OSError or HTTPException when no answer comes."""
        headers = {
            "Authorization": f"Bearer {self._plane.token(identity)}",
            "Accept": JSON,
            "Content-Type": content_type,
        }
        status, received, text = self._pool.send(method, path, body, headers)
        is_json = received.get_content_type() == JSON
        lines = received.get_all("Warning") or ()
        return Answer(
            status,
            json.loads(text) if is_json else text.decode(),
            tuple(re.sub(r"\\(.)", r"\1", found) for line in lines for found in _warnings(line)),
        )
