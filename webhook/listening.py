"""Listens on several addresses of one port, and serves an application there."""

import asyncio
import errno
import os
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import ExitStack, asynccontextmanager
from logging import LogRecord, getLogger
from typing import Any, Final, cast

import structlog
from aiohttp import web

from webhook.bounds import Bounds, Connection
from webhook.settings import (
    BACKLOG,
    HEADER_SECONDS,
    IDLE_SECONDS,
    LINGER_SECONDS,
    MAX_FIELDS,
    READ_SIZE,
    SHUTDOWN_SECONDS,
    SWEEP_SECONDS,
)

_log = structlog.get_logger()

_UNAVAILABLE: Final = (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL)
_ANY_IPV6: Final = "::"


class AddressError(OSError):
    """An address can't be listened on."""

    def __init__(self, host: str, port: int, error: OSError) -> None:
        is_named = isinstance(error, socket.gaierror) or error.errno is None
        reason = error.strerror if is_named else os.strerror(error.errno or 0)
        super().__init__(error.errno, f"{host} port {port}: {reason}")
        self.port = port
        self.in_use = error.errno == errno.EADDRINUSE


def listen(hosts: Sequence[str], port: int) -> list[socket.socket]:
    """Listen on ``port`` of every one of ``hosts``.

    Connections queue from now on. Port 0 takes a free one, the same for all. A machine without IPv6
    has no "::"; that is no error while there is another host. Raises AddressError.
    """
    sockets: list[socket.socket] = []
    with ExitStack() as stack:
        for host in hosts:
            try:
                for family, address in _addresses(host, port):
                    created = socket.create_server(address, family=family, backlog=BACKLOG)
                    sockets.append(stack.enter_context(created))
                    port = created.getsockname()[1]
            except OSError as error:
                if not (host == _ANY_IPV6 and sockets and error.errno in _UNAVAILABLE):
                    raise AddressError(host, port, error) from None
        stack.pop_all()
    return sockets


def _addresses(host: str, port: int) -> list[tuple[int, Any]]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    return [(family, (address[0], port, *address[2:])) for family, *_, address in found]


@asynccontextmanager
async def serving(
    app: web.Application,
    bounds: Bounds,
    sockets: Sequence[socket.socket],
    context: ssl.SSLContext | None = None,
) -> AsyncIterator[Callable[[], None]]:
    """Serve ``app`` within ``bounds``; yields what ends the listening, but no connection."""
    bounds.paths = [resource.canonical for resource in app.router.resources()]
    app.middlewares.append(bounds.guard)
    app.on_response_prepare.append(bounds.prepare)
    runner = web.AppRunner(
        app,
        access_log=None,
        logger=_library,
        handler_cancellation=True,
        auto_decompress=False,
        keepalive_timeout=IDLE_SECONDS,
        lingering_time=LINGER_SECONDS,
        max_headers=MAX_FIELDS,
        read_bufsize=READ_SIZE,
        shutdown_timeout=SHUTDOWN_SECONDS,
    )
    app.cleanup_ctx.append(lambda _: meanwhile(every(SWEEP_SECONDS, bounds.sweep)))
    await runner.setup()
    protocol = cast("web.Server", runner.server)
    servers = [
        await asyncio.get_running_loop().create_server(
            lambda: Connection(bounds, protocol()),
            sock=each,
            ssl=context,
            backlog=BACKLOG,
            ssl_handshake_timeout=HEADER_SECONDS if context else None,
            ssl_shutdown_timeout=SHUTDOWN_SECONDS if context else None,
        )
        for each in sockets
    ]

    def stop() -> None:
        for server in servers:
            server.close()

    try:
        yield stop
    finally:
        stop()
        await runner.cleanup()


@asynccontextmanager
async def meanwhile(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Do ``work`` as long as the block runs."""
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()


async def every(seconds: float, *steps: Callable[[], None]) -> None:
    """Take ``steps`` every so many seconds, whatever they raise."""
    while True:
        for step in steps:
            try:
                step()
            except Exception:  # noqa: BLE001 - the next time may go well
                _log.exception("upkeep failed")
        await asyncio.sleep(seconds)


def _is_ours(record: LogRecord) -> bool:
    """Whether ``record`` is not about a client that speaks no HTTP; bugs are logged by guards."""
    return not str(record.msg).startswith("Error handling request")


_library: Final = getLogger("aiohttp.server")
_library.addFilter(_is_ours)
