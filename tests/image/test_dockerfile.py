"""What the Dockerfile promises, read off its text."""

import ast
import re
import sys
import tomllib
from importlib.metadata import packages_distributions
from typing import Any, Final

import pytest

from tests.image.dockerfile import ROOT, read
from webhook.settings import Settings

BUILD, FINAL = read()
PROJECT: Final[dict[str, Any]] = tomllib.loads((ROOT / "pyproject.toml").read_text())
PACKAGES: Final[list[str]] = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
IGNORED: Final = (ROOT / ".dockerignore").read_text().splitlines()


@pytest.mark.parametrize("stage", [BUILD, FINAL], ids=["build", "final"])
def test_bases_have_a_tag_and_a_digest(stage: Any) -> None:
    assert re.fullmatch(r"[a-z0-9./-]+:[a-z0-9.-]+@sha256:[0-9a-f]{64}", stage.base)


def test_both_bases_have_the_same_python() -> None:
    (release,) = re.findall(r"/python:(3\.\d+)\.\d+-slim-trixie@", BUILD.base)
    assert "python3-debian13:" in FINAL.base  # Debian 13 is trixie, its Python 3.13
    assert release == "3.13"
    assert f"/usr/bin/python{release}" in BUILD.all("RUN")[0].words


def test_nothing_runs_in_the_final_image_and_nothing_else_gets_into_it() -> None:
    assert FINAL.all("RUN") == []
    assert FINAL.all("ADD") == []
    assert FINAL.one("COPY").words == ["--from=build", "/opt/usher", "/opt/usher"]


def test_the_user_is_a_number_and_not_root() -> None:
    user, _, group = FINAL.one("USER").value.partition(":")
    assert int(user) > 0
    assert int(group) > 0


def test_there_is_no_healthcheck() -> None:
    assert not BUILD.all("HEALTHCHECK")
    assert not FINAL.all("HEALTHCHECK")


def test_ports_are_those_of_the_programs() -> None:
    exposed = {int(port) for port in FINAL.one("EXPOSE").words}
    assert {Settings.port, Settings.health_port} < exposed


def test_labels_and_version() -> None:
    labels = dict(word.split("=", 1) for word in FINAL.one("LABEL").words)
    assert labels["org.opencontainers.image.title"] == PROJECT["project"]["name"]
    assert labels["org.opencontainers.image.description"] == PROJECT["project"]["description"]
    assert labels["org.opencontainers.image.licenses"] == PROJECT["project"]["license"]
    assert labels["org.opencontainers.image.base.name"] == FINAL.base.partition("@")[0]
    assert f"VERSION={PROJECT['project']['version']}" in [a.value for a in FINAL.all("ARG")]


def test_every_package_is_copied_and_let_through() -> None:
    copied = [source for copy in BUILD.all("COPY") for source in copy.words[:-1]]
    assert set(PACKAGES) < set(copied)
    assert all((ROOT / source).exists() for source in copied)
    assert IGNORED[1] == "*"
    assert {f"!{source}" for source in copied} == {line for line in IGNORED if line[0] == "!"}


def test_everything_is_installed_by_hash_or_is_ours() -> None:
    installs = [
        step
        for run in BUILD.all("RUN")
        for step in run.value.split("&&")
        if re.search(r"\binstall\b", step)
    ]
    assert len(installs) == 3
    for step in installs:
        words = set(step.split())
        assert "--no-deps" in words
        assert "--require-hashes" in words or "/tmp/wheels/usher-*.whl" in words


def _imported() -> set[str]:
    found: set[str] = set()
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Import):
                    found |= {alias.name.partition(".")[0] for alias in node.names}
                elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                    found.add(node.module.partition(".")[0])
    return found - set(PACKAGES) - sys.stdlib_module_names


@pytest.mark.slow
def test_what_the_program_imports_is_installed_at_run_time() -> None:
    text = (ROOT / "requirements" / "runtime.txt").read_text()
    locked = {name.lower() for name in re.findall(r"^([\w.-]+)==", text, re.MULTILINE)}
    providers = packages_distributions()
    imported = _imported()
    assert imported
    for module in imported:
        assert locked & {name.lower().replace("_", "-") for name in providers[module]}, module
