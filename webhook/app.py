"""The server: it listens, looks after itself, and goes down without losing calls."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager, nullcontext
from datetime import datetime
from functools import partial
from typing import Any, Final

import structlog

from cluster.clock import now
from cluster.failures import ClusterFailure
from rules.evaluate import Policy
from webhook.connection import Connections
from webhook.facts import Cluster, Connect, FactFinder, Finder, Offline
from webhook.handler import Validator
from webhook.health import Health
from webhook.metrics import Metrics
from webhook.selfcheck import SelfCheck
from webhook.settings import (
    BACKLOG,
    HEADER_SECONDS,
    LINGER_SECONDS,
    REFRESH_SECONDS,
    SHUTDOWN_SECONDS,
    SWEEP_SECONDS,
    TIME_AGAIN_SECONDS,
    TIME_SECONDS,
    Settings,
)
from webhook.status import Status
from webhook.tls import CertificateError, ServingCertificate

_log = structlog.get_logger()

# What clients can bring about: no failure of ours.
_CLIENT_ERRORS: Final = (ConnectionError, TimeoutError, ssl.SSLError)


class Shutdown:
    """The way down: told once, serve on for a while; told again, end at once."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.hurried = asyncio.Event()

    def tell(self) -> None:
        """Go down, or faster down."""
        (self.hurried if self.begun.is_set() else self.begun).set()

    def on_signals(self, *numbers: int) -> None:
        """Go down when one of these signals arrives."""
        loop = asyncio.get_running_loop()
        for number in numbers:
            loop.add_signal_handler(number, self.tell)


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
        self.metrics = Metrics()
        self.status = Status()
        self._clock = clock
        self._policy = policy
        self._connect = connect

    async def serve(self, sockets: Sequence[socket.socket], shutdown: Shutdown) -> None:
        """Answer until ``shutdown``, and then whatever is under way."""
        async with self._connect() as cluster:
            if cluster is None:
                self.status.knows_time = True
                await self._answer(Offline(), self._clock, sockets, shutdown)
                return
            keeping = asyncio.create_task(self._keep_time(cluster))
            try:
                finder = FactFinder(cluster, self.metrics)
                await self._answer(finder, cluster.time.now, sockets, shutdown)
            finally:
                keeping.cancel()

    async def _answer(
        self,
        finder: Finder,
        clock: Callable[[], datetime],
        sockets: Sequence[socket.socket],
        shutdown: Shutdown,
    ) -> None:
        validator = Validator(self.settings, self._policy, self.metrics, clock, finder)
        await self._serve(Connections(validator, self.settings), sockets, shutdown)

    async def _keep_time(self, cluster: Cluster) -> None:
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

    async def _serve(
        self, pool: Connections, sockets: Sequence[socket.socket], shutdown: Shutdown
    ) -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(_log_failure)
        servers = [
            await loop.create_server(
                pool,
                sock=each,
                ssl=self.certificate.context,
                backlog=BACKLOG,
                ssl_handshake_timeout=HEADER_SECONDS,
                ssl_shutdown_timeout=SHUTDOWN_SECONDS,
            )
            for each in sockets
        ]
        show, complain = partial(self._show, pool), partial(_complain, pool)
        self._show_certificate()
        self.status.is_serving = True
        async with (
            every(SWEEP_SECONDS, pool.sweep, show),
            every(REFRESH_SECONDS, self._refresh, complain),
        ):
            await shutdown.begun.wait()
            await self._drain(pool, shutdown)
            for server in servers:
                server.close()
            pool.close_idle()
            rest = self.settings.timeout + LINGER_SECONDS
            await _first(rest, pool.emptied(), shutdown.hurried.wait())
            pool.abort()
            await _first(SHUTDOWN_SECONDS, pool.emptied())

    async def _drain(self, pool: Connections, shutdown: Shutdown) -> None:
        """Serve on until nobody sends new calls any more, but make every caller connect anew."""
        self.status.is_draining = True
        pool.draining = True
        _log.info("draining", seconds=self.settings.drain, hint="the same signal again ends it")
        await _first(self.settings.drain, shutdown.hurried.wait())

    def _show(self, pool: Connections) -> None:
        self.metrics.in_flight.set(pool.waiting)
        self.metrics.connections.set(len(pool.open))

    def _show_certificate(self) -> None:
        self.metrics.not_before.set(self.certificate.not_before.timestamp())
        self.metrics.not_after.set(self.certificate.not_after.timestamp())

    def _refresh(self) -> None:
        certificate = self.certificate
        try:
            changed = certificate.refresh(self._clock())
        except CertificateError as error:
            self.metrics.reload_failures.inc()
            _log.warning("certificate refused, the last good one stays", error=str(error))
            return
        if changed:
            self._show_certificate()
            _log.info("certificate loaded", not_after=certificate.not_after.isoformat())


def _complain(pool: Connections) -> None:
    # Not a line for each: they come in floods, and without their bodies they have no uid.
    if pool.turned_away:
        _log.error("overloaded", turned_away=pool.turned_away, waiting=pool.waiting)
        pool.turned_away = 0


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
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(_log_failure)
    certificate = server.certificate
    check = SelfCheck(certificate, served)
    health = Health(server.status, certificate, server.metrics.registry, clock, check)
    pool = Connections(health, server.settings)
    servers = [await loop.create_server(pool, sock=each, backlog=BACKLOG) for each in sockets]
    async with every(SWEEP_SECONDS, pool.sweep):
        await until
    for each in servers:
        each.close()


@asynccontextmanager
async def every(seconds: float, *steps: Callable[[], None]) -> AsyncIterator[None]:
    """Take ``steps`` every so many seconds, whatever they raise, as long as the block runs."""

    async def repeat() -> None:
        while True:
            for step in steps:
                try:
                    step()
                except Exception:  # noqa: BLE001 - the next time may go well
                    _log.exception("upkeep failed")
            await asyncio.sleep(seconds)

    task = asyncio.create_task(repeat())
    try:
        yield
    finally:
        task.cancel()


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
