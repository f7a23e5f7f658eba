"""The flags that say which Lease is the controller's, for who holds it and for who reads it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from cluster.key import Key

CommandT = TypeVar("CommandT", bound=Callable[..., Any])

_NAMESPACE_FILE: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
"""Where the kubelet tells a pod its own namespace."""
_DEFAULT_NAMESPACE: Final = "kube-system"


def lease_options(command: CommandT) -> CommandT:
    """Add ``--lease-name`` and ``--lease-namespace``; see :func:`lease_from`."""
    for option in (
        click.option(
            "--lease-namespace",
            help="Namespace of the Lease.  [default: the pod's own, else kube-system]",
        ),
        click.option(
            "--lease-name", default="usher-controller", help="Name of the controller's Lease."
        ),
    ):
        command = option(command)
    return command


def lease_from(flags: dict[str, Any]) -> Key:
    """The Lease that these options name; takes them out of ``flags``."""
    name, namespace = flags.pop("lease_name"), flags.pop("lease_namespace")
    return Key(namespace or _own_namespace(), name)


def _own_namespace() -> str:
    try:
        return _NAMESPACE_FILE.read_text().strip() or _DEFAULT_NAMESPACE
    except OSError:
        return _DEFAULT_NAMESPACE
