"""Volumes as directories, kept as a kubelet keeps them: all files of a volume change at once."""

import base64
import os
import shutil
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

Values = Callable[[str], str]
"""Field path → the pod's value."""


class MissingError(Exception):
    """What a volume needs does not exist (yet)."""


class Source(Protocol):
    """Where contents come from."""

    async def read(self, path: str) -> dict[str, Any] | None:
        """Return the object at a path below the pod's namespace, None if there is none."""

    async def token(self, wanted: Mapping[str, Any]) -> str:
        """Return a token as the ``serviceAccountToken`` of a projected volume wants it."""


class Volumes:
    """The volumes of one pod, below ``folder``."""

    def __init__(self, folder: Path, group: int | None, source: Source, values: Values) -> None:
        self._folder = folder
        self._group = group
        self._source = source
        self._values = values
        self._tokens: dict[str, str] = {}

    def path(self, name: str) -> Path:
        """The directory of a volume."""
        return self._folder / name

    async def refresh(self, volumes: list[dict[str, Any]]) -> None:
        """Make or renew all volumes; :class:`MissingError` where something is missing."""
        for volume in volumes:
            name = volume["name"]
            if "emptyDir" in volume:
                self._make(name, 0o777)
                continue
            content = await self._content(name, volume)
            self._make(name, 0o755)
            replace_all(self.path(name), content, _mode(volume), self._group)

    def _make(self, name: str, mode: int) -> None:
        path = self.path(name)
        if not path.exists():
            path.mkdir(parents=True)
            path.chmod(mode)
            if self._group is not None:
                os.chown(path, -1, self._group)
                path.chmod(mode | 0o2070)

    async def _content(self, name: str, volume: dict[str, Any]) -> dict[str, bytes]:
        if secret := volume.get("secret"):
            return await self._object("secrets", secret["secretName"], secret)
        if config := volume.get("configMap"):
            return await self._object("configmaps", config["name"], config)
        if fields := volume.get("downwardAPI"):
            return self._fields(fields)
        content: dict[str, bytes] = {}
        for number, source in enumerate(volume["projected"]["sources"]):
            if token := source.get("serviceAccountToken"):
                content[token["path"]] = (await self._cached(f"{name}-{number}", token)).encode()
            elif secret := source.get("secret"):
                content |= await self._object("secrets", secret["name"], secret)
            elif config := source.get("configMap"):
                content |= await self._object("configmaps", config["name"], config)
            else:
                content |= self._fields(source["downwardAPI"])
        return content

    async def _cached(self, key: str, token: Mapping[str, Any]) -> str:
        # No test lasts as long as a token.
        if key not in self._tokens:
            self._tokens[key] = await self._source.token(token)
        return self._tokens[key]

    async def _object(self, kind: str, name: str, source: dict[str, Any]) -> dict[str, bytes]:
        found = await self._source.read(f"{kind}/{name}")
        if found is None:
            if source.get("optional"):
                return {}
            raise MissingError(f"{kind} {name} does not exist")
        decode = base64.b64decode if kind == "secrets" else str.encode
        data = {key: decode(value) for key, value in (found.get("data") or {}).items()}
        items = source.get("items")
        if items is None:
            return data
        absent = [item["key"] for item in items if item["key"] not in data]
        if absent and not source.get("optional"):
            raise MissingError(f"{kind} {name} has no {', '.join(absent)}")
        return {item["path"]: data[item["key"]] for item in items if item["key"] in data}

    def _fields(self, source: dict[str, Any]) -> dict[str, bytes]:
        return {
            item["path"]: self._values(item["fieldRef"]["fieldPath"]).encode()
            for item in source["items"]
        }


def _mode(volume: dict[str, Any]) -> int:
    kinds = ("secret", "configMap", "downwardAPI", "projected")
    source = next(volume[kind] for kind in kinds if kind in volume)
    return int(source.get("defaultMode", 0o644))


def replace_all(folder: Path, content: Mapping[str, bytes], mode: int, group: int | None) -> None:
    """Put files into place all at once, by one swap of a symbolic link; nothing if none differs."""
    link = folder / "..data"
    if link.exists() and _files(link) == dict(content):
        return
    old = link.resolve() if link.exists() else None
    new = folder / f"..{uuid.uuid4()}"
    new.mkdir()
    new.chmod(0o755)
    for name, data in content.items():
        file = new / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
        file.chmod(mode if group is None else mode | 0o040)
        if group is not None:
            os.chown(file, -1, group)
        shown = folder / Path(name).parts[0]
        if not shown.is_symlink():
            shown.symlink_to(Path("..data") / Path(name).parts[0])
    swap = folder / "..data_tmp"
    swap.symlink_to(new.name)
    swap.replace(link)
    for shown in folder.iterdir():
        if not shown.name.startswith("..") and not shown.exists():
            shown.unlink()
    if old is not None:
        shutil.rmtree(old)


def _files(folder: Path) -> dict[str, bytes]:
    base = folder.resolve()
    files = (path for path in base.rglob("*") if path.is_file())
    return {str(path.relative_to(base)): path.read_bytes() for path in files}
