"""Where CA and serving pair are kept: a Secret that replicas share, or a directory.

Both know one kind of write, compare and set: it succeeds only if nobody has written since the read
that it builds on. So of several replicas that start at once one creates the CA and the others read
it; there is no leader to elect, and nobody to wait for when a replica dies.
"""

import base64
import binascii
import fcntl
import hashlib
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

from certs.holdings import CA_CERTIFICATES, CA_KEY, CERTIFICATE, KEY, Files
from cluster.client import Cluster, Document
from cluster.failures import Conflict, Missing
from cluster.key import Key
from cluster.resources import SECRETS

_FILES: Final = (CA_CERTIFICATES, CA_KEY, CERTIFICATE, KEY)
_TYPE: Final = "kubernetes.io/tls"
_DATA: Final = "..data"
"""The symbolic link by which a directory changes as a whole, as kubelets do it for Secrets."""
_LOCK: Final = "..lock"


class Stored(NamedTuple):
    """What was read, and what a write must refer to."""

    files: Files
    version: Any
    """Of the store's own making; None if there is nothing yet."""


class Store(Protocol):
    """Raises ClusterFailure or OSError, whichever it is made of."""

    async def read(self) -> Stored:
        """What is kept now."""

    async def write(self, read: Stored, files: Files) -> None:
        """Replace it. Raises Conflict if it is not, or no longer, what ``read`` says."""


class SecretStore:
    """A Secret. Needs ``get`` and ``update`` on it, and ``create`` on Secrets of its namespace."""

    def __init__(self, cluster: Cluster, key: Key) -> None:
        self._cluster = cluster
        self._key = key

    def __str__(self) -> str:
        return f"secret {self._key.namespace}/{self._key.name}"

    async def read(self) -> Stored:
        """What the Secret holds; values that are no base64 count as empty."""
        try:
            secret = await self._cluster.get(SECRETS, self._key)
        except Missing:
            return Stored({}, None)
        data = secret.get("data") or {}
        return Stored({name: _decoded(data.get(name)) for name in _FILES}, secret)

    async def write(self, read: Stored, files: Files) -> None:
        """Create the Secret, or update it; what else stands in it stays."""
        data = {name: base64.b64encode(content).decode() for name, content in files.items()}
        if read.version is None:
            await self._cluster.create(SECRETS, self._key.namespace, self._fresh(data))
            return
        secret: Document = read.version
        changed = {**secret, "data": {**(secret.get("data") or {}), **data}}
        try:
            await self._cluster.replace(SECRETS, self._key, changed)
        except Missing as failure:
            raise Conflict(str(failure)) from None  # deleted since the read

    def _fresh(self, data: Mapping[str, str]) -> Document:
        return {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"namespace": self._key.namespace, "name": self._key.name},
            "type": _TYPE,
            "data": dict(data),
        }


class DirectoryStore:
    """A directory, for programs that run outside of a cluster and for what servers read."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __str__(self) -> str:
        return f"directory {self._path}"

    async def read(self) -> Stored:
        """What the directory holds; a file that is not there counts as empty."""
        files = {name: self._content(name) for name in _FILES}
        return Stored(files, _digest(files) if any(files.values()) else None)

    async def write(self, read: Stored, files: Files) -> None:
        """Replace the files, all at once."""
        self._path.mkdir(parents=True, exist_ok=True)
        with self._locked():
            if (await self.read()).version != read.version:
                raise Conflict(f"{self._path}: was changed by somebody else")
            self._swap(files)

    def holds(self, files: Files) -> bool:
        """Whether ``files`` are what the directory holds."""
        return all(self._content(name) == content for name, content in files.items())

    def put(self, files: Files) -> None:
        """Replace the files, whatever they are."""
        self._path.mkdir(parents=True, exist_ok=True)
        with self._locked():
            self._swap(files)

    def _content(self, name: str) -> bytes:
        try:
            return (self._path / name).read_bytes()
        except FileNotFoundError:
            return b""

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Alone on this machine; the lock ends with the process."""
        with (self._path / _LOCK).open("ab") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _swap(self, files: Files) -> None:
        """Write a new generation beside the last one, and let one link lead to it.

        A reader sees the certificate of one generation and the key of another at worst for the
        moment between its two reads, as with a Secret volume.
        """
        generation = Path(tempfile.mkdtemp(prefix="..generation-", dir=self._path))
        for name, content in files.items():
            file = generation / name
            file.touch(mode=0o600 if name in (CA_KEY, KEY) else 0o644)
            file.write_bytes(content)
        data = self._path / _DATA
        last = self._path / data.readlink() if data.is_symlink() else None
        self._link(_DATA, generation.name)
        for name in files:
            target = f"{_DATA}/{name}"
            path = self._path / name
            if not (path.is_symlink() and str(path.readlink()) == target):
                self._link(name, target)
        for old in self._path.glob("..generation-*"):
            if old not in (generation, last):  # the last one may be being read
                shutil.rmtree(old, ignore_errors=True)

    def _link(self, name: str, target: str) -> None:
        """Make ``name`` a link to ``target``, in one step if it is something else by now."""
        temporary = self._path / f"..new-{name}"
        temporary.unlink(missing_ok=True)
        temporary.symlink_to(target)
        temporary.replace(self._path / name)


def _decoded(value: Any) -> bytes:
    try:
        return base64.b64decode(value or "")
    except (binascii.Error, TypeError, ValueError):
        return b""


def _digest(files: Files) -> str:
    digest = hashlib.sha256()
    for name in _FILES:
        content = files.get(name, b"")
        digest.update(f"{name} {len(content)}\n".encode() + content)
    return digest.hexdigest()
