"""The options that name RBAC manifests."""

from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

CommandT = TypeVar("CommandT", bound=Callable[..., Any])

DEFAULT_NAMESPACE: Final = "default"
"""Where kubectl works unless its configuration says otherwise."""


def rbac_options(command: CommandT) -> CommandT:
    """Add ``--rbac`` and ``--namespace``."""
    for option in (
        click.option(
            "-n",
            "--namespace",
            default=DEFAULT_NAMESPACE,
            metavar="NAMESPACE",
            help="Where objects belong that need a namespace and name none, as with kubectl.",
        ),
        click.option(
            "--rbac",
            multiple=True,
            metavar="FILE|DIR|-",
            help="Roles, ClusterRoles and their bindings: all that anybody may do, for the guards "
            "that ask what a user may. May be repeated; other kinds in there are left alone.",
        ),
    ):
        command = option(command)
    return command
