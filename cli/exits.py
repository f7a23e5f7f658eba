"""How a command ends: exit codes, and the errors that carry them."""

from typing import Final

import click

CLEAN: Final = 0
VIOLATIONS: Final = 1
BAD_INPUT: Final = 2
INTERNAL: Final = 3
OUTPUT_CLOSED: Final = 128 + 13
"""What a shell reports of a program that SIGPIPE (13) ended. Neither clean nor violations: whoever
stops reading half-way does not know the verdict."""


class InputError(click.ClickException):
    """The usage or the input is wrong; the message says what is wanted. Exit code 2."""

    exit_code = BAD_INPUT


class ClusterError(click.ClickException):
    """The cluster, the network or the machine failed. Exit code 3."""

    exit_code = INTERNAL


class OutputClosed(Exception):  # noqa: N818 - an end, not an error
    """Whoever read the output (head, less) has enough."""
