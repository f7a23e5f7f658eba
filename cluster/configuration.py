"""How to reach the API server and as whom: read from files, and again when they have changed.

A kubeconfig is read by kubernetes_asyncio, which knows exec plug-ins, OpenID Connect and the rest.
The library is imported only then: its models take 35 MiB and 0.4 s of CPU. What a pod has are two
variables and two files, see "Accessing the Kubernetes API from a Pod" in Kubernetes' documentation.
"""

import asyncio
import os
import ssl
from collections.abc import Iterable, Mapping
from pathlib import Path
from time import monotonic
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

import aiohttp
import structlog
import yaml
from yaml import YAMLError

from cluster.connections import Trust, context_of
from cluster.proxies import environment_proxy

_log = structlog.get_logger()

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where a kubelet puts token and CA of a pod, and replaces them."""
_LOOK_SECONDS: Final = 60.0
"""How often files are looked at. Kubelets take about as long until a change gets into a pod."""


class ConfigurationError(Exception):
    """There is no usable kubeconfig, or the program does not run in a cluster."""


class Access(NamedTuple):
    """What requests need to get there, and to be let in."""

    server: str
    """The API server's URL, without a slash at its end."""
    authorization: str
    """The header of that name; ``""`` if a certificate says who asks."""
    context: ssl.SSLContext | None
    """For TLS; None if the URL is plain HTTP."""
    server_name: str | None
    """Whom the API server's certificate has to name, if not the host of the URL."""
    proxy: str | None
    """URL of a proxy on the way."""


class _Read(NamedTuple):
    """What was read. ``files``: path → content, None if there was none."""

    server: str
    authorization: str
    trust: Trust
    server_name: str | None
    proxy: str | None
    files: Mapping[Path, bytes | None]


class Configuration:
    """The present :class:`Access`. It looks at its files once a minute, and when it is told to."""

    def __init__(self, kubeconfig: Path | None) -> None:
        """``kubeconfig`` None means the service account of the pod around us."""
        self._kubeconfig = kubeconfig
        self._lock = asyncio.Lock()
        self._access: Access
        self._read: _Read | None = None
        self._look_at = 0.0
        self._complaint = ""

    async def load(self) -> Access:
        """Read everything anew. Raises ConfigurationError; what was known stays as it was."""
        try:
            if self._kubeconfig is None:
                read = _of_pod(os.environ)
            else:
                read = await _of_kubeconfig(self._kubeconfig)
            context = self._context_of(read)
        except (OSError, ValueError) as error:  # of files, TLS, and how they are written
            raise ConfigurationError(f"no usable configuration: {error}") from None
        proxy = read.proxy or environment_proxy(read.server, os.environ)
        _check_proxy(proxy)
        self._access = Access(read.server, read.authorization, context, read.server_name, proxy)
        self._read = read
        self._look_at = monotonic() + _LOOK_SECONDS
        return self._access

    def _context_of(self, read: _Read) -> ssl.SSLContext | None:
        if not read.server.startswith("https:"):
            return None
        if self._read is not None and self._access.context and self._read.trust == read.trust:
            return self._access.context  # its connections can be used further
        return context_of(read.trust)

    async def access(self) -> Access:
        """What is known, a minute old at most. Only the first time raises ConfigurationError."""
        if self._read is None:
            return await self.load()
        if monotonic() >= self._look_at:
            self._look_at = monotonic() + _LOOK_SECONDS
            if _contents(self._read.files) != self._read.files:
                async with self._lock:
                    await self._load_if_usable()
        return self._access

    async def _load_if_usable(self) -> None:
        """A file may be caught while it is written; what was read before may do for longer."""
        complaint = ""
        try:
            await self.load()
            _log.info("the credentials have been read again")
        except ConfigurationError as error:
            complaint = str(error)
            if complaint != self._complaint:
                _log.warning("changed credentials can't be used", error=complaint)
        self._complaint = complaint

    async def renew(self, used: Access) -> bool:
        """Read everything anew, as ``used`` did not do; whether there is anything new.

        Raises ConfigurationError. Whoever comes while another one reads takes what that one gets.
        """
        async with self._lock:
            if self._access is not used:
                return True
            return await self.load() != used


def _check_proxy(url: str | None) -> None:
    """Raise ConfigurationError for what aiohttp can't use. Its password is nobody's business."""
    if url is None:
        return
    try:
        parts = urlsplit(url)
        is_usable = parts.scheme in ("http", "https") and bool(parts.hostname)
    except ValueError:
        is_usable = False
    if not is_usable:
        raise ConfigurationError(
            "no usable configuration: the proxy's URL must begin with http:// or https:// and "
            "name a host"
        )


def _contents(paths: Iterable[Path]) -> dict[Path, bytes | None]:
    return {path: path.read_bytes() if path.is_file() else None for path in paths}


# --- of a pod -----------------------------------------------------------------------------------


def _of_pod(environment: Mapping[str, str]) -> _Read:
    host = environment.get("KUBERNETES_SERVICE_HOST")
    port = environment.get("KUBERNETES_SERVICE_PORT")
    if not host or not port:
        raise ConfigurationError("no usable configuration: the program does not run in a pod")
    token, authorities = SERVICE_ACCOUNT / "token", SERVICE_ACCOUNT / "ca.crt"
    files = {path: path.read_bytes() for path in (token, authorities)}
    return _Read(
        server=f"https://{f'[{host}]' if ':' in host else host}:{port}",
        authorization=f"Bearer {_filled(token, files[token]).strip()}",
        trust=Trust(_filled(authorities, files[authorities])),
        server_name=None,
        proxy=None,
        files=files,
    )


def _filled(path: Path, content: bytes) -> str:
    """``content`` as text, without the comments in other languages that files of CAs may have."""
    if not content.strip():
        raise ConfigurationError(f"no usable configuration: {path} is empty")
    return content.decode("ascii", "ignore")


# --- of a kubeconfig ----------------------------------------------------------------------------


async def _of_kubeconfig(kubeconfig: Path) -> _Read:
    # Before the library reads them: what changes meanwhile has to be seen as a change.
    own = _contents(_own_files(kubeconfig))
    found = await _load_kubeconfig(kubeconfig)
    chain = [Path(path) for path in (found.cert_file, found.key_file) if path]
    named = [Path(found.ssl_ca_cert)] if found.ssl_ca_cert else []
    others = _contents([*named, *chain])
    return _Read(
        server=found.host,
        authorization=found.api_key.get("BearerToken", ""),
        trust=Trust(
            _filled(named[0], others[named[0]] or b"") if named else None,
            found.verify_ssl,
            found.cert_file,
            found.key_file,
            b"".join(others[path] or b"" for path in chain),
        ),
        server_name=found.tls_server_name,
        proxy=found.proxy,
        files=own | others,
    )


async def _load_kubeconfig(kubeconfig: Path) -> Any:
    """The library's configuration: paths of files, also of what stands in the kubeconfig itself."""
    from kubernetes_asyncio import client, config  # noqa: PLC0415 - see above

    found = client.Configuration()
    try:
        await config.load_kube_config(
            str(kubeconfig), client_configuration=found, persist_config=False
        )
    # It reads a kubeconfig as it comes, and stumbles over what is not as it should be.
    except (
        config.ConfigException,
        aiohttp.ClientError,
        AssertionError,
        AttributeError,
        TypeError,
        YAMLError,
    ) as error:
        words = str(error) or type(error).__name__
        raise ConfigurationError(f"no usable configuration: {words}") from None
    return found


def _own_files(kubeconfig: Path) -> list[Path]:
    """The files that make up the kubeconfig, and those with the tokens of its users."""
    files = []
    for path in map(Path, str(kubeconfig).split(os.pathsep)):
        file = path.expanduser()
        files += [file, *_token_files(file)]
    return files


def _token_files(file: Path) -> list[Path]:
    try:
        users = yaml.safe_load(file.read_bytes())["users"]
        named = [user["user"].get("tokenFile") for user in users]
        return [file.parent / path for path in named if path]
    except (AttributeError, KeyError, OSError, TypeError, ValueError, YAMLError):
        return []  # the library has to say what is wrong
