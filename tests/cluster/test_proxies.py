"""Which proxy is used, as Go's programs do (golang.org/x/net/http/httpproxy)."""

from collections.abc import Mapping
from typing import Final

import pytest

from cluster.proxies import environment_proxy

PROXY: Final = "http://proxy.corp.example:3128"
SERVICE: Final = "https://10.96.0.1:443"
SIX: Final = "https://[fd00::1]:443"
NAMED: Final = "https://api.corp.example:6443"
ZONE: Final = "https://corp.example"


@pytest.mark.parametrize(
    ("url", "exceptions", "goes_straight"),
    [
        (SERVICE, "", False),
        # Ranges.
        (SERVICE, "10.0.0.0/8,.svc,.cluster.local,localhost", True),
        (SERVICE, "10.96.0.0/12", True),
        (SERVICE, "10.96.0.1/12", True),  # bits of the host are no matter
        (SERVICE, "192.168.0.0/16", False),
        (SERVICE, "10.0.0.0/255.0.0.0", False),
        (SERVICE, "10.0.0.0/33", False),
        (SERVICE, "fd00::/8", False),
        (SERVICE, "::ffff:10.96.0.1", True),
        (SIX, "fd00::/8", True),
        (SIX, "10.0.0.0/8", False),
        (NAMED, "10.0.0.0/8", False),  # names are not looked up
        # Addresses.
        (SERVICE, "10.96.0.1", True),
        (SERVICE, "10.96.0.1:443", True),
        (SERVICE, "10.96.0.1:6443", False),
        (SERVICE, "10.96.0", False),
        (SERVICE, "0.1", False),
        (SIX, "fd00::1", True),
        (SIX, "FD00:0::1", True),
        (SIX, "[fd00::1]", False),  # brackets are for ports
        (SIX, "[fd00::1]:443", True),
        (SIX, "[fd00::1]:6443", False),
        # Names.
        (NAMED, ".corp.example", True),
        (NAMED, "corp.example", True),
        (NAMED, "*.corp.example", True),
        (NAMED, "*.corp.example:6443", True),
        (NAMED, "Corp.Example", True),
        ("https://API.Corp.example:6443", "corp.example", True),
        (NAMED, "orp.example", False),
        (NAMED, "*corp.example", False),
        (NAMED, "api.corp.example:6443", True),
        (NAMED, "api.corp.example:443", False),
        (ZONE, "corp.example", True),
        (ZONE, "corp.example:443", True),
        (ZONE, ".corp.example", False),  # what is in it, not itself
        (ZONE, "*.corp.example", False),
        # Everything, and nothing.
        (NAMED, "*", True),
        (NAMED, "a.b, *", True),
        (NAMED, " , ,:6443,", False),
        (NAMED, " other.example , .corp.example ", True),
        # The machine itself is never asked by a proxy.
        ("https://localhost:6443", "", True),
        ("https://127.0.0.1:6443", "", True),
        ("https://127.8.8.8:6443", "", True),
        ("https://[::1]:6443", "", True),
        ("https://localhost.corp.example", "", False),
    ],
)
def test_what_goes_straight(url: str, exceptions: str, *, goes_straight: bool) -> None:
    environment = {"HTTPS_PROXY": PROXY, "NO_PROXY": exceptions}
    assert environment_proxy(url, environment) == (None if goes_straight else PROXY)


@pytest.mark.parametrize(
    ("url", "environment", "proxy"),
    [
        (SERVICE, {}, None),
        (SERVICE, {"https_proxy": PROXY}, PROXY),
        (SERVICE, {"https_proxy": PROXY, "no_proxy": "10.0.0.0/8"}, None),
        (SERVICE, {"HTTPS_PROXY": PROXY, "https_proxy": "http://other"}, PROXY),
        (SERVICE, {"HTTPS_PROXY": "", "https_proxy": PROXY}, PROXY),
        (SERVICE, {"HTTPS_PROXY": PROXY, "NO_PROXY": "a.b", "no_proxy": "*"}, PROXY),
        (SERVICE, {"HTTP_PROXY": PROXY, "ALL_PROXY": PROXY}, None),
        ("http://10.96.0.1", {"HTTP_PROXY": PROXY}, PROXY),
        ("http://10.96.0.1", {"HTTP_PROXY": PROXY, "NO_PROXY": "10.96.0.1:80"}, None),
        (SERVICE, {"HTTPS_PROXY": "proxy.corp.example:3128"}, PROXY),
    ],
)
def test_which_proxy_it_is(url: str, environment: Mapping[str, str], proxy: str | None) -> None:
    assert environment_proxy(url, environment) == proxy
