"""Whether the server should get requests."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from rules.times import format_time
from webhook.selfcheck import SelfCheck
from webhook.tls import ServingCertificate


@dataclass(slots=True)
class Status:
    """How far the server is."""

    is_serving: bool = False
    """Whether it takes connections."""
    knows_time: bool = False
    """Whether the time to judge by is known."""
    is_draining: bool = False
    """Whether it has been told to end."""


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
