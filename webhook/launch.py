"""Starts the server: in this process alone, or with several workers below it."""

import gc
import os
import resource
import signal
import socket
from collections.abc import Callable, Coroutine, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any, Final, TypeAlias

import structlog
import uvloop

from rules.evaluate import Policy
from webhook.app import Server, Shutdown, every, serve_health
from webhook.facts import Connect
from webhook.listening import listen
from webhook.metrics import Board
from webhook.settings import LINGER_SECONDS, REFRESH_SECONDS, Settings
from webhook.supervisor import Child, Supervisor
from webhook.tls import ServingCertificate

Sockets: TypeAlias = Sequence[socket.socket]

_log = structlog.get_logger()

_GRACE_SECONDS: Final = 5.0
"""What ending may take beyond all that a worker waits for. Our own choice."""


def launch(
    settings: Settings,
    policy: Policy,
    connect: Connect,
    bound: Callable[[int], None] = lambda _: None,
) -> None:
    """Serve until SIGTERM or SIGINT.

    ``connect`` opens the cluster that guards ask, in each process that judges. ``bound`` is called
    with the port before anything is served. Raises CertificateError and
    AddressError where that is impossible.
    """
    certificate = ServingCertificate(settings)
    with ExitStack() as stack:
        copies = listen(settings.bind, settings.port, settings.workers)
        stack.callback(_close, *copies)
        health = listen(settings.health_bind, settings.health_port)[0]
        stack.callback(_close, health)
        bound(copies[0][0].getsockname()[1])
        _log.info(
            "serving",
            addresses=_addresses(copies[0]),
            health=_addresses(health),
            workers=settings.workers,
            certificate_not_after=certificate.not_after.isoformat(),
            audit_only=policy.audit_only,
        )
        _raise_file_limit()
        # What exists now is there for good: the collector need not look at it again, and forked
        # processes go on sharing its memory.
        gc.collect()
        gc.freeze()
        make = partial(Server, settings, policy, certificate, connect=connect)
        if settings.workers == 1:
            server = make(board := Board(1))
            uvloop.run(_alone(server, settings, board, copies[0], health))
        else:
            _supervise(settings, make, copies, health)
    _log.info("ended")


def _supervise(
    settings: Settings,
    make: Callable[[Board, int], Server],
    copies: Sequence[Sockets],
    health: Sockets,
) -> None:
    board = Board(settings.workers)
    children = [
        Child(
            f"worker {worker}",
            partial(_work, make, board, worker, copies, health),
            down=board.row(worker).stop,
        )
        for worker in range(settings.workers)
    ]
    watch = partial(_watch, settings, board, copies, health)
    children.append(Child("health", watch, last=True))
    patience = settings.drain + settings.timeout + LINGER_SECONDS + _GRACE_SECONDS
    Supervisor(children, patience, stopping=board.drain).run()


async def _alone(
    server: Server, settings: Settings, board: Board, sockets: Sockets, health: Sockets
) -> None:
    shutdown = Shutdown()
    shutdown.on_signals(signal.SIGTERM, signal.SIGINT)
    served = _address(sockets)
    await serve_health(settings, board, health, served, server.serve(sockets, shutdown))


def _work(
    make: Callable[[Board, int], Server],
    board: Board,
    worker: int,
    copies: Sequence[Sockets],
    health: Sockets,
) -> None:
    structlog.contextvars.bind_contextvars(worker=worker)
    _close(health, *(each for number, each in enumerate(copies) if number != worker))
    server = make(board, worker)
    _run_below(lambda shutdown: server.serve(copies[worker], shutdown))


def _watch(settings: Settings, board: Board, copies: Sequence[Sockets], health: Sockets) -> None:
    served = _address(copies[0])
    _close(*copies)
    _run_below(
        lambda shutdown: serve_health(settings, board, health, served, shutdown.begun.wait())
    )


def _run_below(serve: Callable[[Shutdown], Coroutine[Any, Any, None]]) -> None:
    """Run ``serve`` until SIGTERM, or until the parent is gone without having said so."""
    parent = os.getppid()

    async def run() -> None:
        shutdown = Shutdown()
        shutdown.on_signals(signal.SIGTERM)

        def follow() -> None:
            if os.getppid() != parent:
                shutdown.begun.set()

        async with every(REFRESH_SECONDS, follow):
            await serve(shutdown)

    uvloop.run(run())


def _close(*sets: Sockets) -> None:
    for sockets in sets:
        for each in sockets:
            each.close()


def _address(sockets: Sockets) -> tuple[str, int]:
    """Where the first one listens."""
    host, port = sockets[0].getsockname()[:2]
    return host, port


def _addresses(sockets: Sockets) -> list[str]:
    names = (each.getsockname()[:2] for each in sockets)
    return [f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in names]


def _raise_file_limit() -> None:
    """Every connection is an open file; the limit that processes start with is often 1024."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
