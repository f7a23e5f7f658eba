"""The outlook for people: a table of zones, and what comes next."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Final

import click

from cli.nodes.budgets import Refusal
from cli.nodes.outlook import Outlook
from controller.node_health.planning.simulation import Course, Departure, ZoneChange
from controller.node_health.planning.zones import Zone, ZoneState
from rules.texts import printable
from rules.times import format_time

_SHOWN: Final = 10
"""Turns that the table is followed by; more are for '-o json'."""
_HEADER: Final = ("ZONE", "STATE", "NODES", "UNHEALTHY", "RATE", "WAITING")
_BUDGET: Final = "BUDGET"
"""The last column, where a controller has told what zones may spend."""
_COLOURS: Final = {ZoneState.NORMAL: "green", ZoneState.PARTIAL: "yellow", ZoneState.FULL: "red"}
_STATE_COLUMN: Final = 1


def render(outlook: Outlook) -> Iterator[str]:
    """The lines; coloured, which click undoes where nobody sees it."""
    if outlook.is_simulated:
        yield from _happenings(outlook.course)
        yield ""
        yield from _summary(outlook.course)
    else:
        yield from _table(outlook)
        yield from _refused(outlook.refusals or ())
        yield from _next(outlook.course)


def rate_text(rate: float) -> str:
    """``rate`` in nodes per second, in words."""
    if rate <= 0:
        return "stopped"
    return f"{rate:g} nodes/s" if rate >= 1 else f"1 node in {1 / rate:.4g} s"


def counted(number: int, what: str) -> str:
    """``number`` of ``what``, which takes an s."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _table(outlook: Outlook) -> Iterator[str]:
    plan = outlook.plan
    header = _HEADER if outlook.budgets is None else (*_HEADER, _BUDGET)
    rows: list[tuple[tuple[str, ...], ZoneState | None]] = [(header, None)]
    for zone, status in plan.status.zones.items():
        waiting = len(plan.queues[zone]) + sum(turn.node.zone == zone for turn in plan.turns)
        cells: tuple[str, ...] = (
            printable(str(zone)),
            status.state,
            str(status.nodes),
            f"{status.unhealthy} ({status.unhealthy_fraction:.0%})",
            rate_text(status.rate),
            str(waiting),
        )
        if outlook.budgets is not None:
            cells += (f"{outlook.budgets[zone]:.0%}",)
        rows.append((cells, status.state))
    widths = [max(map(len, column)) for column in zip(*(cells for cells, _ in rows), strict=True)]
    for cells, state in rows:
        padded = [f"{cell:{width}}" for cell, width in zip(cells, widths, strict=True)]
        if state is not None:
            padded[_STATE_COLUMN] = click.style(padded[_STATE_COLUMN], fg=_COLOURS[state])
        yield "  ".join(padded).rstrip()
    if plan.status.is_down:
        yield "No node is healthy: it may be the control plane that is cut off. Nothing is evicted."


def _refused(refusals: Sequence[Refusal]) -> Iterator[str]:
    if not refusals:
        return
    yield ""
    yield click.style("Would not be evicted, because a PodDisruptionBudget refuses:", bold=True)
    for pod, node, budget, reason in refusals[:_SHOWN]:
        name = f"{pod.namespace}/{pod.name}"
        yield printable(f"  {name} on {node}: {budget}: {reason}")
    if len(refusals) > _SHOWN:
        yield f"  and {counted(len(refusals) - _SHOWN, 'more pod')}"


def _next(course: Course) -> Iterator[str]:
    until = format_time(course.end)
    yield ""
    if not course.departures:
        yield f"Nothing would be evicted until {until}."
        return
    yield click.style(f"Would be evicted until {until}, if nothing changes:", bold=True)
    for departure in course.departures[:_SHOWN]:
        yield f"  {_line(departure, 'asked to leave')}"
    if len(course.departures) > _SHOWN:
        yield f"  and {len(course.departures) - _SHOWN} more nodes"


def _happenings(course: Course) -> Iterator[str]:
    lines = [(change.time, 0, _change(change)) for change in course.zone_changes]
    lines += [(item.time, 1, _line(item, "no longer asked")) for item in course.withdrawals]
    lines += [(item.time, 2, _line(item, "asked to leave")) for item in course.departures]
    yield from (line for _, _, line in sorted(lines))


def _change(change: ZoneChange) -> str:
    status = change.status
    state = click.style(status.state, fg=_COLOURS[status.state])
    share = f"{status.unhealthy} of {status.nodes} nodes unhealthy"
    return f"{_place(change.time, change.zone)}  {state}: {share}; {rate_text(status.rate)}"


def _summary(course: Course) -> Iterator[str]:
    yield click.style(f"Until {format_time(course.end)}:", bold=True)
    for zone in sorted(course.waiting):
        asked = [item for item in course.departures if item.zone == zone]
        pods = sum(item.pods for item in asked)
        spared = sum(item.pods for item in course.withdrawals if item.zone == zone)
        yield (
            f"  {printable(str(zone))}: {counted(pods, 'pod')} of {counted(len(asked), 'turn')} "
            f"asked to leave, {spared} no longer; {counted(course.waiting[zone], 'node')} waiting"
        )


def _line(departure: Departure, what: str) -> str:
    pods = counted(departure.pods, "pod")
    place = _place(departure.time, departure.zone)
    return f"{place}  {printable(departure.node)}: {pods} {what}"


def _place(time: datetime, zone: Zone) -> str:
    return f"{format_time(time)}  {printable(str(zone))}"
