"""The flags that say how fast failed nodes are evicted, for all commands that plan with them."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final, TypeVar

import click

from controller.node_health.planning.zones import DEFAULTS, Limits

CommandT = TypeVar("CommandT", bound=Callable[..., Any])

_RATE: Final = click.FloatRange(0, 1000)
"""Nodes per second; faster than anything can be evicted."""


def node_rate_options(command: CommandT) -> CommandT:
    """Add the four flags of the node controller that limit rates; see :func:`limits_from`."""
    for option in (
        click.option(
            "--large-cluster-size-threshold",
            type=click.IntRange(min=0),
            default=DEFAULTS.large_cluster_size_threshold,
            help="Nodes up to which a cluster is small: no evictions in partly disrupted zones.",
        ),
        click.option(
            "--unhealthy-zone-threshold",
            type=click.FloatRange(0, 1, min_open=True),
            default=DEFAULTS.unhealthy_zone_threshold,
            help="Fraction of unhealthy nodes from which on a zone is partly disrupted.",
        ),
        click.option(
            "--secondary-node-eviction-rate",
            type=_RATE,
            default=DEFAULTS.secondary_eviction_rate,
            help="Nodes per second in a partly disrupted zone of a large cluster.",
        ),
        click.option(
            "--node-eviction-rate",
            type=_RATE,
            default=DEFAULTS.eviction_rate,
            help="Nodes per second that are evicted in a zone.",
        ),
    ):
        command = option(command)
    return command


lead_option: Final = click.option(
    "--node-health-lead",
    type=click.IntRange(0, 10**9),
    default=0,
    help="Seconds before the end of its toleration at which a pod is asked to leave that has "
    "responders of its own.",
)
"""Where taint eviction can't be turned off; see :func:`lead_from`."""


def lead_from(flags: dict[str, Any]) -> timedelta:
    """The lead that the option describes; takes it out of ``flags``."""
    return timedelta(seconds=flags.pop("node_health_lead"))


def limits_from(flags: dict[str, Any]) -> Limits:
    """The limits that these options describe; takes them out of ``flags``."""
    return Limits(
        eviction_rate=flags.pop("node_eviction_rate"),
        secondary_eviction_rate=flags.pop("secondary_node_eviction_rate"),
        unhealthy_zone_threshold=flags.pop("unhealthy_zone_threshold"),
        large_cluster_size_threshold=flags.pop("large_cluster_size_threshold"),
    )
