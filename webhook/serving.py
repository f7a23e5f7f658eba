"""Serves an application within bounds."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from logging import LogRecord, getLogger
from typing import Any, Final, cast

import structlog
from aiohttp import web

from cluster.listening import BACKLOG
from webhook.bounds import Bounds, Connection
from webhook.settings import (
    HEADER_SECONDS,
    IDLE_SECONDS,
    LINGER_SECONDS,
    MAX_FIELDS,
    READ_SIZE,
    SHUTDOWN_SECONDS,
    SWEEP_SECONDS,
)

_log = structlog.get_logger()


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
