"""The bounds that no client can cross, around what aiohttp.web does with a connection.

aiohttp bounds one header field and the time that a connection may be idle. How long a header may
take, and what all clients together may leave unfinished, it does not bound. So every connection's
bytes pass through a :class:`Connection`, which counts them; the first middleware says when a header
was complete, and the answer, when it is prepared, that the request is done with.

Nobody is turned away because others are slow: where too much is unfinished, whoever has waited
longest for the rest of theirs is given up. That is never a caller that sends what it has to say.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from math import inf
from time import monotonic
from typing import Final, cast

import structlog
from aiohttp import HttpVersion10, HttpVersion11, hdrs, web

from webhook.settings import (
    HEADER_SECONDS,
    IDLE_SECONDS,
    MAX_AHEAD,
    MAX_BUFFERED,
    MAX_HEADERS,
    MAX_PARSED,
    Settings,
)

_log = structlog.get_logger()

UID: Final = web.RequestKey("UID", str)
"""Under what a request remembers the uid of its review, for the log."""

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class OverloadedError(web.HTTPInternalServerError):
    """There is no room for the request."""


class Unfinished(dict["Connection", tuple[float, int]]):
    """Connections that have begun something: since when, and how many bytes of it have come.

    Those that began first come first.
    """

    def __init__(self, most: float = inf, most_bytes: float = inf) -> None:
        super().__init__()
        self._most = most
        self._most_bytes = most_bytes
        self._bytes = 0

    def add(self, connection: "Connection", size: int = 0) -> None:
        """Count ``size`` bytes more of ``connection``, which begins now if it has not before."""
        since, held = self.get(connection) or (monotonic(), 0)
        self[connection] = since, held + size
        self._bytes += size

    def remove(self, connection: "Connection") -> int:
        """Forget ``connection``; return how many bytes were counted."""
        _, held = self.pop(connection, (0, 0))
        self._bytes -= held
        return held

    def overdue(self, seconds: float) -> list["Connection"]:
        """Those that began more than ``seconds`` ago."""
        latest = monotonic() - seconds
        return [each for each, (since, _) in self.items() if since < latest]

    @property
    def is_too_much(self) -> bool:
        """Whether there are too many, or they hold too much."""
        return len(self) > self._most or self._bytes > self._most_bytes

    def relieve(self) -> None:
        """Give up the first ones, until the rest is within the bounds."""
        while self.is_too_much:
            first = next(iter(self))
            self.remove(first)
            first.give_up()


class Bounds:
    """All connections to one application, and what they may have unfinished."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.paths: list[str] = []
        """What is served there, exactly so written."""
        self.open: dict[web.RequestHandler, Connection] = {}
        """aiohttp's protocol → the connection that it serves."""
        self.heads = Unfinished(most_bytes=MAX_HEADERS)
        """Connections whose next request's header is not complete."""
        self.bodies = Unfinished(settings.concurrency, MAX_BUFFERED)
        """Connections whose request's body is not complete, or that send more before the answer."""
        self.unread = Unfinished()
        """Connections that do not read what was written to them."""
        self.asking = 0
        """How many requests wait for what their verdict depends on."""
        self._parsed = 0
        """How many bytes the bodies of these had."""
        self.turned_away = 0
        """How many requests found no room, since somebody last set this back."""
        self.draining = False
        """Whether every answer closes its connection."""
        self._lost = asyncio.Event()

    def overloaded(self) -> OverloadedError:
        """What to raise for a request for which there is no room."""
        self.turned_away += 1
        return OverloadedError(text="too many requests are waiting\n")

    @property
    def waiting(self) -> int:
        """How many requests wait, for their bodies or for what their verdict depends on."""
        return len(self.bodies) + self.asking

    @contextmanager
    def place(self, size: int) -> Iterator[None]:
        """A place among the requests that wait for an answer of the cluster.

        ``size`` is that of the request's body. Raises OverloadedError where all are taken.
        """
        if self.asking >= self._settings.concurrency or self._parsed > MAX_PARSED:
            raise self.overloaded()
        self.asking += 1
        self._parsed += size
        try:
            yield
        finally:
            self.asking -= 1
            self._parsed -= size

    async def read(self, request: web.Request, seconds: float) -> bytes:
        """The body of ``request``, which may take ``seconds``.

        Raises the HTTP errors for one that is too large, or does not come.
        """
        limit, content = self._settings.max_body, request.content
        if (request.content_length or 0) <= limit:
            body = content.read_nowait() if content.is_eof() else await self._wait(request, seconds)
            if len(body) <= limit:
                return body
        text = f"the body may have at most {limit} bytes\n"
        raise web.HTTPRequestEntityTooLarge(limit, text=text)

    async def _wait(self, request: web.Request, seconds: float) -> bytes:
        connection, body = self.open[request.protocol], bytearray()
        try:
            async with asyncio.timeout(seconds) as connection.patience:
                self.bodies.relieve()
                # Taken out of aiohttp's buffer at once, which keeps every chunk by itself.
                while part := await request.content.readany():
                    body += part
                    if len(body) > self._settings.max_body:
                        break
        except TimeoutError:
            if connection.given_up:
                raise self.overloaded() from None
            raise web.HTTPRequestTimeout(text="the body must arrive in time\n") from None
        except web.RequestPayloadError:
            raise web.HTTPBadRequest(text="must be HTTP/1.1\n") from None
        finally:
            connection.patience = None
            connection.complete()
        return bytes(body)

    @web.middleware
    async def guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Take the header of ``request`` for complete, and a bug for the end of a connection."""
        connection = self.open.get(request.protocol)
        if connection is None:
            raise ConnectionResetError  # gone before its turn; aiohttp drops such a request
        connection.begin(request)
        if request.version not in (HttpVersion11, HttpVersion10):
            raise web.HTTPBadRequest(text="must be HTTP/1.1\n")
        if request.raw_path.partition("?")[0] not in self.paths:  # aiohttp would decode it first
            raise web.HTTPNotFound(text=f"only {', '.join(self.paths)} are served\n")
        try:
            return await handler(request)
        except web.HTTPException:
            raise
        except Exception:  # noqa: BLE001 - it ends one connection, not the server
            _log.exception("failed", uid=request.get(UID, ""))
            failure = web.HTTPInternalServerError(text="internal error; see the log\n")
            failure.headers[hdrs.CONNECTION] = "close"
            raise failure from None

    async def prepare(self, request: web.Request, response: web.StreamResponse) -> None:
        """Say in the header of ``response`` whether the connection goes on."""
        headers = response.headers
        del headers[hdrs.SERVER]
        connection = self.open.get(request.protocol)
        if connection is None:
            return
        ahead = connection.finish(request)
        if (
            self.draining
            or hdrs.CONNECTION in headers
            or request.version != HttpVersion11
            or not request.content.is_eof()
            or hdrs.UPGRADE in request.headers
            or request.method == hdrs.METH_CONNECT
            # What a body of many small chunks took can't be told from what came after it.
            or (ahead and hdrs.TRANSFER_ENCODING in request.headers)
        ):
            response.force_close()
            headers[hdrs.CONNECTION] = "close"
        connection.closing = not response.keep_alive
        if ahead and not connection.closing:
            self.heads.add(connection, ahead)

    def sweep(self) -> None:
        """Deal with overdue connections; to be called every ``SWEEP_SECONDS``."""
        for connection in self.heads.overdue(HEADER_SECONDS):
            connection.close()
        for connection in self.unread.overdue(IDLE_SECONDS):
            connection.give_up()

    def lost(self, connection: "Connection", protocol: web.RequestHandler) -> None:
        """Forget ``connection``."""
        del self.open[protocol]
        for each in (self.heads, self.bodies, self.unread):
            each.remove(connection)
        self._lost.set()

    async def emptied(self) -> None:
        """Wait until no connection is open."""
        while self.open:
            self._lost.clear()
            await self._lost.wait()

    def close_idle(self) -> None:
        """Close the connections on which no request has begun."""
        for connection in list(self.open.values()):
            if connection.is_idle:
                connection.close()

    def abort(self) -> None:
        """End all connections, whatever is happening on them."""
        for connection in list(self.open.values()):
            connection.abort()


class Connection(asyncio.Protocol):
    """One connection: passes everything on to aiohttp's protocol, and keeps count of it."""

    def __init__(self, bounds: Bounds, protocol: web.RequestHandler) -> None:
        self._bounds = bounds
        self._protocol = protocol
        self._transport: asyncio.Transport
        self._is_answering = False
        """Whether a request has begun, from its complete header to the header of its answer."""
        self._ahead = 0
        """How many bytes came with that request, and perhaps after it."""
        self.closing = False
        """Whether it is closed as soon as what was written is sent."""
        self.patience: asyncio.Timeout | None = None
        """How long the rest of a body is waited for."""
        self.given_up = False
        """Whether that ended because others need the room."""

    @property
    def is_idle(self) -> bool:
        """Whether no request has begun."""
        return not (self._is_answering or self.closing or self in self._bounds.heads)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Join the others."""
        self._transport = cast("asyncio.Transport", transport)
        self._bounds.open[self._protocol] = self
        self._protocol.connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """Leave them."""
        self.closing = True
        self._bounds.lost(self, self._protocol)
        self._protocol.connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Count ``data`` as part of a header, or of what comes after it."""
        bounds = self._bounds
        if not self.closing:  # otherwise aiohttp drops it
            line = bounds.bodies if self._is_answering else bounds.heads
            line.add(self, len(data))
        self._protocol.data_received(data)
        bounds.bodies.relieve()
        if bounds.heads.is_too_much:
            # Until a complete header is known as such, aiohttp wakes a task, which starts another.
            later = asyncio.get_running_loop().call_soon
            later(later, later, bounds.heads.relieve)

    def pause_writing(self) -> None:
        """Wait for a client that doesn't read its answers."""
        self._bounds.unread.add(self)
        self._protocol.pause_writing()

    def resume_writing(self) -> None:
        """Write on."""
        self._bounds.unread.remove(self)
        self._protocol.resume_writing()

    def begin(self, request: web.Request) -> None:
        """Take the header of ``request`` for complete."""
        held = self._bounds.heads.remove(self)
        self._is_answering = True
        if request.content.is_eof():
            self._ahead = held
        else:
            self._bounds.bodies.add(self, held)

    def complete(self) -> None:
        """Take the body for complete."""
        self._ahead = self._bounds.bodies.remove(self)

    def finish(self, request: web.Request) -> int:
        """Take ``request`` for answered; return how many bytes came after it, if it is many."""
        ahead = self._ahead + self._bounds.bodies.remove(self)
        self._ahead, self._is_answering = 0, False
        if ahead > MAX_AHEAD:  # for once it is worth to count exactly
            ahead -= len(request.raw_path) + request.content.total_bytes
            ahead -= sum(len(name) + len(value) + 4 for name, value in request.raw_headers)
        return ahead if ahead > MAX_AHEAD else 0

    def give_up(self) -> None:
        """End what is unfinished, for others need the room."""
        if self.patience is None:
            self.abort()
        elif not self.patience.expired():
            self.given_up = True
            self.patience.reschedule(0)

    def close(self) -> None:
        """Close, as soon as what was written is sent."""
        self.closing = True
        self._transport.close()

    def abort(self) -> None:
        """Close, and forget what is not sent yet."""
        self.closing = True
        self._transport.abort()
