"""Which proxy the environment names, read as all programs of a cluster that are written in Go do.

The rules are those of golang.org/x/net/http/httpproxy. Distributions set the variables for all
pods, with the ranges of Services and pods in ``NO_PROXY``, which Python's functions can't read.
"""

from collections.abc import Mapping
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final
from urllib.parse import urlsplit

Address = IPv4Address | IPv6Address

_PORTS: Final = {"http": "80", "https": "443"}
"""Where a URL names none."""


def environment_proxy(url: str, environment: Mapping[str, str]) -> str | None:
    """The URL of the proxy for requests to ``url``; None if there is none, or it may not be used.

    ``HTTPS_PROXY`` or ``HTTP_PROXY``, by the scheme of ``url``, and ``NO_PROXY``; capital letters
    go before small ones.
    """
    parts = urlsplit(url)
    proxy = _value(environment, f"{parts.scheme}_proxy")
    if not proxy or _is_bypassed(
        (parts.hostname or "").lower(),
        str(parts.port or _PORTS.get(parts.scheme, "")),
        _value(environment, "no_proxy"),
    ):
        return None
    return proxy if "://" in proxy else f"http://{proxy}"


def _value(environment: Mapping[str, str], name: str) -> str:
    return environment.get(name.upper()) or environment.get(name) or ""


def _is_bypassed(host: str, port: str, exceptions: str) -> bool:
    address = _address(host)
    if host == "localhost" or (address and address.is_loopback):
        return True
    entries = (entry.strip().lower() for entry in exceptions.split(","))
    return any(_fits(entry, host, address, port) for entry in entries if entry)


def _fits(entry: str, host: str, address: Address | None, port: str) -> bool:
    """Whether ``entry`` of ``NO_PROXY`` means ``host``, which is ``address`` if it is one."""
    if entry == "*":
        return True
    if (network := _network(entry)) is not None:
        return address is not None and address in network
    name, wanted_port = _split(entry)
    if not name or wanted_port not in ("", port):
        return False
    if address is not None:
        return address == _address(name)
    name = name[1:] if name.startswith("*.") else name
    return host.endswith(name) if name[0] == "." else f".{host}".endswith(f".{name}")


def _split(entry: str) -> tuple[str, str]:
    """Host and port, ``""`` if it names none. An IPv6 address has its port behind brackets."""
    if entry.startswith("["):
        host, colon, port = entry[1:].partition("]:")
    elif entry.count(":") == 1:
        host, colon, port = entry.partition(":")
    else:
        return entry, ""
    return (host, port) if colon else (entry, "")


def _address(text: str) -> Address | None:
    try:
        address = ip_address(text)
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return mapped or address


def _network(text: str) -> IPv4Network | IPv6Network | None:
    _, slash, bits = text.partition("/")
    if not slash or not bits.isdecimal():
        return None
    try:
        return ip_network(text, strict=False)
    except ValueError:
        return None
