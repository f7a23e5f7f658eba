"""HTTP connections that are kept and shared by threads."""

import contextlib
import http.client
import json
import queue
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

PATIENCE: Final = 120.0
"""Seconds to wait for an answer; far above what any takes on a loaded machine."""


class Pool:
    """Connections to one server; ``make`` opens a new one."""

    def __init__(self, make: Callable[[], http.client.HTTPConnection]) -> None:
        self._make = make
        self._idle: queue.SimpleQueue[http.client.HTTPConnection] = queue.SimpleQueue()

    def send(
        self, method: str, path: str, body: Any, headers: Mapping[str, str]
    ) -> tuple[int, http.client.HTTPMessage, bytes]:
        """Send one request with ``body`` as JSON; return status, headers and body.

        Raises OSError or HTTPException when no answer comes.
        """
        with self._connection() as connection:
            text = None if body is None else json.dumps(body)
            connection.request(method, path, text, dict(headers))
            response = connection.getresponse()
            return response.status, response.headers, response.read()

    def close(self) -> None:
        """Close all connections; nobody may be sending."""
        with contextlib.suppress(queue.Empty):
            while True:
                self._idle.get_nowait().close()

    @contextmanager
    def _connection(self) -> Iterator[http.client.HTTPConnection]:
        try:
            connection = self._idle.get_nowait()
        except queue.Empty:
            connection = self._make()
        try:
            yield connection
        except BaseException:
            connection.close()  # whatever comes next on it could belong to this request
            raise
        self._idle.put(connection)
