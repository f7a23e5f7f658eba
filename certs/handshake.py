"""What a server really shows, and whether a client would accept it."""

import asyncio
import ssl
from dataclasses import dataclass
from typing import Final, NamedTuple

from cryptography import x509

_PATIENCE_SECONDS: Final = 5.0
"""For one handshake; our own choice. Whoever takes longer would fail API servers' calls as well."""


class Address(NamedTuple):
    """Where a server listens."""

    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    @classmethod
    def parse(cls, text: str) -> "Address":
        """The address ``host:port`` or ``[host]:port``. Raises ValueError."""
        host, colon, port = text.rpartition(":")
        host = host[1:-1] if host.startswith("[") and host.endswith("]") else host
        if not (colon and host and port.isdecimal() and 0 < int(port) < 2**16):
            raise ValueError("must be HOST:PORT, such as localhost:9443 or [::1]:9443")
        return cls(host, int(port))


@dataclass(frozen=True, slots=True)
class Shown:
    """The outcome of a handshake."""

    leaf: x509.Certificate
    problem: str = ""
    """Why a client would not accept it; "" if it would, or was not asked."""


async def look(address: Address, trusted: bytes = b"", name: str = "") -> Shown:
    """The certificate that ``address`` shows.

    With ``trusted``, CAs in PEM, a second handshake tells whether a client that trusts these and
    calls the server ``name`` (default: the address's host) accepts it. Raises OSError.
    """
    # The first one is to see the certificate whatever it is; nothing is sent over it.
    careless = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    careless.check_hostname, careless.verify_mode = False, ssl.CERT_NONE
    leaf = await _handshake(address, careless, name or address.host)
    if not trusted:
        return Shown(leaf)
    careful = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    careful.verify_flags |= ssl.VERIFY_X509_STRICT
    try:
        careful.load_verify_locations(cadata=trusted.decode("ascii", errors="replace"))
        leaf = await _handshake(address, careful, name or address.host)
    except ssl.SSLCertVerificationError as error:
        return Shown(leaf, error.verify_message)
    except ssl.SSLError:
        return Shown(leaf, "the CAs to trust must be certificates in PEM")
    return Shown(leaf)


async def _handshake(address: Address, context: ssl.SSLContext, name: str) -> x509.Certificate:
    async with asyncio.timeout(_PATIENCE_SECONDS):
        _, writer = await asyncio.open_connection(
            address.host, address.port, ssl=context, server_hostname=name
        )
    try:
        shown = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        return x509.load_der_x509_certificate(shown)
    finally:
        writer.transport.abort()
