"""Sockets to listen on: several addresses, one port."""

import errno
import os
import socket
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any, Final

BACKLOG: Final = 1024
"""Connections that may wait to be accepted."""
_UNAVAILABLE: Final = (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL)
_ANY_IPV6: Final = "::"


class AddressError(OSError):
    """An address can't be listened on."""

    def __init__(self, host: str, port: int, error: OSError) -> None:
        is_named = isinstance(error, socket.gaierror) or error.errno is None
        reason = error.strerror if is_named else os.strerror(error.errno or 0)
        super().__init__(error.errno, f"{host} port {port}: {reason}")
        self.port = port
        self.in_use = error.errno == errno.EADDRINUSE


def listen(hosts: Sequence[str], port: int) -> list[socket.socket]:
    """Listen on ``port`` of every one of ``hosts``.

    Connections queue from now on. Port 0 takes a free one, the same for all. A machine without IPv6
    has no "::"; that is no error while there is another host. Raises AddressError.
    """
    sockets: list[socket.socket] = []
    with ExitStack() as stack:
        for host in hosts:
            try:
                for family, address in _addresses(host, port):
                    created = socket.create_server(address, family=family, backlog=BACKLOG)
                    sockets.append(stack.enter_context(created))
                    port = created.getsockname()[1]
            except OSError as error:
                if not (host == _ANY_IPV6 and sockets and error.errno in _UNAVAILABLE):
                    raise AddressError(host, port, error) from None
        stack.pop_all()
    return sockets


def _addresses(host: str, port: int) -> list[tuple[int, Any]]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    return [(family, (address[0], port, *address[2:])) for family, *_, address in found]
