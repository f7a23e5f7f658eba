"""``usher nodes``: how the zones of a cluster stand, and whose pods would be evicted when."""

from datetime import UTC, datetime, timedelta
from typing import Any, Final

import click

from cli.exits import InputError
from cli.node_rates import limits_from, node_rate_options
from cli.options import CONTEXT_SETTINGS, common_options, now_option
from cli.zones import as_json, svg, text
from cli.zones.outlook import Outlook
from cli.zones.reading import Dump, read_dump, read_timeline
from controller import simulation
from controller.planning.node_health import plan_node_health
from controller.simulation import Timeline, TimelineError, changes, with_full_budgets
from controller.zones import Limits
from webhook.review import printable

_EPILOG: Final = """\b
Examples:
  kubectl get nodes,pods -A -o json | usher nodes -
  usher nodes cluster.json --simulate outage.yaml
  usher nodes cluster.json --simulate outage.yaml -o svg --node-eviction-rate 0.5 > outage.svg

\b
A timeline:
  untilSeconds: 3600
  events:
  - {afterSeconds: 0, zone: eu-1/a, fraction: 0.6, state: unreachable}
  - {afterSeconds: 900, zone: eu-1/a, state: ready}

States are ready, not-ready and unreachable; an event may also name its nodes: [node-1, node-2].

Exit codes: 0 shown, 2 bad usage or input, 3 internal failure.
"""


@click.command(name="nodes", context_settings=CONTEXT_SETTINGS, epilog=_EPILOG)
@click.argument("files", metavar="FILE|-...", nargs=-1, required=True)
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
@node_rate_options
@now_option
@common_options
def command(
    files: tuple[str, ...], simulate: str | None, output: str, now: datetime | None, **flags: Any
) -> None:
    """Show the zones of a cluster, and whose pods would be evicted when.

    Each FILE is a dump of nodes and, if it is to be known what is on them, of pods; with pods
    missing, each node is taken to have one that tolerates failures for 300 seconds.
    """
    limits = limits_from(flags)
    if simulate == "-" and "-" in files:
        raise InputError("--simulate -: standard input can be read only once")
    outlook = _outlook(read_dump(files), simulate, now, limits)
    if output == "json":
        click.echo(as_json.render(outlook))
    else:
        lines = svg.render(outlook) if output == "svg" else text.render(outlook)
        click.echo("\n".join(lines))
    if not outlook.knows_pods:
        click.echo("no pods in the input: one on each node is assumed", err=True)


def _outlook(dump: Dump, path: str | None, now: datetime | None, limits: Limits) -> Outlook:
    timeline = read_timeline(path) if path is not None else Timeline()
    start = now or timeline.start or datetime.now(UTC)  # noqa: TID251 - the rim: read once
    snapshot = with_full_budgets(dump.snapshot, start, limits)
    try:
        happenings = changes(timeline, snapshot.nodes.values(), start)
    except TimelineError as error:
        raise InputError(printable(f"{path}: {error}")) from None
    span = timedelta(seconds=timeline.until_seconds)
    return Outlook(
        start,
        plan_node_health(snapshot, start, limits),
        simulation.simulate(snapshot, happenings, start, span, limits),
        dump.knows_pods,
        is_simulated=path is not None,
    )
