"""What the kubelet and Prometheus ask, over plain HTTP on a port of its own."""

from collections.abc import Callable
from datetime import datetime
from http import HTTPMethod, HTTPStatus
from typing import Final

from aiohttp import hdrs
from aiohttp.http import RawRequestMessage
from prometheus_client import CollectorRegistry
from prometheus_client import exposition as plain
from prometheus_client.openmetrics import exposition as openmetrics

from rules.times import format_time
from webhook.connection import TEXT, Reply
from webhook.selfcheck import SelfCheck
from webhook.settings import HEADER_SECONDS
from webhook.status import Status
from webhook.tls import ServingCertificate

_OPENMETRICS: Final = "application/openmetrics-text"


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
        self._paths: dict[str, Callable[[RawRequestMessage], Reply | None]] = {
            "/livez": lambda _: _report([]),  # who hangs does not answer
            "/readyz": lambda _: self._readiness(),
            "/metrics": self._metrics,
        }

    def begin(self, head: RawRequestMessage) -> Reply | float:
        """Answer, unless that takes a handshake; no request here needs a body."""
        answer = self._paths.get(head.path.partition("?")[0])
        if answer is None:
            return self.refuse(HTTPStatus.NOT_FOUND, f"only {', '.join(self._paths)} are served")
        if head.method not in (HTTPMethod.GET, HTTPMethod.HEAD):
            reply = self.refuse(HTTPStatus.METHOD_NOT_ALLOWED, "must be GET")
            return reply._replace(allow=b"GET, HEAD")
        return answer(head) or HEADER_SECONDS

    async def answer(self, head: RawRequestMessage, body: bytes, began: float) -> Reply:  # noqa: ARG002
        """Say whether requests are welcome: nothing else is left to be answered here."""
        found = await self._check.look()
        return _report([*self.not_ready(), *found])

    def refuse(self, status: int, detail: str) -> Reply:
        """The answer to anything else."""
        return Reply(status, f"{detail}\n".encode(), TEXT)

    def overloaded(self) -> Reply:
        """The answer when very many wait for one handshake."""
        return self.refuse(HTTPStatus.INTERNAL_SERVER_ERROR, "busy")

    def _readiness(self) -> Reply | None:
        """Why the server should get no requests, or that it should; None: a handshake tells."""
        if reasons := self.not_ready():
            return _report(reasons)
        known = self._check.known()
        return _report(known) if known is not None else None

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

    def _metrics(self, head: RawRequestMessage) -> Reply:
        # Not prometheus_client's own choice: it fails on versions that are no numbers.
        if _OPENMETRICS in head.headers.get(hdrs.ACCEPT, ""):
            body = openmetrics.generate_latest(self._registry)  # type: ignore[no-untyped-call]
            return Reply(HTTPStatus.OK, body, openmetrics.CONTENT_TYPE_LATEST.encode())
        body = plain.generate_latest(self._registry)
        return Reply(HTTPStatus.OK, body, plain.CONTENT_TYPE_PLAIN_0_0_4.encode())


def _report(reasons: list[str]) -> Reply:
    if not reasons:
        return Reply(HTTPStatus.OK, b"ok\n", TEXT)
    text = "".join(f"{reason}\n" for reason in reasons)
    return Reply(HTTPStatus.SERVICE_UNAVAILABLE, text.encode(), TEXT)
