"""Options that every command has: logging and the configuration file.

Precedence: flag > environment (``USHER_PORT`` for ``--port``) > file > default.
"""

import difflib
import importlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

import click
import yaml

from cli.exits import InputError
from rules.catalog import GUARDS
from rules.evaluate import Policy
from rules.rule import DEFAULT_RESPONSE_BUDGET, Enforcement

ENVIRONMENT_PREFIX: Final = "USHER"

CommandT = TypeVar("CommandT", bound=Callable[..., Any])

CONTEXT_SETTINGS: Final[dict[str, Any]] = {
    "auto_envvar_prefix": ENVIRONMENT_PREFIX,
    "help_option_names": ["-h", "--help"],
    "max_content_width": 100,
    "show_default": True,
}
"""For ``@click.command(context_settings=…)`` of every command."""


def common_options(command: CommandT) -> CommandT:
    """Add ``--config``, ``--log-format`` and ``--log-level``."""
    for option in (
        click.option(
            "--log-level",
            type=click.Choice(["debug", "info", "warning", "error"]),
            default="info",
            help="The least severe log lines to write.",
        ),
        click.option(
            "--log-format",
            type=click.Choice(["json", "text"]),
            default="text",
            help="How log lines are written.",
        ),
        click.option(
            "--config",
            type=click.Path(dir_okay=False, path_type=Path),
            is_eager=True,
            expose_value=False,
            callback=_read_config,
            help="YAML file; every long flag can stand there, without its dashes.",
        ),
    ):
        command = option(command)
    return command


def policy_options(command: CommandT) -> CommandT:
    """Add ``--enforce``, ``--audit-only`` and ``--response-budget``; see :func:`policy_from`."""
    for option in (
        click.option(
            "--response-budget",
            type=click.IntRange(min=0),
            default=DEFAULT_RESPONSE_BUDGET,
            help="How many silent responders (20 minutes each) a pod may make a drain wait for.",
        ),
        click.option(
            "--audit-only",
            is_flag=True,
            help="Admit everything; record in logs, metrics and audit annotations what would "
            "have been denied.",
        ),
        click.option(
            "--enforce",
            multiple=True,
            metavar="GUARD=MODE",
            help="Enforce a guard as deny, warn, audit or off. May be repeated; in the "
            "configuration file a map. See 'usher explain' for the guards and their defaults.",
        ),
    ):
        command = option(command)
    return command


def policy_from(enforce: tuple[str, ...], *, audit_only: bool, response_budget: int) -> Policy:
    """The policy that the options of :func:`policy_options` describe.

    Raises InputError for an unknown guard or mode.
    """
    enforcement = {}
    for setting in enforce:
        name, _, mode = setting.partition("=")
        if name not in GUARDS:
            raise InputError(f"--enforce {setting}: no guard '{name}'{nearest(name, GUARDS)}")
        if mode not in tuple(Enforcement):
            modes = ", ".join(Enforcement)
            raise InputError(f"--enforce {setting}: mode must be one of {modes}")
        enforcement[name] = Enforcement(mode)
    return Policy(enforcement, audit_only=audit_only, response_budget=response_budget)


def nearest(word: str, words: Mapping[str, Any] | set[str]) -> str:
    """A hint such as "; did you mean 'port'?", or ""."""
    close = difflib.get_close_matches(word, words, n=1)
    return f"; did you mean '{close[0]}'?" if close else ""


def _read_config(ctx: click.Context, _: click.Parameter, path: Path | None) -> None:
    if path is None:
        return
    try:
        content = yaml.safe_load(path.read_bytes()) or {}
    except OSError as error:
        raise InputError(f"--config {path}: {error.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InputError(f"--config {path}: must be YAML: {error}") from None
    if not isinstance(content, dict):
        raise InputError(f"--config {path}: must be a map of flags to values")
    known = _all_flags()
    defaults = {}
    for key, value in content.items():
        if key not in known:
            raise InputError(f"--config {path}: unknown key '{key}'{nearest(str(key), known)}")
        defaults[known[key]] = (
            [f"{name}={choice}" for name, choice in value.items()]
            if isinstance(value, dict)
            else value
        )
    ctx.default_map = {**(ctx.default_map or {}), **defaults}


def _all_flags() -> dict[str, str]:
    """Every command's long flags → parameter names: one file may serve all commands."""
    from cli.main import usher  # noqa: PLC0415 - the commands import this module

    flags = {}
    context = click.Context(usher)
    for name in usher.list_commands(context):
        command: click.Command = importlib.import_module(f"cli.{name}").command
        for parameter in command.params:
            for flag in parameter.opts:
                if flag.startswith("--") and parameter.name and flag != "--config":
                    flags[flag.removeprefix("--")] = parameter.name
    return flags
