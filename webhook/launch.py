"""Starts the server, and ends it when it is told to."""

import asyncio
import gc
import resource
import signal
import socket
from collections.abc import Callable, Sequence
from contextlib import ExitStack

import structlog
import uvloop

from cluster.facts import Connect
from cluster.listening import listen
from rules.evaluate import Policy
from webhook.app import Server, Shutdown, serve_health
from webhook.settings import Settings
from webhook.tls import ServingCertificate

_log = structlog.get_logger()


def launch(
    settings: Settings,
    policy: Policy,
    connect: Connect,
    bound: Callable[[int], None] = lambda _: None,
) -> None:
    """Serve until SIGTERM or SIGINT.

    ``connect`` opens the cluster that guards ask. ``bound`` is called with the port before anything
    is served. Raises CertificateError and AddressError where that is impossible.
    """
    certificate = ServingCertificate(settings)
    with ExitStack() as stack:
        sockets, health = (
            [stack.enter_context(each) for each in listen(hosts, port)]
            for hosts, port in (
                (settings.bind, settings.port),
                (settings.health_bind, settings.health_port),
            )
        )
        bound(sockets[0].getsockname()[1])
        _log.info(
            "serving",
            addresses=_addresses(sockets),
            health=_addresses(health),
            certificate_not_after=certificate.not_after.isoformat(),
            audit_only=policy.audit_only,
        )
        _raise_file_limit()
        # What exists now is there for good: the collector need not look at it again.
        gc.collect()
        gc.freeze()
        server = Server(settings, policy, certificate, connect=connect)
        uvloop.run(_serve(server, sockets, health))
    _log.info("ended")


async def _serve(
    server: Server, sockets: Sequence[socket.socket], health: Sequence[socket.socket]
) -> None:
    shutdown = Shutdown()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, shutdown.tell)
    served = sockets[0].getsockname()[:2]
    await serve_health(server, health, served, server.serve(sockets, shutdown))


def _addresses(sockets: Sequence[socket.socket]) -> list[str]:
    names = (each.getsockname()[:2] for each in sockets)
    return [f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in names]


def _raise_file_limit() -> None:
    """Every connection is an open file; the limit that processes start with is often 1024."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
