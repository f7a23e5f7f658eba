"""Sockets to listen on: several addresses, one port."""

import errno
import socket
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Final

from webhook.settings import BACKLOG

_UNAVAILABLE: Final = (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL)
_ANY_IPV6: Final = "::"


class AddressError(OSError):
    """An address can't be listened on."""

    def __init__(self, host: str, port: int, error: OSError) -> None:
        super().__init__(error.errno, f"{host} port {port}: {error.strerror or error}")
        self.port = port
        self.in_use = error.errno == errno.EADDRINUSE


def listen(hosts: Sequence[str], port: int) -> list[socket.socket]:
    """Listen on ``port`` of every one of ``hosts``.

    Connections queue from now on. Port 0 takes a free one, the same for all. A machine without IPv6
    has no "::"; that is no error while there is another host. Raises AddressError.
    """
    with ExitStack() as stack:
        sockets = _bind_all(hosts, port, stack)
        for each in sockets:
            each.listen(BACKLOG)
        stack.pop_all()
    return sockets


def _bind_all(hosts: Sequence[str], port: int, stack: ExitStack) -> list[socket.socket]:
    bound: list[socket.socket] = []
    for host in hosts:
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        except socket.gaierror as error:
            raise AddressError(host, port, error) from None
        for family, *_, address in found:
            try:
                bound.append(_bind(family, (address[0], port, *address[2:]), stack))
            except AddressError as error:
                if not (host == _ANY_IPV6 and bound and error.errno in _UNAVAILABLE):
                    raise
            port = bound[-1].getsockname()[1]
    return bound


def _bind(family: int, address: tuple[object, ...], stack: ExitStack) -> socket.socket:
    """A bound socket, which ``stack`` closes."""
    try:
        created = stack.enter_context(socket.socket(family, socket.SOCK_STREAM))
        created.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            created.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        created.bind(address)
    except OSError as error:
        raise AddressError(str(address[0]), int(str(address[1])), error) from None
    return created
