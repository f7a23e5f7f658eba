"""A plain HTTPS client for one API server and many identities."""

import json
import ssl
from collections.abc import Mapping
from http.client import HTTPSConnection
from pathlib import Path
from typing import Any

Body = Mapping[str, Any] | list[Any] | str | bytes | None
"""Mappings and lists are sent as JSON, text and bytes as they are."""


class ApiClient:
    """Sends single requests; every one has a connection of its own, so threads may share it."""

    def __init__(self, host: str, port: int, ca_file: Path) -> None:
        self._host = host
        self._port = port
        self._tls = ssl.create_default_context(cafile=str(ca_file))

    def request(
        self,
        method: str,
        path: str,
        body: Body = None,
        *,
        token: str,
        content_type: str = "application/json",
        timeout: float = 60,
    ) -> tuple[int, Any]:
        """Return status and parsed JSON, or text where the answer is something else.

        Raises ``OSError`` or ``http.client.HTTPException`` when no answer comes.
        """
        headers = {"Authorization": f"Bearer {token}", "Accept": "application/json"}
        if body is not None:
            headers["Content-Type"] = content_type
        connection = HTTPSConnection(self._host, self._port, context=self._tls, timeout=timeout)
        try:
            connection.request(method, path, _encode(body), headers)
            response = connection.getresponse()
            text = response.read().decode()
            is_json = response.headers.get_content_type() == "application/json"
            return response.status, json.loads(text) if is_json else text
        finally:
            connection.close()


def _encode(body: Body) -> bytes | None:
    if body is None or isinstance(body, bytes):
        return body
    return (body if isinstance(body, str) else json.dumps(body)).encode()
