"""What the kubelet and Prometheus ask, over plain HTTP on a port of its own."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from http import HTTPStatus
from typing import Final

from aiohttp import hdrs, web
from prometheus_client import CollectorRegistry
from prometheus_client import exposition as plain
from prometheus_client.openmetrics import exposition as openmetrics

from rules.times import format_time
from webhook.selfcheck import SelfCheck
from webhook.tls import ServingCertificate

_OPENMETRICS: Final = "application/openmetrics-text"


@dataclass(slots=True)
class Status:
    """How far the server is."""

    is_serving: bool = False
    """Whether it takes connections."""
    knows_time: bool = False
    """Whether the time to judge by is known."""
    is_draining: bool = False
    """Whether it has been told to end."""


class Health:
    """Answers /livez, /readyz and /metrics."""

    def __init__(
        self,
        status: Status,
        certificate: ServingCertificate,
        registry: CollectorRegistry,
        clock: Callable[[], datetime],
        check: SelfCheck,
    ) -> None:
        """``clock`` is the machine's, by which clients judge ``certificate``."""
        self._status = status
        self._certificate = certificate
        self._registry = registry
        self._clock = clock
        self._check = check

    def application(self) -> web.Application:
        """What is served."""
        app = web.Application()
        app.router.add_get("/livez", self._livez)
        app.router.add_get("/readyz", self._readyz)
        app.router.add_get("/metrics", self._metrics)
        return app

    async def _livez(self, _: web.Request) -> web.Response:
        return _report([])  # who hangs does not answer

    async def _readyz(self, _: web.Request) -> web.Response:
        """Say whether requests are welcome, by a handshake where nothing else speaks against it."""
        return _report(self.not_ready() or await self._check.look())

    def not_ready(self) -> list[str]:
        """Why the server should get no requests, as far as it knows itself."""
        if self._status.is_draining:
            return ["shutting down"]
        if not self._status.is_serving:
            return ["has not started"]
        certificate, now = self._certificate, self._clock()
        if now < certificate.not_before:
            return [f"the certificate is not valid before {format_time(certificate.not_before)}"]
        if now >= certificate.not_after:
            return [f"the certificate has expired at {format_time(certificate.not_after)}"]
        if not self._status.knows_time:
            return ["does not know the API server's time yet"]
        return []

    async def _metrics(self, request: web.Request) -> web.Response:
        # Not prometheus_client's own choice: it fails on versions that are no numbers.
        if _OPENMETRICS in request.headers.get(hdrs.ACCEPT, ""):
            body = openmetrics.generate_latest(self._registry)  # type: ignore[no-untyped-call]
            kind = openmetrics.CONTENT_TYPE_LATEST
        else:
            body = plain.generate_latest(self._registry)
            kind = plain.CONTENT_TYPE_PLAIN_0_0_4
        return web.Response(body=body, headers={hdrs.CONTENT_TYPE: kind})


def _report(reasons: list[str]) -> web.Response:
    if not reasons:
        return web.Response(text="ok\n")
    text = "".join(f"{reason}\n" for reason in reasons)
    return web.Response(text=text, status=HTTPStatus.SERVICE_UNAVAILABLE)
