"""Slow, silent and too many clients; and the way down."""

import asyncio
import io
import os
import socket
import ssl
import struct
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final

import pytest

from tests.patience import PATIENCE
from tests.webhook.reviews import creation, encoded, eviction_request, review
from tests.webhook.running import (
    HOST,
    JSON,
    Running,
    answer,
    answers,
    eventually,
    head,
    running,
)
from webhook.bounds import Connection
from webhook.handler import _seconds

BODY: Final = encoded(creation())
HEAD: Final = head("POST", "/validate", {**JSON, "Content-Length": str(len(BODY))})


@contextmanager
def stalled(site: Running, target: str = "/validate", sent: int = 10) -> Iterator[ssl.SSLSocket]:
    """Open a connection whose request lacks the rest of its body."""
    with site.connect() as connection:
        headers = {**JSON, "Content-Length": str(len(BODY))}
        connection.sendall(head("POST", target, headers) + BODY[:sent])
        yield connection


def closed(connection: socket.socket) -> bool:
    """Wait until the server closes, without a byte."""
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


def dripped(connection: socket.socket) -> int:
    """Send a header drop by drop, until the connection ends; return the number of drops."""
    for drops in range(int(PATIENCE / 0.05)):
        try:
            connection.sendall(b"x")
            if not connection.recv(1):
                return drops
        except TimeoutError:
            continue
        except OSError:
            return drops
    return int(PATIENCE / 0.05)


def flooded(connection: socket.socket, most: int) -> int:
    """Send requests and read no answer, until nothing more goes through or ``most`` are sent."""
    for sent in range(0, most, 100):
        try:
            connection.sendall((HEAD + BODY) * 100)
        except OSError:
            return sent
    return most


def test_a_body_may_come_in_pieces(site: Running) -> None:
    with site.connect() as connection:
        for position in range(len(HEAD)):
            connection.sendall(HEAD[position : position + 1])
        for start in range(0, len(BODY), 100):
            connection.sendall(BODY[start : start + 100])
        assert answer(connection).response["allowed"] is True


@pytest.mark.parametrize("target", ["/validate?timeout=1s", "/validate?timeout=600ms"])
def test_a_body_must_arrive_within_the_callers_deadline(site: Running, target: str) -> None:
    with stalled(site, target) as connection:
        reply = answer(connection)
        assert reply.status == 408
        assert reply.headers["Connection"] == "close"
        assert closed(connection)


@pytest.mark.parametrize("query", ["", "?timeout=soon", "?timeout=-5s", "?timeout=1000h", "?x=1s"])
def test_without_a_usable_deadline_the_configured_one_counts(tmp_path: Path, query: str) -> None:
    with running(tmp_path, timeout=0.3) as site, stalled(site, f"/validate{query}") as connection:
        assert answer(connection).status == 408


@pytest.mark.parametrize(
    ("query", "seconds"),
    [
        ("timeout=5s", 4.5),
        ("timeout=30s", 29.5),
        ("timeout=1m30s", 89.5),
        ("timeout=1h2m3.5s", 3723),
        ("timeout=2500ms", 2),
        ("timeout=%2B2s", 1.5),
        ("timeout=3000000us", 2.5),
        ("timeout=3000000%C2%B5s", 2.5),
        ("timeout=3000000000ns", 2.5),
        ("timeout=.75s", 0.375),
        ("timeout=1s", 0.5),
        ("timeout=5s&timeout=1s", 4.5),
        ("other=1&timeout=5s", 4.5),
        ("timeout=5", float("inf")),
        ("timeout=", float("inf")),
        ("timeout=s", float("inf")),
        ("timeout=5s5", float("inf")),
        ("timeout=0", float("inf")),
        ("timeout=0s", float("inf")),
        ("timeout=-1s", float("inf")),
        ("timeout=1e3s", float("inf")),
        ("timeout=1d", float("inf")),
        ("timeout=٣s", float("inf")),
        ("timeout=" + "9" * 8000 + "s", float("inf")),
        ("timeout=" + "9" * 8000, float("inf")),
        ("Timeout=5s", float("inf")),
    ],
)
def test_durations_are_read_as_go_reads_them(query: str, seconds: float) -> None:
    assert _seconds(f"/validate?{query}") == pytest.approx(seconds)


def test_a_dripping_header_ends_the_connection(
    site: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("webhook.bounds.HEADER_SECONDS", 0.1)
    with site.connect() as connection:
        connection.sendall(HEAD[:-4])
        assert closed(connection)
    with site.connect() as connection:  # drop by drop is no better
        connection.settimeout(0.05)
        assert dripped(connection) < PATIENCE / 0.05


def test_a_dripping_header_after_a_request_ends_the_connection(
    site: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    with site.connect() as connection:
        connection.sendall(HEAD + BODY)
        assert answer(connection).status == 200
        monkeypatch.setattr("webhook.bounds.HEADER_SECONDS", 0.1)
        connection.sendall(b"POST")
        assert closed(connection)


def test_a_header_that_begins_behind_a_request_must_end_in_time(
    site: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = b"POST /validate HTTP/1.1\r\n" + b"".join(
        b"X-%d: %b\r\n" % (number, b"x" * 8000) for number in range(4)
    )
    with site.connect() as connection:
        monkeypatch.setattr("webhook.bounds.HEADER_SECONDS", 0.1)
        connection.sendall(HEAD + BODY + begun)
        assert answer(connection).status == 200
        assert closed(connection)


def test_requests_in_a_row_leave_the_connection_idle(
    site: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    with site.connect() as connection:
        connection.sendall((HEAD + BODY) * 50)
        assert all(reply.response["allowed"] for reply in answers(connection, 50))
        monkeypatch.setattr("webhook.bounds.HEADER_SECONDS", 0.1)
        with site.connect() as dripping:
            dripping.sendall(b"POST")
            assert closed(dripping)
        connection.sendall(HEAD + BODY)
        assert answer(connection).status == 200


def test_a_body_of_tiny_chunks_is_the_last_of_its_connection(site: Running) -> None:
    # What they took can't be told from what comes after them.
    chunks = b"".join(b"1;x=%b\r\n%c\r\n" % (b"y" * 40, byte) for byte in BODY)
    headers = head("POST", "/validate", {**JSON, "Transfer-Encoding": "chunked"})
    with site.connect() as connection:
        connection.sendall(headers + chunks + b"0\r\n\r\n")
        reply = answer(connection)
        assert reply.response["allowed"] is True
        assert reply.headers["Connection"] == "close"
        assert closed(connection)


def test_a_body_that_comes_after_its_head_leaves_the_connection_idle(
    site: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("webhook.bounds.HEADER_SECONDS", 0.1)
    expecting = head(
        "POST",
        "/validate",
        {**JSON, "Content-Length": str(len(BODY)), "Expect": "100-continue"},
    )
    with site.connect() as connection, site.connect() as dripping:
        connection.sendall(expecting)
        assert connection.recv(1000) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(BODY)
        assert answer(connection).status == 200
        dripping.sendall(b"POST")
        assert closed(dripping)
        # The other one was used before: it would be closed by now, were it taken for one of these.
        connection.sendall(HEAD + BODY)
        assert answer(connection).status == 200


def test_an_idle_connection_is_closed_after_a_long_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("webhook.serving.IDLE_SECONDS", 0.1)
    with running(tmp_path) as site, site.connect() as never_used, site.connect() as used:
        used.sendall(HEAD + BODY)
        assert answer(used).status == 200
        assert closed(used)
        assert closed(never_used)


def test_an_unfinished_handshake_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("webhook.serving.HEADER_SECONDS", 0.2)
    with (
        running(tmp_path) as site,
        socket.create_connection((HOST, site.port), timeout=PATIENCE) as silent,
        socket.create_connection((HOST, site.port), timeout=PATIENCE) as plain,
    ):
        plain.sendall(b"POST /validate HTTP/1.1\r\n\r\n")
        assert closed(silent)
        while plain.recv(1000):
            pass


@pytest.mark.slow
def test_a_client_that_reads_nothing_is_given_nothing_more(
    site: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("webhook.bounds.IDLE_SECONDS", 0.5)
    before = site.metric("usher_webhook_requests_total")
    with site.connect() as connection:
        connection.settimeout(1)
        assert flooded(connection, 200_000) < 200_000
    answered = site.metric("usher_webhook_requests_total") - before
    assert 0 < answered < 200_000


def spied(monkeypatch: pytest.MonkeyPatch, name: str) -> list[str]:
    """Return a list that grows with each call of a method of connections."""
    method, calls = getattr(Connection, name), list[str]()

    def spy(connection: Connection) -> None:
        calls.append(name)
        method(connection)

    monkeypatch.setattr(Connection, name, spy)
    return calls


async def test_a_client_that_reads_late_gets_every_answer(
    site: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    paused = spied(monkeypatch, "pause_writing")
    resumed = spied(monkeypatch, "resume_writing")
    metadata = {"name": "x", "annotations": {f"bad key {n}": "" for n in range(200)}}
    body = encoded(review("CREATE", {**eviction_request(), "metadata": metadata}))
    count = 500  # with answers of some 40 KiB
    reader, writer = await asyncio.open_connection(
        HOST, site.port, ssl=site.client, server_hostname="localhost"
    )
    begin = head("POST", "/validate", {**JSON, "Content-Length": str(len(body))})
    writer.write((begin + body) * count)
    while not paused:  # noqa: ASYNC110 - another thread appends
        await asyncio.sleep(0.01)
    for _ in range(count):
        header = await reader.readuntil(b"\r\n\r\n")
        assert header.startswith(b"HTTP/1.1 200 OK")
        _, _, rest = header.partition(b"Content-Length: ")
        await reader.readexactly(int(rest.split(b"\r\n")[0]))
    assert resumed
    writer.close()
    await writer.wait_closed()


def test_a_broken_record_ends_the_connection_quietly(site: Running, log: io.StringIO) -> None:
    with site.connect() as connection:
        plain = socket.socket(fileno=os.dup(connection.fileno()))
        with plain:
            plain.sendall(b"\x17\x03\x03\x00\x20" + b"x" * 32)
            with suppress(ssl.SSLError):
                assert closed(connection)
    with site.connect() as connection:
        plain = socket.socket(fileno=os.dup(connection.fileno()))
        with plain:
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.sendall(HEAD)
    assert site.call(creation()).status == 200
    assert log.getvalue() == ""


@pytest.mark.slow
def test_a_thousand_idle_connections_change_nothing(site: Running) -> None:
    with ExitStack() as stack:
        for _ in range(1000):
            stack.enter_context(site.connect())
        for _ in range(10):
            stack.enter_context(stalled(site, "/validate?timeout=20s"))
        for _ in range(20):
            assert site.call(creation()).response["allowed"] is True
        eventually(lambda: site.metric("usher_webhook_connections") >= 1010)
        assert site.health("/readyz").status == 200


def test_beyond_the_limit_who_has_waited_longest_is_given_up(
    tmp_path: Path, log: io.StringIO
) -> None:
    with running(tmp_path, concurrency=2) as site, ExitStack() as stack:
        first = stack.enter_context(stalled(site))
        eventually(lambda: site.metric("usher_webhook_in_flight") == 1)
        others = [stack.enter_context(stalled(site)) for _ in range(2)]
        reply = answer(first)
        assert reply.status == 500
        assert reply.headers["Connection"] == "close"
        assert "Retry-After" not in reply.headers
        # Whose body is there waits for nothing.
        assert site.call(creation()).response["allowed"] is True
        for connection in others:
            connection.sendall(BODY[10:])
            assert answer(connection).response["allowed"] is True
        with stalled(site) as connection:
            connection.sendall(BODY[10:])
            assert answer(connection).response["allowed"] is True
        eventually(lambda: '"turned_away":1' in log.getvalue())
        assert site.metric("usher_webhook_shed_total") == 1
        assert site.metric("usher_webhook_errors_total", code="500") == 1
        eventually(lambda: site.metric("usher_webhook_in_flight") == 0)


def test_unfinished_bodies_are_bounded_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("webhook.bounds.MAX_BUFFERED", 100_000)
    with running(tmp_path) as site, ExitStack() as stack:
        headers = head("POST", "/validate", {**JSON, "Content-Length": "90000"})
        first, second, third = (stack.enter_context(site.connect()) for _ in range(3))
        first.sendall(headers + b" " * 80_000)
        eventually(lambda: site.metric("usher_webhook_in_flight") == 1)
        second.sendall(headers + b" " * 80_000)
        assert answer(first).status == 500
        second.close()
        eventually(lambda: site.metric("usher_webhook_in_flight") == 0)
        third.sendall(headers + b" " * (90_000 - len(BODY)) + BODY)
        assert answer(third).response["allowed"] is True


def test_a_client_that_goes_away_amid_a_body_leaves_nothing_behind(site: Running) -> None:
    for _ in range(20):
        with stalled(site):
            pass
    eventually(lambda: site.metric("usher_webhook_in_flight") == 0)


def test_a_bug_ends_one_connection_and_not_the_server(
    site: Running, log: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("webhook.handler._seconds", None)
        reply = site.call(creation())
        assert reply.status == 500
        assert reply.headers["Connection"] == "close"
    assert log.getvalue().count('"failed"') == 1
    log.truncate(0)  # the only traceback that a test may see
    assert site.call(creation()).status == 200


def refuses_connections(site: Running) -> bool:
    try:
        socket.create_connection((HOST, site.port), timeout=PATIENCE).close()
    except ConnectionRefusedError:
        return True
    return False


def test_going_down_loses_no_call(tmp_path: Path) -> None:
    # Longer than the test waits for anything, so that nothing ends but by the signals.
    long = 2 * PATIENCE
    with running(tmp_path, drain=long, timeout=long) as site, ExitStack() as stack:
        idle = stack.enter_context(site.connect())
        kept = stack.enter_context(site.connect())
        kept.sendall(HEAD + BODY)
        assert "Connection" not in answer(kept).headers
        half = stack.enter_context(stalled(site))
        site.shutdown()
        eventually(lambda: site.health("/readyz").status == 503)
        assert site.health("/readyz").body == b"shutting down\n"
        assert site.health("/livez").status == 200
        # It serves on, to old connections and to new ones, but keeps none of them.
        kept.sendall(HEAD + BODY)
        reply = answer(kept)
        assert reply.response["allowed"] is True
        assert reply.headers["Connection"] == "close"
        assert closed(kept)
        reply = site.call(creation())
        assert reply.response["allowed"] is True
        assert reply.headers["Connection"] == "close"
        # The second signal ends the wait; here it also ends the wait for what is under way.
        site.shutdown()
        eventually(lambda: refuses_connections(site))
        assert closed(idle)
        site.thread.join(PATIENCE)
        assert not site.thread.is_alive()
        half.close()


def test_what_is_under_way_is_answered_after_the_drain(tmp_path: Path) -> None:
    with running(tmp_path, drain=0.2, timeout=PATIENCE) as site, ExitStack() as stack:
        idle = stack.enter_context(site.connect())
        half = stack.enter_context(stalled(site))
        eventually(lambda: site.metric("usher_webhook_in_flight") == 1)
        site.shutdown()
        eventually(lambda: refuses_connections(site))
        assert closed(idle)
        assert site.thread.is_alive()
        half.sendall(BODY[10:])
        reply = answer(half)
        assert reply.response["allowed"] is True
        assert reply.headers["Connection"] == "close"
        half.close()
        site.thread.join(PATIENCE)
        assert not site.thread.is_alive()
