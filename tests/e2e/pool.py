"""HTTP connections that are kept and shared by threads."""

import contextlib
import http.client
import json
import queue
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

_MAX_IDLE: Final = 30.0
"""Seconds after which a connection is not used again: API servers close theirs after 90."""


class Pool:
    """Connections to one server; ``make`` opens a new one."""

    def __init__(self, make: Callable[[], http.client.HTTPConnection]) -> None:
        self._make = make
        self._idle: queue.SimpleQueue[tuple[float, http.client.HTTPConnection]]
        self._idle = queue.SimpleQueue()

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
                self._idle.get_nowait()[1].close()

    @contextmanager
    def _connection(self) -> Iterator[http.client.HTTPConnection]:
        connection = self._kept() or self._make()
        try:
            yield connection
        except BaseException:
            connection.close()  # whatever comes next on it could belong to this request
            raise
        self._idle.put((time.monotonic(), connection))

    def _kept(self) -> http.client.HTTPConnection | None:
        with contextlib.suppress(queue.Empty):
            while True:
                since, connection = self._idle.get_nowait()
                if time.monotonic() - since < _MAX_IDLE:
                    return connection
                connection.close()
        return None
