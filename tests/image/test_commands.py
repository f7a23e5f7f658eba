"""What the Dockerfile runs, run here: in a plain virtual environment instead of a container.

The paths of the image are moved below a folder; all else is what stands there. What comes of it is
used as in a cluster: by another user than root, and without a place to write.
"""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Final

import pytest
import yaml

from certs.issue import issue_authority, issue_serving
from tests.controlplane.process import ChildProcess
from tests.e2e.times import now
from tests.e2e.usher import HOST
from tests.e2e.waiting import eventually
from tests.image.dockerfile import ROOT, Stage, read

pytestmark = pytest.mark.slow

BUILD: Final[Stage] = read()[0]
_BASE: Final = Path(sys._base_executable)  # type: ignore[attr-defined]
_EPOCH: Final = 1_700_000_000


class Image:
    """The file system that the first stage leaves behind, below ``root``."""

    def __init__(self, root: Path, sources: Path) -> None:
        self.root = root
        self.sources = sources
        self.tree = root / "opt" / "usher"
        # Stands for the base: a Python with pip that nobody else uses.
        subprocess.run([_BASE, "-m", "venv", "--symlinks", root / "usr"], check=True)
        (root / "tmp").mkdir()
        (root / "opt").mkdir()

    def build(self) -> None:
        """Run every instruction of the stage that builds."""
        source = self.root / "src"
        source.mkdir()
        # How Python is set up around the tests is not how it is in there.
        environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
        environment |= {"PATH": f"{self.root}/usr/bin:{os.environ['PATH']}"}
        environment |= {"SOURCE_DATE_EPOCH": str(_EPOCH)}
        for instruction in BUILD.instructions:
            if instruction.name == "COPY":
                *paths, target = instruction.words
                for path in paths:
                    _copy(self.sources / path, source / target)
            elif instruction.name == "RUN":
                script = self._moved(instruction.value)
                subprocess.run(["sh", "-euc", script], cwd=source, env=environment, check=True)

    def _moved(self, script: str) -> str:
        root = str(self.root)
        for old, new in (
            # Links of a virtual environment lead to the Python behind it.
            ("'home = /usr/bin'", f"'home = {_BASE.parent}'"),
            ("/usr/local/bin/python3.13", f"{root}/usr/bin/python3"),
            ("/usr/bin/", f"{root}/usr/bin/"),
            ("/opt/usher", str(self.tree)),
            ("/tmp/wheels", f"{root}/tmp/wheels"),
        ):
            script = re.sub(rf"(?<![\w/]){re.escape(old)}", new, script)
        return script

    def command(self, *arguments: str) -> list[str]:
        """``usher`` as somebody who is not root."""
        return [*_unprivileged(), str(self.tree / "bin" / "usher"), *arguments]

    @property
    def environment(self) -> dict[str, str]:
        """What the final image sets, and nothing else."""
        return {"PATH": f"{self.tree}/bin", "HOME": "/home/nonroot"}

    def run(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        """Run ``usher`` to its end."""
        return subprocess.run(
            self.command(*arguments),
            env=self.environment,
            cwd="/",
            capture_output=True,
            text=True,
            check=False,
        )


def _copy(path: Path, target: Path) -> None:
    if path.is_dir():
        shutil.copytree(path, target, ignore=shutil.ignore_patterns("__pycache__"))
    else:
        target.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)


def _unprivileged() -> Sequence[str]:
    # In a user namespace of its own even root is nobody else than the owner of its files.
    if os.geteuid():
        return ()
    return (shutil.which("unshare") or "", "--user", "--map-user=65532", "--map-group=65532")


def _bytes(tree: Path) -> dict[str, str]:
    """Path → what is there: a link's target, or a file's hash."""
    return {
        str(path.relative_to(tree)): str(path.readlink())
        if path.is_symlink()
        else hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(tree.rglob("*"))
        if path.is_symlink() or path.is_file()
    }


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What .dockerignore lets through, as it is now: the working tree may change meanwhile."""
    sources = tmp_path_factory.mktemp("sources")
    for copy in BUILD.all("COPY"):
        for path in copy.words[:-1]:
            _copy(
                ROOT / path, sources / path if (ROOT / path).is_dir() else (sources / path).parent
            )
    return sources


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory, sources: Path) -> Iterator[Image]:
    image = Image(tmp_path_factory.mktemp("image"), sources)
    image.build()
    for path in image.tree.rglob("*"):
        if not path.is_symlink():
            path.chmod(path.stat().st_mode & ~0o222)
    image.tree.chmod(0o555)
    yield image
    for path in (image.tree, *image.tree.rglob("*")):
        if path.is_dir() and not path.is_symlink():
            path.chmod(0o755)


def test_nobody_can_write_there(image: Image) -> None:
    write = subprocess.run(
        [*_unprivileged(), "touch", image.tree / "lib" / "x"], capture_output=True, check=False
    )
    assert write.returncode != 0


@pytest.mark.parametrize(
    "arguments",
    [
        ("--version",),
        ("serve", "--help"),
        ("controller", "--help"),
        ("certs", "agent", "--help"),
        ("explain", "heartbeat-times"),
        ("nodes", "--help"),
        ("plan", "--help"),
    ],
    ids=" ".join,
)
def test_commands_run(image: Image, arguments: tuple[str, ...]) -> None:
    run = image.run(*arguments)
    assert (run.returncode, run.stderr) == (0, "")
    assert run.stdout


def test_definitions_are_printed(image: Image) -> None:
    documents = list(yaml.safe_load_all(image.run("crds").stdout))
    assert {document["kind"] for document in documents} == {"CustomResourceDefinition"}


def test_the_webhook_serves(image: Image, tmp_path: Path) -> None:
    pair = issue_serving(issue_authority(now()), ("localhost", HOST), now())
    (tmp_path / "tls.crt").write_bytes(pair.certificate)
    (tmp_path / "tls.key").write_bytes(pair.key)
    process = ChildProcess("usher", tmp_path / "log")
    command = image.command(
        *("serve", "--offline", "--log-format", "json"),
        *("--tls-cert", str(tmp_path / "tls.crt"), "--tls-key", str(tmp_path / "tls.key")),
        *("--bind", HOST, "--port", "0", "--health-bind", HOST, "--health-port", "0"),
    )
    process.start(command, image.environment)

    def is_ready() -> bool:
        process.ensure_alive()
        lines = [json.loads(line) for line in process.log.read_text().splitlines()]
        serving = [line for line in lines if line["event"] == "serving"]
        if not serving:
            return False
        try:
            with urllib.request.urlopen(f"http://{serving[0]['health'][0]}/readyz") as answer:
                return bool(answer.status == HTTPStatus.OK)
        except urllib.error.HTTPError:
            return False

    try:
        eventually(is_ready, "the webhook is ready")
    finally:
        process.stop(patience=0)


def test_no_tools_are_left(image: Image) -> None:
    programs = {path.name for path in (image.tree / "bin").iterdir() if path.is_file()}
    assert {name for name in programs if not name.startswith("python")} == {"usher"}
    site = next(image.tree.glob("lib/python3*/site-packages"))
    for tool in ("pip", "setuptools", "hatchling", "pytest", "mkdocs"):
        assert not (site / tool).exists()


def test_every_file_has_the_time_that_was_asked_for(image: Image) -> None:
    times = {path.lstat().st_mtime for path in image.tree.rglob("*")}
    assert times == {_EPOCH}


def test_nothing_is_compiled_when_it_is_used(image: Image) -> None:
    for module in image.tree.rglob("site-packages/**/*.py"):
        cached = module.parent / "__pycache__" / f"{module.stem}.{sys.implementation.cache_tag}.pyc"
        assert cached.exists(), module


def test_the_same_sources_make_the_same_bytes(image: Image) -> None:
    before = _bytes(image.tree)
    image.root.rename(image.root.with_name("first"))
    try:
        # The same place: paths stand in the first lines of programs, and in bytecode.
        second = Image(image.root, image.sources)
        second.build()
        after = _bytes(second.tree)
    finally:
        shutil.rmtree(image.root, ignore_errors=True)
        image.root.with_name("first").rename(image.root)
    assert after == before
