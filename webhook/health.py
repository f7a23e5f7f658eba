"""Whether the server should get requests; the kubelet asks.

What a process knows of itself is not what clients meet: a full queue, or a context that hands out
another leaf, shows only to who connects. So readiness depends on a handshake with the own port,
made when somebody asks, and believed for a moment.
"""

import asyncio
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from math import inf
from time import monotonic
from typing import Final

from rules.times import format_time
from webhook.settings import REFRESH_SECONDS
from webhook.tls import ServingCertificate

HANDSHAKE_SECONDS: Final = 3.0
"""For one handshake, which takes milliseconds; our own choice. An API server would wait 10 s for
the handshake, but for the whole call no longer than ``timeoutSeconds``, 5 s by default."""

_ANY: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - read, not bound
"""Address to listen on → address by which the machine itself gets there."""


@dataclass(slots=True)
class Status:
    """How far the server is."""

    is_serving: bool = False
    """Whether it takes connections."""
    knows_time: bool = False
    """Whether the time to judge by is known."""
    is_draining: bool = False
    """Whether it has been told to end."""


class SelfCheck:
    """Handshakes with ``address``, one at a time."""

    def __init__(self, certificate: ServingCertificate, address: tuple[str, int]) -> None:
        host, port = address
        self._certificate = certificate
        self._address = _ANY.get(host, host), port
        self._trouble: list[str] = []
        self._looked = -inf
        self._looking = asyncio.Lock()

    async def look(self) -> list[str]:
        """Why the port is not as it should be, by a handshake of just now; empty if it is."""
        async with self._looking:  # who waits here takes what the one before has found
            if monotonic() - self._looked >= REFRESH_SECONDS:
                self._trouble = await self._handshake()
                self._looked = monotonic()
        return self._trouble

    async def _handshake(self) -> list[str]:
        # A new pair may arrive meanwhile: the old one is as good then.
        meant = {self._certificate.content}
        try:
            leaf = await _shown(*self._address)
        except (OSError, TimeoutError) as error:
            reason = str(error) or f"nothing in {HANDSHAKE_SECONDS:.0f} s"
            return [f"the own port does not answer a TLS handshake: {reason}"]
        if leaf not in meant | {self._certificate.content}:
            return ["the own port shows another certificate than the one that was loaded"]
        return []


async def _shown(host: str, port: int) -> bytes:
    """The certificate, in DER, that a new connection gets. Raises OSError or TimeoutError."""
    # It is compared, not verified: whom clients trust is not known here.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    async with asyncio.timeout(HANDSHAKE_SECONDS):
        _, writer = await asyncio.open_connection(host, port, ssl=context)
    shown: bytes = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.transport.abort()
    return shown


@dataclass(frozen=True, slots=True)
class Health:
    """What /readyz answers by."""

    status: Status
    certificate: ServingCertificate
    clock: Callable[[], datetime]
    """The machine's, by which clients judge ``certificate``."""
    check: SelfCheck

    async def not_ready(self) -> list[str]:
        """Why not, by a handshake where nothing else speaks against it; empty if it should."""
        return self._obstacles() or await self.check.look()

    def _obstacles(self) -> list[str]:
        if self.status.is_draining:
            return ["shutting down"]
        if not self.status.is_serving:
            return ["has not started"]
        certificate, now = self.certificate, self.clock()
        if now < certificate.not_before:
            return [f"the certificate is not valid before {format_time(certificate.not_before)}"]
        if now >= certificate.not_after:
            return [f"the certificate has expired at {format_time(certificate.not_after)}"]
        if not self.status.knows_time:
            return ["does not know the API server's time yet"]
        return []
