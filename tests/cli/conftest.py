"""Running ``usher`` the way a shell does, but inside the test's process."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from cli.main import main

NOW = "2026-07-01T12:00:00Z"


@dataclass(frozen=True)
class Run:
    """What a command left behind."""

    exit_code: int
    stdout: str
    stderr: str


Usher = Callable[..., Run]


@pytest.fixture
def usher(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Usher:
    """Run ``usher ARGUMENTS`` in an empty directory; the whole of main, exit codes included."""
    monkeypatch.chdir(tmp_path)
    program: Any = SimpleNamespace(name="usher", main=main)

    def run(
        *arguments: str | Path, stdin: bytes | str | None = None, env: dict[str, str] | None = None
    ) -> Run:
        result = CliRunner().invoke(program, [str(a) for a in arguments], input=stdin, env=env)
        assert not isinstance(result.exception, Exception), result.exception
        return Run(result.exit_code, result.stdout, result.stderr)

    return run
