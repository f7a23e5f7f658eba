"""The executable ``usher``: finds the command, reads the configuration, sets the exit code.

Exit codes: 0 clean, 1 violations, 2 bad usage or input, 3 internal or cluster failure.
"""

import importlib
import sys
import traceback
from collections.abc import Sequence
from typing import Any, Final, NoReturn

import click

from cli.exits import INTERNAL, Interrupted

_SUMMARIES: Final = {
    "crds": "Print the CustomResourceDefinitions, generated from the model.",
    "explain": "Explain a rule, or list all of them.",
    "replay": "Answer recorded admission requests.",
    "serve": "Run the admission webhook.",
    "validate": "Judge manifests offline.",
}
"""Command → what the overview says of it. Modules are imported only when their command runs, so
that ``usher --help`` and the short-lived commands do not wait for the web server's libraries."""


class Commands(click.Group):
    """The commands, each in the module ``cli.<name>`` as ``command``."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Every command's name."""
        return sorted(_SUMMARIES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return the command; None for an unknown one."""
        if cmd_name not in _SUMMARIES:
            return None
        command: click.Command = importlib.import_module(f"cli.{cmd_name}").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl(sorted(_SUMMARIES.items()))


@click.command(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Example: usher validate -f manifests/  ·  Exit codes: 0 clean, 1 violations, "
    "2 bad usage or input, 3 internal or cluster failure.",
)
@click.version_option(package_name="usher", message="usher %(version)s")
def usher() -> None:
    """Graceful, coordinated pod eviction for Kubernetes, and its enforcement."""


def main(arguments: Sequence[str] | None = None, **extra: Any) -> NoReturn:
    """Run ``usher`` with ``arguments`` (default: the process's own) and exit."""
    try:
        usher.main(args=arguments, standalone_mode=False, **extra)
    except click.exceptions.Exit as stop:
        sys.exit(stop.exit_code)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (click.Abort, Interrupted):
        sys.exit(INTERNAL)
    except BrokenPipeError:
        # The reader (head, less) has enough; not an error of ours. Closing standard error
        # keeps Python from complaining about the pipe while it shuts down.
        sys.stderr.close()
        sys.exit(0)
    except Exception:  # noqa: BLE001 - the last line of defence: exit code 3, never 1
        traceback.print_exc()
        click.echo("usher: internal error; please report it with the lines above", err=True)
        sys.exit(INTERNAL)
    sys.exit(0)


if __name__ == "__main__":
    main()
