"""Whom connections to an API server trust, and when they are dead."""

import asyncio
import functools
import os
import shutil
import socket
import ssl
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import aiohttp
import pytest
from aiohttp import web

from cluster.connections import Trust, context_of, make_connector
from tests.cluster.authority import HOST, Signed, server_context, serving
from tests.controlplane.availability import skip_or_fail
from tests.patience import PATIENCE

Chain = tuple[Signed, ...]


def ordinary() -> tuple[Chain, bytes]:
    root = Signed.make("kubernetes", is_authority=True)
    return (Signed.make("kube-apiserver", root),), root.pem


def without_identifiers() -> tuple[Chain, bytes]:
    root = Signed.make("kubernetes", is_authority=True, has_identifiers=False)
    return (Signed.make("kube-apiserver", root, has_identifiers=False),), root.pem


def without_identifier_of_the_issuer() -> tuple[Chain, bytes]:
    root = Signed.make("kubernetes", is_authority=True)
    return (Signed.make("kube-apiserver", root, has_identifiers=False),), root.pem


def without_usage() -> tuple[Chain, bytes]:
    root = Signed.make("kubernetes", is_authority=True, names_usage=False)
    return (Signed.make("kube-apiserver", root),), root.pem


def not_critical() -> tuple[Chain, bytes]:
    root = Signed.make("kubernetes", is_authority=True, is_critical=False)
    return (Signed.make("kube-apiserver", root),), root.pem


def known_by_an_intermediate() -> tuple[Chain, bytes]:
    root = Signed.make("root", is_authority=True)
    between = Signed.make("kubernetes", root, is_authority=True)
    return (Signed.make("kube-apiserver", between), between), between.pem


def known_by_itself() -> tuple[Chain, bytes]:
    alone = Signed.make("kube-apiserver")
    return (alone,), alone.pem


def beside_others_and_comments() -> tuple[Chain, bytes]:
    chain, authority = ordinary()
    _, other = ordinary()
    return chain, "# Prüfstelle\n".encode() + other + b"# and\n" + authority


@pytest.fixture
def strict(monkeypatch: pytest.MonkeyPatch) -> None:
    """What Python 3.13 sets, on any Python."""
    make = ssl.create_default_context

    @functools.wraps(make)
    def make_strict(*arguments: Any, **more: Any) -> ssl.SSLContext:
        context = make(*arguments, **more)
        context.verify_flags |= ssl.VERIFY_X509_STRICT
        return context

    monkeypatch.setattr(ssl, "create_default_context", make_strict)


@pytest.mark.parametrize(
    "make",
    [
        ordinary,
        without_identifiers,
        without_identifier_of_the_issuer,
        without_usage,
        not_critical,
        known_by_an_intermediate,
        known_by_itself,
        beside_others_and_comments,
    ],
    ids=lambda make: make.__name__,
)
async def test_authorities_that_go_accepts(
    strict: None, tmp_path: Path, make: Callable[[], tuple[Chain, bytes]]
) -> None:
    chain, authorities = make()
    trust = Trust(authorities.decode("ascii", "ignore"))
    assert await asked(tmp_path, chain, trust) == "ok"


async def test_strict_python_would_refuse(strict: None, tmp_path: Path) -> None:
    chain, authorities = without_identifiers()
    context = ssl.create_default_context(cadata=authorities.decode())
    with pytest.raises(aiohttp.ClientConnectorCertificateError, match="Key Identifier"):
        await asked(tmp_path, chain, context)


def of_another_cluster() -> tuple[Chain, bytes]:
    (chain, _), (_, authorities) = ordinary(), ordinary()
    return chain, authorities


def for_another_host() -> tuple[Chain, bytes]:
    root = Signed.make("kubernetes", is_authority=True)
    return (Signed.make("kube-apiserver", root, host="127.0.0.2"),), root.pem


def by_no_authority() -> tuple[Chain, bytes]:
    root = Signed.make("kubernetes", is_authority=True)
    leaf = Signed.make("somebody", root)
    return (Signed.make("kube-apiserver", leaf), leaf), root.pem


@pytest.mark.parametrize(
    "make", [of_another_cluster, for_another_host, by_no_authority], ids=lambda make: make.__name__
)
async def test_certificates_that_nobody_accepts(
    tmp_path: Path, make: Callable[[], tuple[Chain, bytes]]
) -> None:
    chain, authorities = make()
    with pytest.raises(aiohttp.ClientConnectorCertificateError):
        await asked(tmp_path, chain, Trust(authorities.decode()))
    assert await asked(tmp_path, chain, Trust(authorities.decode(), is_verified=False)) == "ok"


async def asked(folder: Path, chain: Chain, trust: Trust | ssl.SSLContext) -> str:
    """What a server says that shows ``chain``."""
    application = web.Application()

    async def answer(_: web.Request) -> web.Response:
        return web.Response(text="ok")

    application.router.add_get("/", answer)
    context = context_of(trust) if isinstance(trust, Trust) else trust
    async with (
        serving(application, server_context(folder, *chain)) as port,
        aiohttp.ClientSession(connector=make_connector()) as session,
        session.get(f"https://{HOST}:{port}", ssl=context) as response,
    ):
        return await response.text()


# --- dead connections ---------------------------------------------------------------------------


TCP_OPTIONS: Final = ("TCP_KEEPIDLE", "TCP_KEEPINTVL", "TCP_KEEPCNT", "TCP_USER_TIMEOUT")


async def test_a_live_connection_is_probed(tmp_path: Path) -> None:
    chain, authorities = ordinary()

    async def begin(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await asyncio.get_running_loop().create_future()
        return response

    application = web.Application()
    application.router.add_get("/", begin)
    async with (
        serving(application, server_context(tmp_path, *chain)) as port,
        aiohttp.ClientSession(connector=make_connector()) as session,
        session.get(
            f"https://{HOST}:{port}", ssl=context_of(Trust(authorities.decode()))
        ) as response,
    ):
        assert response.connection is not None
        assert response.connection.transport is not None
        live = response.connection.transport.get_extra_info("socket")
        assert live.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        idle, interval, count, patience = (
            live.getsockopt(socket.IPPROTO_TCP, getattr(socket, name)) for name in TCP_OPTIONS
        )
    # Dead in under a minute, whether something is on its way or not.
    assert idle + interval * count < 60
    assert patience == 1000 * (idle + interval * count)


@pytest.mark.slow
def test_an_api_server_that_vanishes_is_noticed() -> None:
    if os.geteuid() != 0 or shutil.which("unshare") is None or shutil.which("ip") is None:
        skip_or_fail("a network of its own needs root, unshare and ip")
    command = ["unshare", "--net", sys.executable, "-m", "tests.cluster.blackhole"]
    run = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=True)
    assert run.stdout.startswith("Unreachable: ")
