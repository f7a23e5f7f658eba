"""HTTP/1.1 connections, and the bounds that no client can cross.

Built on aiohttp's parser, and not on its ``web.Server``, for two reasons. Bounds: a header that
drips, HTTP/0.9, a refused body and a drain are all dealt with here, in one place, where
``web.Server`` needs its private methods overridden. Speed: a verdict waits for nothing, so a
request whose body is there is answered within the callback that brought it, without tasks; over TLS
and with an empty handler that takes half the processor time (34 µs a request against 71 µs).

Overload: HTTP/1.1 has one request in flight on a connection, so what can be queued is bounded by
the callers' connections; what must be bounded here is how many requests wait, for their bodies or
for the cluster, and how much of these is held in memory.
"""

import asyncio
from collections.abc import Coroutine, Sequence
from email.utils import formatdate
from http import HTTPStatus
from math import inf
from time import perf_counter
from typing import Any, Final, NamedTuple, Protocol

import structlog
from aiohttp import hdrs
from aiohttp.base_protocol import BaseProtocol
from aiohttp.http import HttpRequestParser, HttpVersion10, HttpVersion11, RawRequestMessage
from aiohttp.streams import StreamReader

from webhook.settings import (
    HEADER_SECONDS,
    IDLE_SECONDS,
    LINGER_SECONDS,
    MAX_BUFFERED,
    MAX_PARSED,
    Settings,
)

_log = structlog.get_logger()

JSON: Final = b"application/json"
TEXT: Final = b"text/plain; charset=utf-8"

_STATUS_LINES: Final = {
    status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus
}
_CONTINUE: Final = _STATUS_LINES[HTTPStatus.CONTINUE] + b"\r\n"


class Reply(NamedTuple):
    """What to answer; ``allow`` lists the methods where the one asked for is not among them."""

    status: int
    body: bytes
    content_type: bytes = JSON
    allow: bytes = b""


class Application(Protocol):
    """What answers requests. Its methods return at once, and never raise."""

    def begin(self, head: RawRequestMessage) -> Reply | float:
        """Answer a request by its head alone, or say how many seconds its body may take."""

    def answer(
        self, head: RawRequestMessage, body: bytes, began: float
    ) -> Reply | Coroutine[Any, Any, Reply]:
        """Answer a complete request; its head was complete at ``began`` (``perf_counter``).

        A coroutine for one that can't be answered at once; it keeps its own time, and never raises.
        """

    def refuse(self, status: int, detail: str) -> Reply:
        """The answer to a request that can't be had; ``detail`` says what is wanted."""

    def overloaded(self) -> Reply:
        """The answer to a request for which there is no room."""


class Connections:
    """All connections to one application: a protocol factory for ``create_server``."""

    def __init__(self, application: Application, settings: Settings) -> None:
        self.application = application
        self.settings = settings
        self.open: set[Connection] = set()
        self.waiting = 0
        """How many requests wait for their bodies, or for what their verdict depends on."""
        self.buffered = 0
        """How many bytes of unfinished bodies are held."""
        self.parsed = 0
        """How many bytes the bodies had of requests that wait for what their verdict depends on."""
        self.turned_away = 0
        """How many requests found no room, since somebody last set this back."""
        self.draining = False
        """Whether every answer closes its connection."""
        self.date = b""
        self._lost = asyncio.Event()
        self.sweep()

    def __call__(self) -> "Connection":
        """A new connection."""
        return Connection(self)

    @property
    def full(self) -> bool:
        """Whether no further request may wait."""
        return (
            self.waiting >= self.settings.concurrency
            or self.buffered > MAX_BUFFERED
            or self.parsed > MAX_PARSED
        )

    def turn_away(self) -> Reply:
        """The answer to a request for which there is no room."""
        self.turned_away += 1
        return self.application.overloaded()

    def sweep(self) -> None:
        """Deal with overdue connections; to be called every ``SWEEP_SECONDS``."""
        now = perf_counter()
        self.date = b"Date: %b\r\n" % formatdate(usegmt=True).encode()
        for connection in [each for each in self.open if each.expires <= now]:
            connection.expire()

    def lost(self, connection: "Connection") -> None:
        """Forget ``connection``."""
        self.open.discard(connection)
        self._lost.set()

    async def emptied(self) -> None:
        """Wait until no connection is open."""
        while self.open:
            self._lost.clear()
            await self._lost.wait()

    def close_idle(self) -> None:
        """Close the connections on which no request has begun."""
        for connection in [each for each in self.open if each.idle]:
            connection.close()

    def abort(self) -> None:
        """End all connections, whatever is happening on them."""
        for connection in list(self.open):
            connection.abort()


class Connection(BaseProtocol):
    """One connection: idle, or reading a request, or awaiting a verdict, or dropping the rest."""

    __slots__ = (
        "_closing", "_exchange", "_held", "_later", "_overtaken", "_pool", "_reading_head",
        "expires",
    )  # fmt: skip

    def __init__(self, pool: Connections) -> None:
        loop = asyncio.get_running_loop()
        parser = HttpRequestParser(self, loop, pool.settings.max_body, auto_decompress=False)
        super().__init__(loop, parser)
        self._pool = pool
        self._exchange: tuple[RawRequestMessage, StreamReader, float] | None = None
        self._held = 0
        self._later: asyncio.Task[None] | None = None
        """Answers the request whose verdict has to wait."""
        self._overtaken = False
        """Whether the client sent more meanwhile. It is dropped, and the connection closes after
        the answer: who sends before it has read must be ready to send again (RFC 9112, 9.3.2)."""
        self._reading_head = False
        self._closing = False
        self.expires = perf_counter() + IDLE_SECONDS
        """When it is overdue (``perf_counter``)."""

    @property
    def idle(self) -> bool:
        """Whether no request has begun."""
        return not (self._exchange or self._later or self._reading_head or self._closing)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Join the pool."""
        super().connection_made(transport)
        self._pool.open.add(self)

    def connection_lost(self, exc: BaseException | None) -> None:
        """Leave the pool."""
        if self._exchange is not None or self._reading_head:
            _log.debug("connection lost amid a request", error=repr(exc))
        self._release()
        self._closing = True
        if self._later is not None:
            self._later.cancel()
        self._pool.lost(self)
        super().connection_lost(exc)
        self._parser = None

    def data_received(self, data: bytes) -> None:
        """Answer every request that ``data`` completes."""
        if self._closing or self._parser is None:
            return
        if self._later is not None:
            self._overtaken = True
            return
        is_rest = self._exchange is not None
        try:
            messages, upgraded, _ = self._parser.feed_data(data)
        except Exception as error:  # noqa: BLE001 - whatever the parser raises is the client's fault
            _log.debug("not HTTP", error=repr(error))
            self._give_up(self._pool.application.refuse(400, "must be HTTP/1.1"))
            return
        try:
            self._take(messages)
        except Exception:  # noqa: BLE001 - a bug of ours ends one connection, not the server
            _log.exception("failed")
            self._give_up(Reply(HTTPStatus.INTERNAL_SERVER_ERROR, b"internal error\n", TEXT))
        if upgraded and not self._closing:
            self.close()
        # The rest of a body, answered by now, is no beginning of another request: the connection is
        # idle, and closed as a slow one it would fail the call that comes on it next.
        if not messages and not is_rest and self.idle:
            self._reading_head = True
            self.expires = perf_counter() + HEADER_SECONDS

    def _take(self, messages: Sequence[tuple[RawRequestMessage, StreamReader]]) -> None:
        if self._exchange is not None:
            self._proceed(*self._exchange)
        for head, payload in messages:
            if self._later is not None:
                self._overtaken = True
            elif not self._closing:
                self._receive(head, payload)

    def pause_writing(self) -> None:
        """Take no more requests from a client that doesn't read its answers."""
        super().pause_writing()
        self._pause_transport_reading()

    def resume_writing(self) -> None:
        """Take requests again."""
        super().resume_writing()
        self._resume_transport_reading()

    def resume_reading(self, resume_parser: bool = True) -> None:  # noqa: FBT001, FBT002 - aiohttp's
        """Go on with a body; called for each, paused or not."""
        if self._reading_paused:
            super().resume_reading(resume_parser)

    def expire(self) -> None:
        """End what takes too long."""
        if self._exchange is not None:
            self._give_up(self._pool.application.refuse(408, "the body must arrive in time"))
        elif self._closing:
            self.abort()
        else:
            self.close()

    def close(self) -> None:
        """Close, as soon as what was written is sent."""
        self._closing = True
        self.expires = perf_counter() + LINGER_SECONDS
        if self.transport is not None:
            self.transport.close()

    def abort(self) -> None:
        """Close, and forget what is not sent yet."""
        self._closing = True
        if self.transport is not None:
            self.transport.abort()

    def _receive(self, head: RawRequestMessage, payload: StreamReader) -> None:
        began = perf_counter()
        pool = self._pool
        self._reading_head = False
        if head.version not in (HttpVersion11, HttpVersion10):
            self._give_up(pool.application.refuse(400, "must be HTTP/1.1"))
            return
        step = pool.application.begin(head)
        if isinstance(step, Reply):
            self._reply(step, head, payload)
        elif payload.is_eof():
            self._finish(head, payload, began)
        elif int(head.headers.get(hdrs.CONTENT_LENGTH, 0)) > pool.settings.max_body:
            self._give_up(self._too_large())
        elif pool.full:
            self._give_up(pool.turn_away())
        else:
            self._exchange = (head, payload, began)
            self.expires = began + step
            pool.waiting += 1
            if head.headers.get(hdrs.EXPECT, "").lower() == "100-continue":
                self._write(_CONTINUE)
            self._proceed(head, payload, began)

    def _proceed(self, head: RawRequestMessage, payload: StreamReader, began: float) -> None:
        pool = self._pool
        pool.buffered += payload.total_bytes - self._held
        self._held = payload.total_bytes
        if payload.is_eof():
            self._release()
            self._finish(head, payload, began)
        elif payload.total_bytes > pool.settings.max_body:
            self._give_up(self._too_large())
        elif pool.buffered > MAX_BUFFERED:
            self._give_up(pool.turn_away())

    def _finish(self, head: RawRequestMessage, payload: StreamReader, began: float) -> None:
        if payload.total_bytes > self._pool.settings.max_body:
            self._give_up(self._too_large())
        else:
            reply = self._pool.application.answer(head, payload.read_nowait(), began)
            if isinstance(reply, Reply):
                self._reply(reply, head, payload)
            elif self._pool.full:
                reply.close()
                self._reply(self._pool.turn_away(), head, payload)
            else:
                self._pool.waiting += 1
                self._pool.parsed += payload.total_bytes
                self.expires = inf  # the coroutine keeps the time
                self._later = asyncio.create_task(self._reply_later(reply, head, payload))

    async def _reply_later(
        self,
        pending: Coroutine[Any, Any, Reply],
        head: RawRequestMessage,
        payload: StreamReader,
    ) -> None:
        try:
            reply = await pending
        finally:
            self._pool.waiting -= 1
            self._pool.parsed -= payload.total_bytes
            self._later = None
        self._reply(reply, head, payload)

    def _too_large(self) -> Reply:
        limit = self._pool.settings.max_body
        return self._pool.application.refuse(413, f"the body may have at most {limit} bytes")

    def _reply(self, reply: Reply, head: RawRequestMessage, payload: StreamReader) -> None:
        if not payload.is_eof():
            self._give_up(reply, with_body=head.method != hdrs.METH_HEAD)
            return
        close = (
            head.should_close
            or head.upgrade
            or self._overtaken
            or self._pool.draining
            or head.version != HttpVersion11
        )
        self._write(self._rendered(reply, close=close, with_body=head.method != hdrs.METH_HEAD))
        if close:
            self.close()
        else:
            self.expires = perf_counter() + IDLE_SECONDS

    def _give_up(self, reply: Reply, *, with_body: bool = True) -> None:
        """Answer with ``reply``, and drop whatever the client still sends until it has read it."""
        self._release()
        self._closing = True
        self.expires = perf_counter() + LINGER_SECONDS
        self._write(self._rendered(reply, close=True, with_body=with_body))

    def _release(self) -> None:
        if self._exchange is not None:
            self._pool.waiting -= 1
            self._pool.buffered -= self._held
            self._exchange, self._held = None, 0

    def _rendered(self, reply: Reply, *, close: bool, with_body: bool) -> bytes:
        return b"%bContent-Type: %b\r\nContent-Length: %d\r\n%b%b%b\r\n%b" % (
            _STATUS_LINES[reply.status],
            reply.content_type,
            len(reply.body),
            self._pool.date,
            b"Allow: %b\r\n" % reply.allow if reply.allow else b"",
            b"Connection: close\r\n" if close else b"",
            reply.body if with_body else b"",
        )

    def _write(self, data: bytes) -> None:
        if self.transport is not None:
            self.transport.write(data)
