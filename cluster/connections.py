"""Connections to the API server: whom they trust, and how they notice that nobody is there."""

import socket
import ssl
from typing import Final, NamedTuple

import aiohttp

_MOST: Final = 100
"""Connections at a time. Our own choice: one for each watch, and one for each worker."""
_IDLE_SECONDS: Final = 20
_PROBE_SECONDS: Final = 10
_PROBES: Final = 2
_DEAD_SECONDS: Final = _IDLE_SECONDS + _PROBES * _PROBE_SECONDS
"""After which a connection is dead whose peer does not even acknowledge. Our own choice: client-go
knows it after 45 s by HTTP/2, which has pings of its own."""
_TCP_OPTIONS: Final = {
    "TCP_KEEPIDLE": _IDLE_SECONDS,
    "TCP_KEEPINTVL": _PROBE_SECONDS,
    "TCP_KEEPCNT": _PROBES,
    # The same for what is on its way; Linux would try for a quarter of an hour. In milliseconds.
    "TCP_USER_TIMEOUT": _DEAD_SECONDS * 1000,
}
"""By their names in the socket module: not each system has all of them."""


class Trust(NamedTuple):
    """Whom a connection trusts, and who it says it is. Equal ones make equal connections."""

    authorities: str | None
    """CA certificates, in PEM; None means those of the system."""
    is_verified: bool = True
    """Whether the API server's certificate is looked at."""
    certificate_file: str | None = None
    """A client certificate, in PEM."""
    key_file: str | None = None
    """Its private key."""
    identity: bytes = b""
    """What is in the two files."""


def context_of(trust: Trust) -> ssl.SSLContext:
    """A TLS context that accepts what Go's programs accept, and no more. Raises SSLError.

    A context is never changed: whoever trusts others makes a new one, and connections that stand go
    on.
    """
    context = ssl.create_default_context(cadata=trust.authorities)
    # Since 3.13 Python refuses CAs that lack key identifiers, as some of EKS and RKE do. Go takes
    # them, as well as an intermediate CA whose root it doesn't know.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    if trust.certificate_file:
        context.load_cert_chain(trust.certificate_file, trust.key_file)
    if not trust.is_verified:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def make_connector() -> aiohttp.TCPConnector:
    """What opens and keeps connections; it must be closed. Needs a running event loop."""
    return aiohttp.TCPConnector(limit=_MOST, socket_factory=_make_socket)


def _make_socket(address: aiohttp.AddrInfoType) -> socket.socket:
    family, kind, protocol, _, _ = address
    made = socket.socket(family, kind, protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _TCP_OPTIONS.items():
        if (option := getattr(socket, name, None)) is not None:
            made.setsockopt(socket.IPPROTO_TCP, option, value)
    return made
