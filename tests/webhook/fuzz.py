"""Sends broken reviews over TLS to a running ``usher serve``: ``python -m tests.webhook.fuzz``.

Every body is a review with something wrong in it (tests/webhook/mutation.py); it arrives plain, in
chunks or compressed, on connections that stay open. Wrong are: any answer but 200, 400 or 413, a
closed connection, a request without an answer, a traceback or an error in the log, a count in the
metrics that differs from what was sent, and an unclean end. The same seed sends the same bodies.
"""

import argparse
import asyncio
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import uvloop
from rich.console import Console
from rich.progress import Progress

from tests.controlplane.ports import free_port
from tests.webhook.mutation import Mutator
from tests.webhook.running import HOST, JSON, head
from tests.webhook.served import Served, served

ALLOWED: Final = (200, 400, 413)
DEPTH: Final = 8
"""Requests that a connection has under way."""
IN_CHUNKS: Final = 1
"""Last digit of the seeds whose bodies come in chunks. Nothing follows them before their answer,
which may be the last of a connection if much does (ADR 87)."""
SILENCE_SECONDS: Final = 60.0
"""A server that says nothing for so long hangs."""


class FailureError(Exception):
    """What the server may not do."""


def request(seed: int) -> bytes:
    """Return one whole request."""
    mutator = Mutator(seed)
    match seed % 10:
        case digit if digit == IN_CHUNKS:
            body = mutator.body()
            middle = len(body) // 2
            parts = [part for part in (body[:middle], body[middle:]) if part]
            body = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"
            extra = {"Transfer-Encoding": "chunked"}
        case _:
            body = mutator.body()
            extra = {"Content-Length": str(len(body))}
    path = "/mutate" if seed % 3 == 0 else "/validate"
    return head("POST", f"{path}?timeout=30s", {**JSON, **extra}) + body


class Client(asyncio.Protocol):
    """One connection that asks until ``seeds`` are used up."""

    def __init__(self, seeds: Iterator[int], statuses: "Counter[int]") -> None:
        self._seeds = seeds
        self._statuses = statuses
        self._asked: list[int] = []
        self._received = b""
        self._transport: Any = None
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._ask()

    def data_received(self, data: bytes) -> None:
        self._received += data
        while (end := self._received.find(b"\r\n\r\n")) >= 0:
            header = self._received[:end].decode("latin-1")
            _, _, rest = header.partition("Content-Length: ")
            whole = end + 4 + int(rest.split("\r\n", 1)[0])
            if len(self._received) < whole:
                return
            self._judge(header, self._received[end + 4 : whole])
            self._received = self._received[whole:]
        self._ask()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.done.done():
            self._fail(f"connection lost ({exc}) amid the answers to seeds {self._asked}")

    def _ask(self) -> None:
        while len(self._asked) < DEPTH and not (self._asked and self._asked[-1] % 10 == IN_CHUNKS):
            if (seed := next(self._seeds, None)) is None:
                break
            self._asked.append(seed)
            self._transport.write(request(seed))
        if not self._asked and not self.done.done():
            self.done.set_result(None)
            self._transport.close()

    def _judge(self, header: str, body: bytes) -> None:
        seed, status = self._asked.pop(0), int(header.split(" ", 2)[1])
        self._statuses[status] += 1
        if status not in ALLOWED or "Connection: close" in header:
            self._fail(f"seed {seed} got {header!r} {body[:300]!r}")

    def _fail(self, text: str) -> None:
        if not self.done.done():
            self.done.set_exception(FailureError(text))


async def ask(program: Served, seeds: range, connections: int) -> "Counter[int]":
    """Send the requests of ``seeds``; raise FailureError for the first wrong answer."""
    left, statuses = iter(seeds), Counter[int]()
    loop = asyncio.get_running_loop()
    clients = [
        await loop.create_connection(
            lambda: Client(left, statuses),
            HOST,
            program.port,
            ssl=program.client,
            server_hostname="localhost",
        )
        for _ in range(connections)
    ]
    everyone = asyncio.gather(*(client.done for _, client in clients))
    with progress(len(seeds)) as show:
        await _watched(everyone, statuses, show)
    await everyone
    return statuses


async def _watched(
    everyone: "asyncio.Future[Any]", statuses: "Counter[int]", show: Callable[[int], None]
) -> None:
    """Wait for ``everyone``; raise FailureError when no answer comes any more."""
    answered, since = 0, time.monotonic()
    while not everyone.done():
        await asyncio.wait([everyone], timeout=0.2)
        show(statuses.total())
        if statuses.total() != answered:
            answered, since = statuses.total(), time.monotonic()
        elif time.monotonic() - since > SILENCE_SECONDS:
            everyone.cancel()
            raise FailureError(f"no answer for {SILENCE_SECONDS:.0f} s after {answered} answers")


@contextmanager
def progress(count: int) -> Iterator[Callable[[int], None]]:
    """Show on a terminal how many answers are there."""
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("requests", total=count)
        yield lambda done: bar.update(task, completed=done)


def main() -> int:
    """Run, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=200_000, help="how many to send")
    parser.add_argument("--seed", type=int, default=0, help="seed of the first request")
    parser.add_argument("--connections", type=int, default=8, help="how many stay open")
    arguments = parser.parse_args()
    seeds = range(arguments.seed, arguments.seed + arguments.requests)
    ports = free_port(), free_port()
    flags = ("--log-level", "warning", "--drain-seconds", "0", "--offline")
    with (
        tempfile.TemporaryDirectory() as folder,
        served(Path(folder), *flags, ports=ports) as program,
    ):
        begun = time.monotonic()
        try:
            statuses = uvloop.run(ask(program, seeds, arguments.connections))
            check(program, len(seeds))
        except FailureError as failure:
            print(f"FAILED: {failure}\nlog: {program.log[-3000:]}")
            return 1
        seconds = time.monotonic() - begun
    listed = ", ".join(f"{status}: {count}" for status, count in sorted(statuses.items()))
    print(
        f"{len(seeds)} broken reviews (seeds {seeds.start} to {seeds.stop - 1}) answered in "
        f"{seconds:.0f} s, {len(seeds) / seconds:.0f}/s; {listed}; no failure"
    )
    return 0


def check(program: Served, count: int) -> None:
    """Raise Failure unless the server has counted all, said nothing, and ends cleanly."""
    counted = program.metric("usher_webhook_requests_total")
    if counted != count:
        raise FailureError(f"{count} requests were sent, {counted:.0f} counted")
    code = program.end(signal.SIGTERM)
    if code:
        raise FailureError(f"exit code {code}")
    if program.log:
        raise FailureError("there are warnings in the log")


if __name__ == "__main__":
    sys.exit(main())
