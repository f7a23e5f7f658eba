"""A server in a thread of its own, on real sockets, and clients for it."""

import asyncio
import http.client
import json
import socket
import ssl
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, BinaryIO, Final

import uvloop
from prometheus_client.parser import text_string_to_metric_families

from certs.issue import Authority, Pair, issue_authority, issue_serving
from cluster.listening import listen
from cluster.questions import ClusterFacts
from rules.evaluate import Policy
from tests.patience import PATIENCE
from tests.webhook.reviews import NOW, encoded
from webhook.app import Server, Shutdown, serve_health
from webhook.settings import Settings
from webhook.tls import ServingCertificate

HOST: Final = "127.0.0.1"
JSON: Final = {"Content-Type": "application/json"}
NAMES: Final = ("localhost", HOST)


def today() -> datetime:
    return datetime.now(UTC)


class StoppedTime:
    """A time that stands still."""

    is_known = True

    def now(self) -> datetime:
        return NOW


class Timely:
    """The part of a cluster that tells the time."""

    time = StoppedTime()
    clock_ahead = timedelta()

    async def ask_time(self) -> None:
        """It is known."""


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def response(self) -> Any:
        """The ``response`` of an AdmissionReview."""
        return json.loads(self.body)["response"]


@dataclass
class Site:
    """A running server, as its clients see it."""

    port: int
    health_port: int
    client: ssl.SSLContext

    def connect(
        self, context: ssl.SSLContext | None = None, name: str | None = "localhost"
    ) -> ssl.SSLSocket:
        """Open a TLS connection; without ``name`` there is no SNI."""
        plain = socket.create_connection((HOST, self.port), timeout=PATIENCE)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # as Go sets it
        context = context or self.client
        return context.wrap_socket(plain, server_hostname=name)

    def call(
        self,
        document: Any = None,
        *,
        data: bytes | None = None,
        method: str = "POST",
        target: str = "/validate?timeout=30s",
        headers: Mapping[str, str] = JSON,
    ) -> Answer:
        """Send one request on a connection of its own."""
        body = encoded(document) if data is None else data
        with self.connect() as connection:
            begin = head(method, target, {**headers, "Content-Length": str(len(body))})
            connection.sendall(begin + body)
            return answer(connection, method)

    def health(self, path: str, method: str = "GET", **headers: str) -> Answer:
        """Ask the health port."""
        with socket.create_connection((HOST, self.health_port), timeout=PATIENCE) as connection:
            connection.sendall(head(method, path, headers))
            return answer(connection, method)

    def metric(self, name: str, **labels: str) -> float:
        """The sum of the samples of a metric that have these labels."""
        text = self.health("/metrics").body.decode()
        return sum(
            sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        )


@dataclass
class Running(Site):
    """A server in this process."""

    shutdown: Callable[[], None]
    thread: threading.Thread


def head(method: str, target: str, headers: Mapping[str, str]) -> bytes:
    lines = [f"{method} {target} HTTP/1.1", "Host: localhost"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


def answer(connection: socket.socket, method: str = "POST") -> Answer:
    """Read one response."""
    response = http.client.HTTPResponse(connection, method=method)
    try:
        response.begin()
        return Answer(response.status, dict(response.headers), response.read())
    finally:
        response.close()


def answers(connection: socket.socket, count: int) -> list[Answer]:
    """Read several responses, which may come together."""
    with connection.makefile("rb") as stream:
        return [_next_answer(stream) for _ in range(count)]


def _next_answer(stream: BinaryIO) -> Answer:
    status = int(stream.readline().split()[1])
    headers = http.client.parse_headers(stream)
    return Answer(status, dict(headers), stream.read(int(headers["Content-Length"])))


def write_pair(folder: Path, pair: Pair) -> None:
    (folder / "tls.crt").write_bytes(pair.certificate)
    (folder / "tls.key").write_bytes(pair.key)


def swap(volume: Path, pair: Pair) -> None:
    """Put ``pair`` into ``volume`` as kubelets do with a Secret: at once, by a symbolic link."""
    generation = Path(tempfile.mkdtemp(prefix="..", dir=volume))
    write_pair(generation, pair)
    (volume / "..data_tmp").symlink_to(generation.name)
    (volume / "..data_tmp").replace(volume / "..data")
    for path in generation.iterdir():
        if not (volume / path.name).is_symlink():
            (volume / path.name).symlink_to(f"..data/{path.name}")


def trusting(authority: Authority) -> ssl.SSLContext:
    return ssl.create_default_context(cadata=authority.pair.certificate.decode())


@contextmanager
def running(
    folder: Path,
    *,
    policy: Policy = Policy(),
    clock: Callable[[], datetime] = lambda: NOW,
    authority: Authority | None = None,
    ready: int = 200,
    cluster: ClusterFacts | None = None,
    wall: Callable[[], datetime] = today,
    **changes: Any,
) -> Iterator[Running]:
    """Run a server; ``changes`` are settings. Its clock stands still; ``wall`` is for certificates.

    ``ready`` is the status of ``/readyz`` to wait for.
    """
    authority = authority or issue_authority(today())
    if not (folder / "tls.crt").exists():
        write_pair(folder, issue_serving(authority, NAMES, today()))
    settings = replace(
        Settings(
            certificate=folder / "tls.crt",
            key=folder / "tls.key",
            bind=(HOST,),
            health_bind=(HOST,),
            port=0,
            health_port=0,
            drain=0,
        ),
        **changes,
    )
    certificate = ServingCertificate(settings)
    sockets, health = listen(settings.bind, 0), listen(settings.health_bind, 0)
    server = Server(settings, policy, certificate, clock, lambda: nullcontext(cluster))
    told: list[Callable[[], None]] = []
    begun = threading.Event()

    async def run() -> None:
        shutdown, loop = Shutdown(), asyncio.get_running_loop()

        def tell() -> None:
            with suppress(RuntimeError):  # told before, it may have ended by now
                loop.call_soon_threadsafe(shutdown.tell)

        told.append(tell)
        begun.set()
        serving = server.serve(sockets, shutdown)
        await serve_health(server, health, sockets[0].getsockname(), serving, wall)

    thread = threading.Thread(target=lambda: uvloop.run(run()), daemon=True)
    ports = sockets[0].getsockname()[1], health[0].getsockname()[1]
    thread.start()
    begun.wait(PATIENCE)
    site = Running(*ports, trusting(authority), told[0], thread)
    eventually(lambda: site.health("/readyz").status == ready)
    try:
        yield site
    finally:
        if thread.is_alive():
            site.shutdown()
            site.shutdown()
            thread.join(PATIENCE)
    assert not thread.is_alive()


def eventually(condition: Callable[[], Any]) -> Any:
    """Wait until ``condition`` returns something true, and return it."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            if found := condition():
                return found
        except OSError:
            pass
        if time.monotonic() > deadline:
            raise AssertionError("it never came true")
        time.sleep(0.02)
