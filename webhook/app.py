"""The server: it listens, looks after itself, and goes down without losing calls."""

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import nullcontext
from datetime import datetime
from typing import Any, Final

import structlog
from aiohttp import web

from cluster.clock import now
from cluster.facts import Connect, FactFinder, Finder, Offline
from cluster.failures import ClusterFailure
from cluster.health import application
from cluster.questions import ClusterFacts
from rules.evaluate import Policy
from webhook.bounds import Bounds
from webhook.handler import Reviews
from webhook.health import Health, SelfCheck, Status
from webhook.metrics import Metrics
from webhook.serving import every, meanwhile, serving
from webhook.settings import (
    LINGER_SECONDS,
    REFRESH_SECONDS,
    SHUTDOWN_SECONDS,
    TIME_AGAIN_SECONDS,
    TIME_SECONDS,
    Settings,
)
from webhook.tls import CertificateError, ServingCertificate

_log = structlog.get_logger()

_CLIENT_ERRORS: Final = (ConnectionError, TimeoutError, ssl.SSLError)
"""What clients can bring about: no failure of ours."""


class Shutdown:
    """The way down: told once, serve on for a while; told again, end at once."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.hurried = asyncio.Event()

    def tell(self) -> None:
        """Go down, or faster down."""
        (self.hurried if self.begun.is_set() else self.begun).set()


class Server:
    """Answers admission reviews.

    ``connect`` opens the cluster that guards ask, and whose time is the present; by default there
    is none. ``clock`` is the machine's: for certificates, and for the present without a cluster.
    """

    def __init__(
        self,
        settings: Settings,
        policy: Policy,
        certificate: ServingCertificate,
        clock: Callable[[], datetime] = now,
        connect: Connect = nullcontext,
    ) -> None:
        self.settings = settings
        self.certificate = certificate
        self.status = Status()
        self._bounds = Bounds(settings)
        self.metrics = Metrics()
        self.metrics.watch(self._bounds, certificate)
        self._clock = clock
        self._policy = policy
        self._connect = connect

    async def serve(self, sockets: Sequence[socket.socket], shutdown: Shutdown) -> None:
        """Answer until ``shutdown``, and then whatever is under way."""
        asyncio.get_running_loop().set_exception_handler(_log_failure)
        async with self._connect() as cluster:
            app = self._application(cluster)
            async with serving(app, self._bounds, sockets, self.certificate.context) as stop:
                self.status.is_serving = True
                await shutdown.begun.wait()
                await self._drain(shutdown)
                stop()
                self._bounds.close_idle()
                rest = self.settings.timeout + LINGER_SECONDS
                await _first(rest, self._bounds.emptied(), shutdown.hurried.wait())
                self._bounds.abort()
                await _first(SHUTDOWN_SECONDS, self._bounds.emptied())

    def _application(self, cluster: ClusterFacts | None) -> web.Application:
        finder: Finder = Offline()
        clock = self._clock
        if cluster is not None:
            finder, clock = FactFinder(cluster, self.metrics), cluster.time.now
        reviews = Reviews(self.settings, self._policy, self.metrics, clock, finder, self._bounds)
        app = reviews.application()
        upkeep = (self._refresh, self._complain)
        app.cleanup_ctx.append(lambda _: meanwhile(every(REFRESH_SECONDS, *upkeep)))
        if cluster is None:
            self.status.knows_time = True
        else:
            app.cleanup_ctx.append(lambda _: meanwhile(self._keep_time(cluster)))
        return app

    async def _keep_time(self, cluster: ClusterFacts) -> None:
        """Ask for the API server's time, at first until it is known, then every now and then."""
        while True:
            try:
                await cluster.ask_time()
            except ClusterFailure as failure:
                _log.warning("the API server does not tell the time", error=str(failure))
            if cluster.time.is_known:
                self.status.knows_time = True
                self.metrics.clock_ahead.set(cluster.clock_ahead.total_seconds())
            await asyncio.sleep(TIME_SECONDS if cluster.time.is_known else TIME_AGAIN_SECONDS)

    async def _drain(self, shutdown: Shutdown) -> None:
        """Serve on until nobody sends new calls any more, but make every caller connect anew."""
        self.status.is_draining = self._bounds.draining = True
        _log.info("draining", seconds=self.settings.drain, hint="the same signal again ends it")
        await _first(self.settings.drain, shutdown.hurried.wait())

    def _refresh(self) -> None:
        certificate = self.certificate
        try:
            changed = certificate.refresh(self._clock())
        except CertificateError as error:
            self.metrics.reload_failures.inc()
            _log.warning("certificate refused, the last good one stays", error=str(error))
            return
        if changed:
            _log.info("certificate loaded", not_after=certificate.not_after.isoformat())

    def _complain(self) -> None:
        # Not a line for each: they come in floods, and without their bodies they have no uid.
        if turned_away := self._bounds.turned_away:
            _log.error("overloaded", turned_away=turned_away, waiting=self._bounds.waiting)
            self._bounds.turned_away = 0


async def serve_health(
    server: Server,
    sockets: Sequence[socket.socket],
    served: tuple[str, int],
    until: Awaitable[object],
    clock: Callable[[], datetime] = now,
) -> None:
    """Answer the kubelet and Prometheus about ``server`` until ``until`` is done.

    ``served`` is where reviews are answered: address and port.
    """
    check = SelfCheck(server.certificate, served)
    health = Health(server.status, server.certificate, clock, check)
    app = application(
        not_live=list,  # who hangs does not answer
        not_ready=health.not_ready,
        registry=server.metrics.registry,
    )
    async with serving(app, Bounds(server.settings), sockets):
        await until


async def _first(seconds: float, *ends: Coroutine[Any, Any, object]) -> None:
    """Wait until one of ``ends`` is done, but no longer than ``seconds``."""
    tasks = [asyncio.create_task(end) for end in ends]
    await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        task.cancel()


def _log_failure(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    error = context.get("exception")
    if isinstance(error, _CLIENT_ERRORS):
        _log.debug("connection failed", error=repr(error))
    else:
        _log.error("internal error", message=context.get("message"), exc_info=error)
