"""``usher controller``: run the controller."""

import asyncio
import socket
import uuid
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import click
import uvloop

from cli import logs
from cli.exits import InputError
from cli.leases import lease_from, lease_options
from cli.nodes.rates import lead_from, lead_option, limits_from, node_rate_options
from cli.options import CONTEXT_SETTINGS, common_options, health_options
from cluster.configuration import ConfigurationError
from cluster.event import Level
from cluster.leader_election import Terms
from controller.app import Settings, run
from controller.eviction.planning.extras import Extras
from controller.node_health.planning.plan import Timing
from controller.node_health.reconciler import NodeHealth, requester_error
from rules.mutation import Mode

_TERMS: Final = Terms()
_SECONDS: Final = click.FloatRange(0.1, 3600)
_SPAN: Final = click.FloatRange(0, 10 * 365 * 24 * 3600)


_EPILOG: Final = """\b
Examples:
  usher controller --kubeconfig ~/.kube/config
  usher controller --log-format json
"""


@click.command(
    name="controller",
    context_settings=CONTEXT_SETTINGS,
    epilog=_EPILOG,
)
@click.option(
    "--kubeconfig",
    type=click.Path(dir_okay=False, path_type=Path),
    help="How to reach the API server, and as whom.  [default: the pod's service account]",
)
@click.option(
    "--mode",
    type=click.Choice([mode.value for mode in Mode]),
    callback=lambda _, __, value: Mode(value),
    default=Settings.mode.value,
    help="Where pods list their responders: in their spec (native) or in an annotation (crd). Auto "
    "looks into the spec first, and then at the annotation.",
)
@click.option(
    "--leader-elect/--no-leader-elect",
    default=True,
    help="Of several controllers let only the one that holds the Lease write.",
)
@lease_options
@click.option(
    "--lease-duration",
    type=_SECONDS,
    default=_TERMS.duration,
    help="Seconds after which a silent leader is replaced.",
)
@click.option(
    "--renew-deadline",
    type=_SECONDS,
    default=_TERMS.renew,
    help="Seconds without a renewal after which a leader stops writing.",
)
@click.option(
    "--retry-period",
    type=_SECONDS,
    default=_TERMS.retry,
    help="Seconds between two attempts to get or renew the Lease.",
)
@click.option(
    "--concurrency",
    type=click.IntRange(1, 64),
    default=Settings.workers,
    help="How many targets are worked on at once.",
)
@click.option(
    "--evictor/--no-evictor",
    default=Settings.evictor,
    help="Be the default responder, which evicts pods through the eviction subresource.",
)
@click.option(
    "--events",
    type=click.Choice([level.name.lower() for level in Level]),
    callback=lambda _, __, name: Level[name.upper()],
    default=Settings.events.name.lower(),
    help="Which Kubernetes Events to write on Evictions and their pods. Notable is what goes "
    "wrong, and how evictions of pods go that have responders of their own.",
)
@click.option(
    "--stand-down/--no-stand-down",
    default=Settings.stand_down,
    help="Leave the work to the cluster's own controller, where there is one (1.38 and newer).",
)
@click.option(
    "--damping",
    type=_SPAN,
    default=0,
    help="Seconds without a new Eviction after all responders were of no avail; 0: none.",
)
@click.option(
    "--eviction-deadline",
    type=_SPAN,
    default=0,
    help="Seconds after which an Eviction fails that has not ended; 0: never.",
)
@click.option(
    "--request-ttl",
    type=_SPAN,
    default=0,
    help="Seconds after which an EvictionRequest that has ended is deleted; 0: never.",
)
@click.option(
    "--orphan-ttl",
    type=_SPAN,
    default=0,
    help="Seconds after which an ended Eviction is deleted that has no requests; 0: never.",
)
@click.option(
    "--node-health/--no-node-health",
    default=False,
    help="Ask the pods of failed nodes to leave, zone by zone and at limited rates, and take that "
    "back when nodes recover.",
)
@click.option(
    "--node-health-dry-run",
    is_flag=True,
    help="Only report what --node-health would do, in logs and metrics.",
)
@click.option(
    "--node-health-requester",
    default=NodeHealth.requester,
    help="As whom the pods of failed nodes are asked to leave.",
)
@lead_option
@click.option(
    "--node-health-deadline",
    type=_SPAN,
    default=0,
    help="Seconds after which a pod of a failed node is deleted that was asked to leave and has "
    "not gone, whatever budgets and responders say; 0: never.",
)
@node_rate_options
@health_options(Settings.health_bind, Settings.health_port)
@common_options
def command(*, log_format: str, log_level: str, **flags: Any) -> None:
    """Run the controller: EvictionRequests become Evictions, responders take turns, pods go.

    Run several for availability: one leads, the others stand by. /livez, /readyz and /metrics are
    served over plain HTTP. SIGTERM and SIGINT end it and hand the lead over.
    """
    settings = _settings(**flags)
    logs.configure(log_format, log_level)
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(run(settings))
    except ConfigurationError as error:
        raise InputError(f"{error}. Outside of a cluster give --kubeconfig.") from None
    except OSError as error:
        raise InputError(f"{error.strerror}. Choose another --health-port.") from None


def _settings(
    *,
    concurrency: int,
    leader_elect: bool,
    **flags: Any,
) -> Settings:
    lease = lease_from(flags)
    terms = Terms(*map(flags.pop, ("lease_duration", "renew_deadline", "retry_period")))
    if not terms.retry < terms.renew < terms.duration:
        raise InputError("must be --retry-period < --renew-deadline < --lease-duration")

    def span(name: str) -> timedelta:
        return timedelta(seconds=flags.pop(name))

    extras = Extras(
        damping=span("damping"),
        request_ttl=span("request_ttl"),
        orphan_ttl=span("orphan_ttl"),
        deadline=span("eviction_deadline"),
    )
    return Settings(
        identity=f"{socket.gethostname()}_{uuid.uuid4()}",
        lease=lease if leader_elect else None,
        terms=terms,
        workers=concurrency,
        extras=extras,
        node_health=_node_health(flags),
        **flags,
    )


def _node_health(flags: dict[str, Any]) -> NodeHealth | None:
    """What is to be done about failed nodes; takes the flags about it out of ``flags``."""
    is_on, dry_run = flags.pop("node_health"), flags.pop("node_health_dry_run")
    limits, requester = limits_from(flags), flags.pop("node_health_requester")
    lead, seconds = lead_from(flags), flags.pop("node_health_deadline")
    timing = Timing(lead, timedelta(seconds=seconds) if seconds else None)
    if dry_run and not is_on:
        raise InputError("--node-health-dry-run needs --node-health")
    if error := requester_error(requester):
        raise InputError(f"--node-health-requester: {error}")
    return NodeHealth(limits, requester, dry_run, timing) if is_on else None
