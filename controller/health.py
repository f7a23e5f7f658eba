"""What the kubelet and Prometheus ask, over plain HTTP on a port of its own."""

import errno
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Final

from aiohttp import hdrs, web
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

Reasons = Callable[[], Sequence[str]]
"""Why not; empty: all is well."""


@asynccontextmanager
async def serving(
    hosts: Sequence[str],
    port: int,
    *,
    not_live: Reasons,
    not_ready: Reasons,
    registry: CollectorRegistry,
) -> AsyncIterator[list[str]]:
    """Serve /livez, /readyz and /metrics; gives the addresses. Raises OSError."""
    application = web.Application()
    application.add_routes(
        [
            web.get("/livez", _reporting(not_live)),
            web.get("/readyz", _reporting(not_ready)),
            web.get("/metrics", _metrics(registry)),
        ]
    )
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    try:
        for host in hosts:
            await _listen(runner, host, port)
        yield [f"{host}:{port}" for host, port, *_ in runner.addresses]
    finally:
        await runner.cleanup()


async def _listen(runner: web.AppRunner, host: str, port: int) -> None:
    """Listen on one address; a machine without IPv6 has no "::", and no need of it."""
    try:
        await web.TCPSite(runner, host, port).start()
    except OSError as error:
        if not (host == _ANY_IPV6 and runner.sites and error.errno in _UNAVAILABLE):
            raise


_ANY_IPV6: Final = "::"
_UNAVAILABLE: Final = (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL)


def _reporting(reasons: Reasons) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def answer(_: web.Request) -> web.Response:
        found = reasons()
        status = HTTPStatus.SERVICE_UNAVAILABLE if found else HTTPStatus.OK
        return web.Response(status=status, text="".join(f"{r}\n" for r in found) or "ok\n")

    return answer


def _metrics(registry: CollectorRegistry) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def answer(request: web.Request) -> web.Response:
        encode, content_type = choose_encoder(request.headers.get(hdrs.ACCEPT, ""))
        return web.Response(body=encode(registry), headers={hdrs.CONTENT_TYPE: content_type})

    return answer
