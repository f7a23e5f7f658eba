"""Clients that want the server's memory, or the places of others: nobody else notices them."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final

import pytest

from tests.patience import PATIENCE
from tests.webhook.reviews import creation, encoded
from tests.webhook.running import JSON, Site, answer, head
from tests.webhook.served import Served, served

pytestmark = pytest.mark.slow

_BODY: Final = encoded(creation())
_HEAD: Final = head("POST", "/validate?timeout=5s", {**JSON, "Content-Length": str(len(_BODY))})
_CHUNKED: Final = head("POST", "/validate?timeout=30s", {**JSON, "Transfer-Encoding": "chunked"})
_MIB: Final = 1024 * 1024
_MOST: Final = 32
"""MiB by which an attack may raise the memory."""


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Served]:
    """The program; it has answered, and so has loaded what it needs."""
    with served(tmp_path, "--drain-seconds", "0") as program:
        for _ in range(10):
            honest_call(program)
        yield program


def honest_call(site: Site) -> None:
    """A call whose body comes in a second segment, 20 ms after its header."""
    with site.connect() as connection:
        connection.sendall(_HEAD + _BODY[:100])
        time.sleep(0.02)
        connection.sendall(_BODY[100:])
        reply = answer(connection)
        assert reply.status == 200
        assert reply.response["allowed"] is True


def memory(site: Served) -> float:
    """Resident memory in MiB."""
    return site.metric("process_resident_memory_bytes") / _MIB


def sent(connection: socket.socket, data: bytes) -> None:
    """Send as much of ``data`` as is taken within a moment."""
    connection.settimeout(0.5)
    with suppress(OSError):
        connection.sendall(data)


def attacked(site: Served, data: bytes, connections: int) -> None:
    """Send ``data`` on many connections that stay open; the server must not grow, nor fail."""
    before = memory(site)
    with ExitStack() as stack:
        for number in range(connections):
            sent(stack.enter_context(site.connect()), data)
            if number % 50 == 0:
                honest_call(site)
                assert memory(site) < before + _MOST
        honest_call(site)
        assert memory(site) < before + _MOST


def test_half_sent_bodies_take_nobodys_place(site: Served) -> None:
    start = head("POST", "/validate?timeout=30s", {**JSON, "Content-Length": "1000"})
    attacked(site, start + b"{", 520)
    assert site.metric("usher_webhook_in_flight") <= 512


def test_bodies_of_tiny_chunks_take_little_memory(site: Served) -> None:
    attacked(site, _CHUNKED + b"2\r\n{ \r\n" * (3 * _MIB // 2), 4)


def test_unfinished_headers_take_little_memory(site: Served) -> None:
    fields = b"".join(b"X-%d: %b\r\n" % (number, b"x" * 8000) for number in range(60))
    attacked(site, b"POST /validate HTTP/1.1\r\nHost: x\r\n" + fields, 150)


def test_headers_of_many_small_fields_take_little_memory(site: Served) -> None:
    fields = b"".join(b"%d:x\r\n" % number for number in range(60))
    attacked(site, b"POST /validate HTTP/1.1\r\nHost: x\r\n" + fields, 300)


def test_what_comes_after_a_request_takes_little_memory(site: Served) -> None:
    fields = b"".join(b"X-%d: %b\r\n" % (number, b"x" * 8000) for number in range(30))
    start = _HEAD + _BODY + b"POST /validate HTTP/1.1\r\nHost: x\r\n" + fields
    attacked(site, start, 150)


def test_compressed_bodies_are_not_even_read(site: Served) -> None:
    headers = {**JSON, "Content-Encoding": "gzip", "Content-Length": str(7 * _MIB)}
    attacked(site, head("POST", "/validate?timeout=30s", headers) + b"\x1f\x8b" * _MIB, 20)


def test_who_reads_no_answer_takes_little_memory(site: Served) -> None:
    attacked(site, (_HEAD + _BODY) * 3000, 10)


def test_a_flood_of_half_sent_bodies_turns_no_honest_call_away(site: Served) -> None:
    """Again and again, from several sides, as long as honest calls are made."""
    ended = threading.Event()
    start = head("POST", "/validate?timeout=30s", {**JSON, "Content-Length": "1000"}) + b"{"

    def flood() -> None:
        with ExitStack() as stack:
            while not ended.is_set():
                with suppress(OSError):
                    stack.enter_context(site.connect()).sendall(start)

    floods = [threading.Thread(target=flood, daemon=True) for _ in range(4)]
    for each in floods:
        each.start()
    try:
        for _ in range(100):
            honest_call(site)
    finally:
        ended.set()
        for each in floods:
            each.join(PATIENCE)
