"""``usher nodes``: how the zones of a cluster stand, and whose pods would be evicted when."""

from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final

import click
from click.core import ParameterSource

from cli.exits import InputError
from cli.leases import lease_from, lease_options
from cli.nodes import as_json, svg, text
from cli.nodes.outlook import Outlook
from cli.nodes.rates import lead_from, lead_option, limits_from, node_rate_options
from cli.nodes.reading import Dump, read_dump, read_timeline
from cli.options import CONTEXT_SETTINGS, common_options, now_option
from cli.progress import counter
from cluster import clock
from cluster.key import Key
from controller.node_health.planning import simulation
from controller.node_health.planning.budget import Budget
from controller.node_health.planning.plan import REQUESTER, Timing, plan_node_health
from controller.node_health.planning.simulation import (
    Timeline,
    TimelineError,
    changes,
    with_full_budgets,
)
from controller.node_health.planning.zones import Limits
from rules.texts import printable

_EPILOG: Final = """\b
Examples:
  usher nodes --kubeconfig ~/.kube/config
  usher nodes --kubeconfig ~/.kube/config --simulate outage.yaml
  kubectl get nodes,pods,poddisruptionbudgets -A -o json | usher nodes -
  usher nodes cluster.json --simulate outage.yaml
  usher nodes cluster.json --simulate outage.yaml -o svg --node-eviction-rate 0.5 > outage.svg

\b
A timeline:
  untilSeconds: 3600
  events:
  - {afterSeconds: 0, zone: eu-1/a, fraction: 0.6, state: unreachable}
  - {afterSeconds: 900, zone: eu-1/a, state: ready}

States are ready, not-ready and unreachable; an event may also name its nodes: [node-1, node-2].

Exit codes: 0 shown, 2 bad usage or input, 3 internal or cluster failure.
"""


@click.command(name="nodes", context_settings=CONTEXT_SETTINGS, epilog=_EPILOG)
@click.argument("files", metavar="[FILE|-]...", nargs=-1)
@click.option(
    "--kubeconfig",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Without FILE: how to reach the API server, and as whom.  [default: the pod's service "
    "account]",
)
@click.option(
    "--simulate",
    metavar="FILE",
    help="Replay a timeline of node failures, and show what would be evicted when.",
)
@click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "json", "svg"]),
    default="text",
    help="How to show it; 'svg' is a picture.",
)
@click.option(
    "--node-health-requester",
    default=REQUESTER,
    help="As whom the controller asks the pods of failed nodes to leave.",
)
@lease_options
@lead_option
@node_rate_options
@now_option
@common_options
def command(
    files: tuple[str, ...], simulate: str | None, output: str, now: datetime | None, **flags: Any
) -> None:
    """Show the zones of a cluster, and whose pods would be evicted when.

    The cluster is read through its API. Each FILE is a dump of nodes instead and, if it is to be
    known what is on them, of pods and of PodDisruptionBudgets; with pods missing, each node is
    taken to have one that tolerates failures for 300 seconds. The rates are those of the flags
    here, not those of a controller.
    """
    limits, lease, timing = limits_from(flags), lease_from(flags), Timing(lead=lead_from(flags))
    if simulate == "-" and "-" in files:
        raise InputError("--simulate -: standard input can be read only once")
    timeline = read_timeline(simulate) if simulate is not None else Timeline()
    dump, present = _read(files, lease, flags)
    try:
        start = now or timeline.start or present
        outlook = _outlook(
            dump, timeline, start, (limits, timing), is_simulated=simulate is not None
        )
    except TimelineError as error:
        raise InputError(printable(f"{simulate}: {error}")) from None
    if output == "json":
        click.echo(as_json.render(outlook))
    else:
        lines = svg.render(outlook) if output == "svg" else text.render(outlook)
        click.echo("\n".join(lines))
    if not outlook.knows_pods:
        click.echo("no pods in the input: one on each node is assumed", err=True)


def _read(files: tuple[str, ...], lease: Key, flags: dict[str, Any]) -> tuple[Dump, datetime]:
    """The cluster, and the present."""
    kubeconfig, requester = flags["kubeconfig"], flags["node_health_requester"]
    if files:
        # In a configuration file that serves all commands it may stand; nobody types both.
        source = click.get_current_context().get_parameter_source("kubeconfig")
        if source is ParameterSource.COMMANDLINE:
            raise InputError("--kubeconfig is for a cluster: leave it out, or the FILEs")
        return read_dump(files, requester), clock.now()
    # Imported only when it is needed: the client takes longer than reading a small dump.
    from cli import logs  # noqa: PLC0415
    from cli.nodes.live import read_live  # noqa: PLC0415

    logs.configure(flags["log_format"], flags["log_level"])
    live = read_live(kubeconfig, requester, lease)
    return live.dump, live.now


def _outlook(
    dump: Dump,
    timeline: Timeline,
    start: datetime,
    settings: tuple[Limits, Timing],
    *,
    is_simulated: bool,
) -> Outlook:
    """What follows from it. Raises TimelineError."""
    limits, timing = settings
    nodes = {name: node.after(None, start) for name, node in dump.snapshot.nodes.items()}
    snapshot = replace(dump.snapshot, nodes=nodes)
    if not dump.knows_budgets:
        snapshot = with_full_budgets(snapshot, start, limits)
    happenings = changes(timeline, snapshot.nodes.values(), start)
    plan = plan_node_health(snapshot, start, limits, timing)
    span = timedelta(seconds=timeline.until_seconds)
    with counter("simulating", span.total_seconds()) as count:
        course = simulation.simulate(
            snapshot,
            happenings,
            start,
            span,
            limits,
            timing,
            lambda done: count(done.total_seconds()),
        )
    budgets = None
    if dump.knows_budgets:
        budgets = {
            zone: snapshot.budgets.get(zone, Budget(start)).advanced(status.rate, start).tokens
            for zone, status in plan.status.zones.items()
        }
    return Outlook(start, plan, course, dump.knows_pods, is_simulated, budgets, dump.refusals)
