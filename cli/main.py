"""The executable ``usher``: finds the command, reads the configuration, sets the exit code.

Exit codes: 0 clean, 1 violations, 2 bad usage or input, 3 internal or cluster failure.
"""

import importlib
import os
import sys
import traceback
from collections.abc import Sequence
from typing import Any, Final, NoReturn

import click

from cli.exits import CLEAN, INTERNAL, OUTPUT_CLOSED, OutputClosed
from cli.suggestions import nearest

_SUMMARIES: Final = {
    "certs": "Look after the webhook's certificates.",
    "controller": "Run the controller.",
    "crds": "Print the CustomResourceDefinitions, generated from the model.",
    "export": "Save EvictionRequests and Evictions of a cluster.",
    "explain": "Explain a rule, or list all of them.",
    "nodes": "Show the zones of a cluster, and whose pods would be evicted when.",
    "plan": "Print what the controller would write.",
    "replay": "Answer recorded admission requests.",
    "restore": "Make saved EvictionRequests again.",
    "serve": "Run the admission webhook.",
    "validate": "Judge manifests offline.",
}
"""Command → what the overview says of it. Modules are imported only when their command runs, so
that ``usher --help`` and the short-lived commands do not wait for the web server's libraries."""


class Commands(click.Group):
    """The commands, each in the module ``cli.commands.<name>`` as ``command``."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Every command's name."""
        return sorted(_SUMMARIES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return the command; an unknown one is an error that names the nearest."""
        if cmd_name not in _SUMMARIES:
            if cmd_name.startswith("-"):
                return None  # an option of ours that does not exist: click's own error
            raise click.UsageError(f"no command '{cmd_name}'{nearest(cmd_name, _SUMMARIES)}", ctx)
        command: click.Command = importlib.import_module(f"cli.commands.{cmd_name}").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """List the commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl(sorted(_SUMMARIES.items()))

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; a closed pipe is told from an error."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            raise OutputClosed from None


@click.command(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Example: usher validate -f manifests/  ·  Exit codes: 0 clean, 1 violations, "
    "2 bad usage or input, 3 internal or cluster failure.",
)
@click.version_option(package_name="usher", message="usher %(version)s")
def usher() -> None:
    """Graceful, coordinated pod eviction for Kubernetes, and its enforcement."""


def main(args: Sequence[str] | None = None, **extra: Any) -> NoReturn:
    """Run ``usher`` with ``args`` (default: the process's own) and exit.

    ``extra`` goes to :meth:`click.Command.main`, such as ``prog_name``.
    """
    sys.exit(_run(args, **extra))


def _run(args: Sequence[str] | None, **extra: Any) -> int:
    try:
        # click takes colours out where the output is no terminal, but knows nothing of NO_COLOR.
        extra.setdefault("color", False if os.environ.get("NO_COLOR") else None)
        # Outside of standalone mode click returns the code of ctx.exit().
        code = usher.main(args=args, standalone_mode=False, **extra)
        sys.stdout.flush()
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except click.Abort:
        return INTERNAL
    except (OutputClosed, BrokenPipeError):
        # What is left in the buffer has nowhere to go; without this Python would complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return OUTPUT_CLOSED
    except Exception:  # noqa: BLE001 - the last line of defence: exit code 3, never 1
        traceback.print_exc()
        click.echo("usher: internal error; please report it with the lines above", err=True)
        return INTERNAL
    return code if isinstance(code, int) else CLEAN


if __name__ == "__main__":
    main()
