"""Whether the own port answers: the handshake of an API server, made by the server itself.

What a process knows of itself is not what clients meet: a full queue, or a context that hands out
another leaf, shows only to who connects. So readiness depends on a real connection, made when
somebody asks, and believed for a moment.
"""

import asyncio
import ssl
from math import inf
from time import monotonic
from typing import Final

from webhook.settings import REFRESH_SECONDS
from webhook.tls import ServingCertificate

HANDSHAKE_SECONDS: Final = 3.0
"""For one handshake, which takes milliseconds; our own choice. An API server would wait 10 s for
the handshake, but for the whole call no longer than ``timeoutSeconds``, 5 s by default."""

_ANY: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - read, not bound
"""Address to listen on → address by which the machine itself gets there."""


class SelfCheck:
    """Handshakes with ``address``, one at a time."""

    def __init__(self, certificate: ServingCertificate, address: tuple[str, int]) -> None:
        host, port = address
        self._certificate = certificate
        self._address = _ANY.get(host, host), port
        self._trouble: list[str] = []
        self._looked = -inf
        self._running: asyncio.Task[None] | None = None

    def known(self) -> list[str] | None:
        """Why the port is not as it should be, if it was looked at just now; empty if it is."""
        return self._trouble if monotonic() - self._looked < REFRESH_SECONDS else None

    async def look(self) -> list[str]:
        """Why the port is not as it should be; empty if it is."""
        known = self.known()
        if known is not None:
            return known
        if self._running is None:
            self._running = asyncio.create_task(self._look())
        await asyncio.shield(self._running)  # others may be waiting for it
        return self._trouble

    async def _look(self) -> None:
        # A new pair may arrive meanwhile: the old one is as good then.
        meant = {self._certificate.content}
        try:
            leaf = await _shown(*self._address)
        except (OSError, TimeoutError) as error:
            reason = str(error) or f"nothing in {HANDSHAKE_SECONDS:.0f} s"
            self._trouble = [f"the own port does not answer a TLS handshake: {reason}"]
        else:
            strange = leaf not in meant | {self._certificate.content}
            self._trouble = (
                ["the own port shows another certificate than the one that was loaded"]
                if strange
                else []
            )
        finally:
            self._looked = monotonic()
            self._running = None


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
