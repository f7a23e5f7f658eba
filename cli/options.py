"""Options that every command has: logging and the configuration file.

Precedence: flag > environment (``USHER_PORT`` for ``--port``) > file > default.
"""

import importlib
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from cli.exits import InputError
from cli.suggestions import nearest
from rules.catalog import GUARDS
from rules.evaluate import Policy
from rules.rule import DEFAULT_RESPONSE_BUDGET, Enforcement
from rules.times import parse_time

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


PORT: Final = click.IntRange(0, 65535)
"""A port to listen on; 0 takes a free one."""


def health_options(hosts: Sequence[str], port: int | None) -> Callable[[CommandT], CommandT]:
    """Add ``--health-bind`` and ``--health-port``, with these defaults; None: not served."""
    bind_option = click.option(
        "--health-bind",
        multiple=True,
        default=hosts,
        metavar="ADDRESS",
        help="Address to serve health and metrics on; may be repeated.",
    )
    port_option = click.option(
        "--health-port",
        type=PORT,
        default=port,
        help="Port of /livez, /readyz and /metrics, plain HTTP; 0 takes a free one."
        + ("" if port is not None else "  [default: not served]"),
    )
    return lambda command: bind_option(port_option(command))


def policy_options(command: CommandT) -> CommandT:
    """Add ``--enforce``, ``--audit-only`` and what guards go by; see :func:`policy_from`."""
    for option in (
        click.option(
            "--break-glass",
            multiple=True,
            metavar="GROUP",
            help="A group whose members no guard stops: what they do is audited. May be repeated.",
        ),
        click.option(
            "--controllers",
            multiple=True,
            metavar="USER",
            help="A user that is a controller, beside those of Kubernetes: Usher's own, for one. "
            "May be repeated.",
        ),
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


def _instant(_: click.Context, __: click.Parameter, value: str | None) -> datetime | None:
    try:
        return parse_time(value) if value is not None else None
    except ValueError as error:
        raise click.BadParameter(f"{value!r}: {error}") from None


now_option = click.option(
    "--now",
    metavar="TIME",
    callback=_instant,
    help="The instant to judge at, such as 2026-07-01T12:00:00Z.  [default: the present]",
)
"""An instant to judge at, as a datetime, or None for the present."""

guards_option = click.option(
    "--guards",
    type=click.Choice(["on", "off"]),
    default="on",
    help="Off: judge by the built-in rules alone, as an API server that serves the API itself.",
)
"""Turns all guards off for the commands that work offline; see :func:`policy_from`."""


_EVERYBODY: Final = frozenset({"system:authenticated", "system:unauthenticated"})
"""The groups in one of which every caller is."""


def policy_from(
    enforce: tuple[str, ...],
    *,
    audit_only: bool,
    response_budget: int,
    controllers: Sequence[str] = (),
    break_glass: Sequence[str] = (),
    guards: str = "on",
) -> Policy:
    """The policy that the options of :func:`policy_options` and :data:`guards_option` describe.

    Raises InputError for an unknown guard or mode.
    """
    enforcement = dict.fromkeys(GUARDS, Enforcement.OFF) if guards == "off" else {}
    for setting in enforce:
        name, _, mode = setting.partition("=")
        if name not in GUARDS:
            raise InputError(f"--enforce {setting}: no guard '{name}'{nearest(name, GUARDS)}")
        if mode not in tuple(Enforcement):
            modes = ", ".join(Enforcement)
            raise InputError(f"--enforce {setting}: mode must be one of {modes}")
        enforcement[name] = Enforcement(mode)
    if everybody := _EVERYBODY.intersection(break_glass):
        raise InputError(
            f"--break-glass {min(everybody)}: that is everybody, whom no guard would stop; "
            "name a group of your own, or use --audit-only"
        )
    return Policy(
        enforcement,
        audit_only=audit_only,
        response_budget=response_budget,
        controllers=frozenset(controllers),
        break_glass=frozenset(break_glass),
    )


def logger(flags: Mapping[str, Any]) -> Any:
    """Where to log what is no result, as ``--log-format`` and ``--log-level`` want it."""
    # Imported only when there is something to say: it takes longer than judging a file.
    import structlog  # noqa: PLC0415

    from cli import logs  # noqa: PLC0415

    logs.configure(flags["log_format"], flags["log_level"])
    return structlog.get_logger()


def _read_config(ctx: click.Context, _: click.Parameter, path: Path | None) -> None:
    if path is None:
        return
    import yaml  # noqa: PLC0415 - flags alone need none

    try:
        # Every scalar stays text, so that 'off' and 'on' mean here what they mean in a flag.
        content = yaml.load(path.read_bytes(), yaml.BaseLoader) or {}  # noqa: S506 - makes text only
    except OSError as error:
        raise InputError(f"--config {path}: {error.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InputError(f"--config {path}: must be YAML: {error}") from None
    if not isinstance(content, dict):
        raise InputError(f"--config {path}: must be a map of flags to values")
    known = _flags(ctx.command)
    settings = {}
    for key, value in content.items():
        if key not in known:
            known = _all_flags()
        if key not in known:
            raise InputError(f"--config {path}: unknown key '{key}'{nearest(key, known)}")
        settings[known[key].name] = _setting(path, key, known[key], value)
    ctx.default_map = {**(ctx.default_map or {}), **settings}


def _setting(path: Path, key: str, option: click.Parameter, value: Any) -> Any:
    """``value`` as click takes it from a default map: text, or a list where flags may repeat."""
    if isinstance(option, click.Option) and option.multiple:
        if isinstance(value, dict):
            value = [f"{name}={choice}" for name, choice in value.items()]
        value = value if isinstance(value, list) else [value]
        if all(isinstance(item, str) for item in value):
            return value
    elif isinstance(value, str):
        return value
    raise InputError(f"--config {path}: '{key}' must have one value")


def _all_flags() -> dict[str, click.Parameter]:
    """Every command's long flags: one file may serve all commands. Imports all of them."""
    from cli.main import usher  # noqa: PLC0415 - the commands import this module

    flags: dict[str, click.Parameter] = {}
    for name in usher.list_commands(click.Context(usher)):
        flags |= _flags(importlib.import_module(f"cli.commands.{name}").command)
    return flags


def _flags(command: click.Command) -> dict[str, click.Parameter]:
    """A command's long flags, and those of the commands below it, without dashes."""
    below = command.commands.values() if isinstance(command, click.Group) else ()
    flags = {flag: option for each in below for flag, option in _flags(each).items()}
    return flags | {
        flag.removeprefix("--"): parameter
        for parameter in command.params
        for flag in parameter.opts
        if flag.startswith("--") and flag != "--config"
    }
