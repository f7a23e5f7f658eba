"""What the kubelet and Prometheus ask each program, over plain HTTP on a port of its own."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from http import HTTPStatus
from inspect import isawaitable
from typing import Final

from aiohttp import hdrs, web
from prometheus_client import CollectorRegistry
from prometheus_client import exposition as plain
from prometheus_client.openmetrics import exposition as openmetrics

from cluster.listening import listen

Reasons = Callable[[], Sequence[str] | Awaitable[Sequence[str]]]
"""Why not; empty: all is well."""

_OPENMETRICS: Final = "application/openmetrics-text"


@asynccontextmanager
async def serving(
    hosts: Sequence[str],
    port: int,
    *,
    not_live: Reasons,
    not_ready: Reasons,
    registry: CollectorRegistry,
) -> AsyncIterator[list[str]]:
    """Serve /livez, /readyz and /metrics; gives the addresses. Raises AddressError."""
    app = application(not_live=not_live, not_ready=not_ready, registry=registry)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        for each in listen(hosts, port):
            await web.SockSite(runner, each).start()
        yield [f"{host}:{port}" for host, port, *_ in runner.addresses]
    finally:
        await runner.cleanup()


def application(
    *, not_live: Reasons, not_ready: Reasons, registry: CollectorRegistry
) -> web.Application:
    """What answers /livez, /readyz and /metrics."""
    app = web.Application()
    app.router.add_get("/livez", _reporting(not_live))
    app.router.add_get("/readyz", _reporting(not_ready))
    app.router.add_get("/metrics", _metrics(registry))
    return app


def _reporting(reasons: Reasons) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def answer(_: web.Request) -> web.Response:
        given = reasons()
        found = await given if isawaitable(given) else given
        status = HTTPStatus.SERVICE_UNAVAILABLE if found else HTTPStatus.OK
        return web.Response(status=status, text="".join(f"{r}\n" for r in found) or "ok\n")

    return answer


def _metrics(registry: CollectorRegistry) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def answer(request: web.Request) -> web.Response:
        # Not prometheus_client's own choice: it fails on versions that are no numbers.
        if _OPENMETRICS in request.headers.get(hdrs.ACCEPT, ""):
            body = openmetrics.generate_latest(registry)  # type: ignore[no-untyped-call]
            kind = openmetrics.CONTENT_TYPE_LATEST
        else:
            body, kind = plain.generate_latest(registry), plain.CONTENT_TYPE_PLAIN_0_0_4
        return web.Response(body=body, headers={hdrs.CONTENT_TYPE: kind})

    return answer
