"""What every program answers to the kubelet and to Prometheus."""

from collections.abc import Awaitable, Callable

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient
from prometheus_client import CollectorRegistry, Counter

from cluster.health import Reasons, application

Client = TestClient[web.Request, web.Application]
Serve = Callable[[web.Application], Awaitable[Client]]


async def late() -> list[str]:
    """Reasons that take a while to find."""
    return ["no handshake"]


@pytest.mark.parametrize(
    ("path", "reasons", "status", "text"),
    [
        ("/livez", list, 200, "ok\n"),
        ("/livez", lambda: ["hangs"], 503, "hangs\n"),
        ("/readyz", list, 200, "ok\n"),
        ("/readyz", lambda: ["one", "two"], 503, "one\ntwo\n"),
        ("/readyz", late, 503, "no handshake\n"),
    ],
)
async def test_reasons_are_told(
    aiohttp_client: Serve, path: str, reasons: Reasons, status: int, text: str
) -> None:
    client = await aiohttp_client(
        application(not_live=reasons, not_ready=reasons, registry=CollectorRegistry())
    )
    answer = await client.get(path)
    assert (answer.status, await answer.text()) == (status, text)


@pytest.mark.parametrize(
    ("accept", "content_type"),
    [
        ("", "text/plain"),
        ("text/plain;version=.", "text/plain"),
        ("application/openmetrics-text;version=x", "application/openmetrics-text"),
    ],
)
async def test_metrics_are_told(aiohttp_client: Serve, accept: str, content_type: str) -> None:
    registry = CollectorRegistry()
    Counter("evictions", "Evictions.", registry=registry).inc()
    client = await aiohttp_client(application(not_live=list, not_ready=list, registry=registry))
    answer = await client.get("/metrics", headers={"Accept": accept})
    assert answer.content_type == content_type
    assert "evictions_total 1.0" in await answer.text()
