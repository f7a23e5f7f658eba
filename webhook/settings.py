"""What the webhook server can be told, and the bounds it keeps: each number once, with a source."""

import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rules.mutate import MUTATIONS
from rules.mutation import Mode

MIB: Final = 1024 * 1024

HEADER_SECONDS: Final = 10.0
"""A request's header, and a TLS handshake, must be complete this long after its first byte."""
IDLE_SECONDS: Final = 120.0
"""An idle connection is kept so long. API servers keep theirs 90 s (``IdleConnTimeout`` of
client-go's transport); whoever closes first risks cutting off a request, and they never retry one.
"""
LINGER_SECONDS: Final = 2.0
"""How long a refused body is read and dropped before the connection closes. Closing over unread
data resets the connection, which can take the answer away from the client. Our own choice."""
ANSWER_MARGIN_SECONDS: Final = 0.5
"""An answer leaves this long before the caller's deadline (``?timeout=``), for the way back."""
SHUTDOWN_SECONDS: Final = 1.0
"""How long a closed TLS connection waits for the peer's goodbye. Our own choice."""
SWEEP_SECONDS: Final = 0.25
"""How often overdue connections are looked for: the precision of the spans above."""
REFRESH_SECONDS: Final = 1.0
"""How often the certificate files are looked at."""
TIME_SECONDS: Final = 30.0
"""How often the API server is asked for its time. Our own choice: steady clocks drift by some
milliseconds meanwhile, and every other answer tells it as well."""
TIME_AGAIN_SECONDS: Final = 1.0
"""The same as long as it is not known: until then the server is not ready. Our own choice."""
MAX_BUFFERED: Final = 64 * MIB
"""Bytes of unfinished bodies that are held. Parsing needs several times the size of one body; with
this bound the process stays within a container's 256 MiB."""
MAX_PARSED: Final = 8 * MIB
"""Bytes that the bodies had of the requests that wait for the cluster. They are held as objects,
which take three to ten times as much; one more body may come on top."""
MAX_HEADERS: Final = 4 * MIB
"""Bytes of unfinished headers that are held. Those of API servers have less than 1 KiB and come
whole, so that this much is none of theirs. Our own choice."""
MAX_FIELDS: Final = 64
"""Header fields of one request; API servers send some ten, and proxies add to them. Together with
aiohttp's 8190 bytes for a field it bounds a header. Our own choice."""
MAX_AHEAD: Final = 16 * 1024
"""Bytes that may come after a request without being counted as the beginning of the next. Nobody
is asked for exactness below that; API servers send nothing ahead. Our own choice."""
READ_SIZE: Final = 64 * 1024
"""Bytes of a body that aiohttp buffers before it is read; it takes a sixteenth of that as a bound
for the number of chunks, each of which takes some hundred bytes. Our own choice."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How to serve. Spans are in seconds, sizes in bytes.

    Without slots, so that the command line can read the defaults off the class.
    """

    certificate: Path
    """PEM file: the serving certificate, then its intermediates."""
    key: Path
    """PEM file: the certificate's key, not encrypted."""
    client_ca: Path | None = None
    """PEM file: clients must show a certificate that one of these has signed."""
    tls_minimum: ssl.TLSVersion = ssl.TLSVersion.TLSv1_2
    bind: tuple[str, ...] = ("0.0.0.0", "::")  # noqa: S104 - a webhook is called from outside
    """Addresses to serve on; the default is every address of both families."""
    port: int = 9443
    """controller-runtime's choice, which operators expect. 0 takes a free one."""
    health_bind: tuple[str, ...] = ("0.0.0.0", "::")  # noqa: S104 - the kubelet calls from outside
    health_port: int = 8080
    timeout: float = 10.0
    """The longest wait for a body, also where the caller names a later deadline or none. API
    servers wait 10 s by default and 30 s at most (``timeoutSeconds``)."""
    max_body: int = 7 * MIB
    """Two objects of 1.5 MiB (etcd's limit) with their managedFields, in JSON."""
    concurrency: int = 512
    """How many requests may wait for their bodies, and as many for the cluster. An API server has
    600 requests in flight by default, and sends each body at once."""
    drain: float = 10.0
    """After SIGTERM, how long to serve on until every Service has stopped sending new calls."""
    mode: Mode = Mode.AUTO
    """Where the cluster has the API from. ``AUTO`` asks it, where a mutation depends on that."""
    mutations: frozenset[str] = frozenset(MUTATIONS)
    """The ids of the mutations that may act."""
