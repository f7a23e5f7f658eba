"""Builds each binary once, into a cache keyed by everything that goes into it."""

import fcntl
import functools
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.controlplane.binaries import BINARIES, Binary, Tool

ASSETS_VARIABLE = "KUBEBUILDER_ASSETS"
CACHE_VARIABLE = "USHER_TEST_CACHE"

# No C compiler needed, no path of this machine and no commit in the result.
_BUILD_FLAGS = ("-trimpath", "-buildvcs=false", "-mod=readonly")
_BUILD_ENVIRONMENT: Mapping[str, str] = {"CGO_ENABLED": "0"}


_NO_TOOLCHAIN = (
    "Go is not installed; install it, "
    f"or point {ASSETS_VARIABLE} at a folder with etcd, kube-apiserver and kubectl"
)


class BuildError(Exception):
    """``go build`` failed; the message carries its output."""


class NoToolchainError(BuildError):
    """Neither Go nor a ready-made binary is there."""


def cache_folder() -> Path:
    """Where built binaries are kept, outside the checkout."""
    if chosen := os.environ.get(CACHE_VARIABLE):
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "usher-tests"


def binary_path(name: str) -> Path:
    """Return an executable for ``name``, building it when no earlier build fits.

    Raises ``KeyError`` for an unknown name, ``NoToolchainError`` without Go, ``BuildError`` when
    the build fails.
    """
    binary = BINARIES[name]
    if asset := _asset(binary):
        return asset
    go = shutil.which("go")
    if go is None:
        raise NoToolchainError(_NO_TOOLCHAIN)
    target = cache_folder() / _fingerprint(binary, go) / binary.name
    if not target.exists():
        with _locked(target.parent.with_suffix(".lock")):
            # Another run may have built it while this one waited for the lock.
            if not target.exists():
                _build(binary, go, target)
    return target


def _asset(binary: Binary) -> Path | None:
    folder = os.environ.get(ASSETS_VARIABLE)
    if not folder or binary.asset is None:
        return None
    candidate = Path(folder) / binary.asset
    return candidate if os.access(candidate, os.X_OK) else None


@functools.cache  # kubectl is looked up for every call; sources don't change under a test run
def _fingerprint(binary: Binary, go: str) -> str:
    """Hash the toolchain, the flags, go.mod, go.sum and the program's own sources."""
    digest = hashlib.sha256()
    files = binary.tool.files if binary.tool else ()
    flags = (*_BUILD_FLAGS, *binary.linker_flags)
    for text in (_toolchain(binary, go), *flags, binary.package, *files):
        digest.update(text.encode() + b"\0")
    for file in _inputs(binary):
        digest.update(str(file.relative_to(binary.module)).encode() + b"\0")
        digest.update(hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()


def _toolchain(binary: Binary, go: str) -> str:
    # Asked inside the module: its go.mod may select another toolchain than the default one.
    return _ask(go, binary, "env", "GOVERSION", "GOOS", "GOARCH")


def _ask(go: str, binary: Binary, *arguments: str) -> str:
    result = subprocess.run(
        [go, *arguments],
        cwd=binary.module,
        env=_environment(binary),
        capture_output=True,
        text=True,
        check=False,
    )
    if result.returncode != 0:
        raise BuildError(f"go {' '.join(arguments)} failed:\n{result.stderr}")
    return result.stdout


def _environment(binary: Binary) -> Mapping[str, str]:
    chosen = {"GOTOOLCHAIN": binary.toolchain} if binary.toolchain else {}
    return {**os.environ, **chosen}


def _inputs(binary: Binary) -> Iterator[Path]:
    yield binary.module / "go.mod"
    yield binary.module / "go.sum"
    for folder in binary.sources:
        for file in sorted((binary.module / folder).glob("*.go")):
            if not file.name.endswith("_test.go"):
                yield file


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _build(binary: Binary, go: str, target: Path) -> None:
    _say(f"building {binary.title} (about {binary.first_build_seconds} s the first time)")
    began = time.monotonic()
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        # Built aside and renamed: a killed build leaves nothing that looks finished.
        unfinished = Path(scratch) / binary.name
        flags = " ".join(binary.linker_flags)
        result = subprocess.run(
            [go, "build", *_BUILD_FLAGS, "-ldflags", flags, "-o", unfinished, binary.package],
            cwd=binary.module,
            env={**_environment(binary), **_BUILD_ENVIRONMENT},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        if result.returncode != 0:
            raise BuildError(f"building {binary.title} failed:\n{result.stdout}")
        if binary.tool is not None:
            _copy_files(binary, binary.tool, go, target.parent)
        unfinished.replace(target)
    size = target.stat().st_size / 2**20
    _say(f"built {binary.title} in {time.monotonic() - began:.0f} s ({size:.0f} MiB)")


def _copy_files(binary: Binary, tool: Tool, go: str, folder: Path) -> None:
    root = Path(_ask(go, binary, "list", "-m", "-f", "{{.Dir}}", tool.module).strip())
    for file in tool.files:
        # Modules are read-only in Go's cache; here they can be removed like everything else.
        shutil.copyfile(root / file, folder / Path(file).name)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
