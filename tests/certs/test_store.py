"""A directory as a store."""

import os
from pathlib import Path
from typing import Final

import pytest

from certs.store import DirectoryStore, Stored
from cluster.failures import Conflict

_FIRST: Final = {"ca.crt": b"1", "ca.key": b"1", "tls.crt": b"1", "tls.key": b"1"}
_SECOND: Final = dict.fromkeys(_FIRST, b"2")


async def test_what_is_written_is_read(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path / "new" / "folder")
    empty = await store.read()
    assert not any(empty.files.values())
    await store.write(empty, _FIRST)
    read = await store.read()
    assert read.files == _FIRST
    await store.write(read, _SECOND)
    assert (await store.read()).files == _SECOND


@pytest.mark.parametrize("exists", [False, True])
async def test_of_two_writers_one_wins(tmp_path: Path, *, exists: bool) -> None:
    one, other = DirectoryStore(tmp_path), DirectoryStore(tmp_path)
    if exists:
        one.put(_FIRST)
    read, same = await one.read(), await other.read()
    await one.write(read, _SECOND)
    with pytest.raises(Conflict):
        await other.write(same, _FIRST)
    assert (await one.read()).files == _SECOND


def test_readers_see_one_generation_through_one_link(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path)
    store.put(_FIRST)
    folder = (tmp_path / "tls.crt").resolve().parent
    for generation in range(5):
        store.put(dict.fromkeys(_FIRST, str(generation).encode()))
        # Whoever is just reading the last one may finish.
        assert (folder / "tls.key").exists()
        assert len({(tmp_path / name).resolve().parent for name in _FIRST}) == 1
        folder = (tmp_path / "tls.crt").resolve().parent
    assert len(list(tmp_path.glob("..generation-*"))) == 2


def test_keys_are_for_the_owner_alone(tmp_path: Path) -> None:
    DirectoryStore(tmp_path).put(_FIRST)
    modes = {name: os.stat(tmp_path / name).st_mode & 0o777 for name in _FIRST}  # noqa: PTH116
    assert modes["ca.key"] == modes["tls.key"] == 0o600


async def test_plain_files_are_replaced_by_links(tmp_path: Path) -> None:
    for name in ("tls.crt", "tls.key"):
        (tmp_path / name).write_bytes(b"plain")
    store = DirectoryStore(tmp_path)
    read = await store.read()
    assert read.files["tls.crt"] == b"plain"
    await store.write(read, _FIRST)
    assert (await store.read()).files == _FIRST


async def test_a_version_depends_on_where_files_begin(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path)
    store.put({"ca.crt": b"ab", "ca.key": b""})
    one = await store.read()
    store.put({"ca.crt": b"a", "ca.key": b"b"})
    assert (await store.read()).version != one.version
    with pytest.raises(Conflict):
        await store.write(Stored({}, None), _FIRST)
