"""Writes through an API server, about as many a second as are wanted, to see whether any fails."""

import json
import ssl
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.client import HTTPException, HTTPSConnection
from typing import Final

from tests.controlplane import ControlPlane
from tests.controlplane.ports import HOST
from tests.e2e.waiting import eventually
from tests.patience import PATIENCE

_SOME: Final = 100
"""Writes after which surely every replica has been asked."""


class Load:
    """What has become of the writes so far."""

    def __init__(self) -> None:
        self.succeeded = 0
        self.failures: list[str] = []
        self._stopped = threading.Event()
        self._lock = threading.Lock()
        self._began = time.monotonic()

    def go_on(self, number: int = _SOME) -> None:
        """Return when some more writes have been made."""
        target = self.made + number
        eventually(lambda: self.made >= target, "writes go on")

    @property
    def made(self) -> int:
        return self.succeeded + len(self.failures)

    def summary(self) -> str:
        """Figures, for people."""
        seconds = time.monotonic() - self._began
        kinds = Counter(failure[:160] for failure in self.failures)
        return f"{self.made} writes in {seconds:.0f} s ({self.made / seconds:.0f}/s), {kinds=}"

    def write_on(self, plane: ControlPlane, identity: str, path: str, rate: float) -> None:
        """Change the message of the first responder at ``path`` again and again."""
        tls = ssl.create_default_context(cafile=str(plane.ca_file))
        connection = HTTPSConnection(HOST, plane.port, context=tls, timeout=PATIENCE)
        headers = {
            "Authorization": f"Bearer {plane.token(identity)}",
            "Content-Type": "application/json-patch+json",
        }
        due, number = time.monotonic(), 0
        while not self._stopped.wait(max(0.0, due - time.monotonic())):
            # What could not be sent in time is not sent later: no bursts.
            due, number = max(due + 1 / rate, time.monotonic()), number + 1
            patch = {"op": "add", "path": "/status/responders/0/message", "value": f"step {number}"}
            try:
                connection.request("PATCH", path, json.dumps([patch]), headers)
                answer = connection.getresponse()
                body = json.loads(answer.read())
                self._count("" if answer.status == 200 else body["message"])
            except (OSError, HTTPException, ValueError) as error:
                self._count(repr(error))
                connection.close()
        connection.close()

    def stop(self) -> None:
        self._stopped.set()

    def _count(self, failure: str) -> None:
        with self._lock:
            if failure:
                self.failures.append(failure)
            else:
                self.succeeded += 1


@contextmanager
def load(
    plane: ControlPlane, identity: str, paths: Sequence[str], rate: float = 120
) -> Iterator[Load]:
    """Write the status of the Evictions at ``paths`` until the block ends, ``rate`` times a second.

    One writer for each path, so that none stands in another's way. What goes through is somewhat
    less than what is aimed at; 100 a second are to.
    """
    load = Load()
    threads = [
        threading.Thread(
            target=load.write_on, args=(plane, identity, path, rate / len(paths)), daemon=True
        )
        for path in paths
    ]
    for thread in threads:
        thread.start()
    try:
        yield load
    finally:
        load.stop()
        for thread in threads:
            thread.join()
        print(load.summary())
