"""The executable: exit codes, help, mistyped commands."""

import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import click
import pytest

from cli.commands import validate
from cli.main import usher as group
from tests.cli.conftest import Usher

ROOT: Final = Path(__file__).parents[2]
COMMANDS: Final = (
    "controller",
    "crds",
    "explain",
    "nodes",
    "plan",
    "replay",
    "serve",
    "validate",
)


def _command(name: str) -> click.Command:
    command = group.get_command(click.Context(group), name)
    assert command is not None
    return command


def test_the_overview_lists_the_commands_without_importing_them() -> None:
    program = "import sys; from cli.main import main\ntry: main(['--help'])\nfinally: "
    program += "print([name for name in sys.modules if name in ('yaml', 'aiohttp')])"
    run = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert "validate" in run.stdout
    assert run.stdout.endswith("[]\n")


def test_validate_does_without_heavy_imports(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("apiVersion: v1\nkind: Pod\n", encoding="utf-8")
    program = (
        "import sys; from cli.main import main\n"
        f"try: main(['validate', {str(tmp_path)!r}])\nfinally: "
        "print([name for name in sys.modules if name in ('aiohttp', 'structlog', 'rich', 'ssl')])"
    )
    run = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert run.stdout.endswith("[]\n")


def test_python_m_webhook_is_the_same(tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-m", "cli.main", "validate", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 2
    assert "in this directory or below" in run.stderr


@pytest.mark.parametrize("name", COMMANDS)
def test_help_mentions_every_option_and_has_an_example(usher: Usher, name: str) -> None:
    run = usher(name, "--help")
    assert run.exit_code == 0
    for parameter in _command(name).params:
        for option in parameter.opts if isinstance(parameter, click.Option) else ():
            assert option in run.stdout
    assert "Example" in run.stdout
    assert f"\n    usher {name}" in run.stdout


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_has_help_and_an_environment_variable_of_its_name(name: str) -> None:
    for parameter in _command(name).params:
        if isinstance(parameter, click.Option):
            assert parameter.help
            flag = next(opt for opt in parameter.opts if opt.startswith("--"))
            variable = "USHER_" + flag.removeprefix("--").replace("-", "_").upper()
            assert variable in (parameter.envvar, f"USHER_{parameter.name}".upper())


def test_the_version(usher: Usher) -> None:
    assert usher("--version").stdout.startswith("usher 0.")


def test_a_mistyped_command(usher: Usher) -> None:
    run = usher("valdate")
    assert run.exit_code == 2
    assert "no command 'valdate'; did you mean 'validate'?" in run.stderr


def test_a_mistyped_option_before_the_command(usher: Usher) -> None:
    run = usher("--verson")
    assert run.exit_code == 2
    assert "--version" in run.stderr


def test_a_bug_of_ours_is_3_and_never_a_verdict(
    usher: Usher, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(validate, "judge", fail)
    Path("a.yaml").write_text("kind: Job", encoding="utf-8")
    run = usher("validate", "a.yaml")
    assert run.exit_code == 3
    assert "RuntimeError: a bug" in run.stderr
    assert "internal error; please report it" in run.stderr


def test_interruption_is_no_verdict(usher: Usher, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(validate, "find_sources", interrupt)
    assert usher("validate", "a.yaml").exit_code == 3


@pytest.mark.slow
def test_a_closed_pipe_is_no_verdict_and_no_traceback(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("---\nkind: Pod\n" * 20_000, encoding="utf-8")
    run = subprocess.run(
        [
            "bash",
            "-c",
            f"{sys.executable} -m cli.main validate {tmp_path} | head -1; exit ${{PIPESTATUS[0]}}",
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 141
    assert run.stderr == ""
    assert len(run.stdout.splitlines()) == 1
