"""Writes that go on and on, to see whether any fails."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPException
from typing import Final

from tests.e2e.cluster import Cluster
from tests.e2e.objects import request
from tests.e2e.waiting import eventually

_WRITERS: Final = 4
_SOME: Final = 40
"""Writes after which surely every connection has been used."""


class Load:
    """What has become of the writes so far."""

    def __init__(self) -> None:
        self.succeeded = 0
        self.failures: list[str] = []
        self.stopped = threading.Event()
        self._lock = threading.Lock()

    def count(self, failure: str | None) -> None:
        with self._lock:
            if failure is None:
                self.succeeded += 1
            else:
                self.failures.append(failure)

    def go_on(self) -> None:
        """Return when some more writes have been made."""
        target = self.succeeded + len(self.failures) + _SOME
        eventually(lambda: self.succeeded + len(self.failures) >= target, "writes go on")


@contextmanager
def load(cluster: Cluster, namespace: str) -> Iterator[Load]:
    """Create EvictionRequests, several at a time, until the block ends."""
    load = Load()

    def write() -> None:
        document = request(generateName="load-")
        del document["metadata"]["name"]
        while not load.stopped.is_set():
            try:
                answer = cluster.create(namespace, document)
            except (OSError, HTTPException) as error:
                load.count(repr(error))
            else:
                load.count(None if answer.ok else answer.message)

    threads = [threading.Thread(target=write, daemon=True) for _ in range(_WRITERS)]
    for thread in threads:
        thread.start()
    try:
        yield load
    finally:
        load.stopped.set()
        for thread in threads:
            thread.join()
