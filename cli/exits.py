"""How a command ends: exit codes, and the errors that carry them."""

from typing import Final

import click

CLEAN: Final = 0
VIOLATIONS: Final = 1
BAD_INPUT: Final = 2
INTERNAL: Final = 3


class InputError(click.ClickException):
    """The usage or the input is wrong; the message says what is wanted. Exit code 2."""

    exit_code = BAD_INPUT


class ClusterError(click.ClickException):
    """The cluster, the network or the machine failed. Exit code 3."""

    exit_code = INTERNAL


class Interrupted(Exception):  # noqa: N818 - an end, not an error
    """The user interrupted the command."""
