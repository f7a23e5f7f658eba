"""The outlook as a picture: each zone's state, unhealthy nodes, and nodes being evicted."""

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from html import escape
from itertools import pairwise
from typing import Final, NamedTuple

from cli.nodes.outlook import Outlook
from cli.nodes.text import counted, rate_text
from controller.node_health.planning.simulation import Course, ZoneChange
from controller.node_health.planning.zones import Zone, ZoneState, ZoneStatus
from rules.texts import printable
from rules.times import format_time

# Lengths are in the picture's own units, which are pixels unless it is scaled.
_WIDTH: Final = 960
_LEFT: Final = 60
_RIGHT: Final = 30
_TOP: Final = 64
_PANEL: Final = 110
_GAP: Final = 46
_TICKS: Final = 6
_CLASSES: Final = {
    ZoneState.NORMAL: "normal",
    ZoneState.PARTIAL: "partial",
    ZoneState.FULL: "full",
}
_UNHEALTHY: Final = "unhealthy"
_EVICTED: Final = "evicted"
_STYLE: Final = """\
<style>
text{fill:#202124}.page{fill:#fff}.quiet{fill:#5f6368}.grid{stroke:#0003}
.normal{fill:#e6f4ea}.partial{fill:#fff1cc}.full{fill:#fbdcd9}
.unhealthy{fill:none;stroke:#b3261e;stroke-width:2.5;stroke-dasharray:7 4}
.evicted{fill:#174ea6;fill-opacity:.35;stroke:#174ea6;stroke-width:1.5}
@media (prefers-color-scheme:dark){
text{fill:#e8eaed}.page{fill:#1f1f1f}.quiet{fill:#bdc1c6}.grid{stroke:#fff3}
.normal{fill:#20382a}.partial{fill:#4a3c10}.full{fill:#54231f}
.unhealthy{stroke:#ff8a80}.evicted{fill:#8ab4f8;stroke:#8ab4f8}
}
</style>"""
"""Light or dark, as the reader's screen is."""


class _Scale(NamedTuple):
    """Where an instant and a number of nodes are in a panel."""

    start: datetime
    span: timedelta
    top: float
    nodes: int

    def x(self, time: datetime) -> float:
        return round(_LEFT + (time - self.start) / self.span * (_WIDTH - _LEFT - _RIGHT), 1)

    def y(self, count: int) -> float:
        return round(self.top + _PANEL * (1 - count / self.nodes), 1)


def render(outlook: Outlook) -> Iterator[str]:
    """The lines of an SVG document."""
    course = outlook.course
    zones = sorted({change.zone for change in course.zone_changes})
    height = _TOP + len(zones) * (_PANEL + _GAP)
    title = f"Node-health evictions from {format_time(course.start)} to {format_time(course.end)}"
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" '
        'font-family="sans-serif" font-size="12" role="img">'
    )
    yield f"<title>{title}</title>"
    yield _STYLE
    yield f'<rect class="page" width="{_WIDTH}" height="{height}"/>'
    yield _text(_LEFT, 22, title, size=15)
    yield from _legend()
    for position, zone in enumerate(zones):
        yield from _panel(course, zone, _TOP + position * (_PANEL + _GAP) + 16)
    yield "</svg>"


def _legend() -> Iterator[str]:
    x = float(_LEFT)
    for state, name in _CLASSES.items():
        yield f'<rect class="{name} grid" x="{x}" y="36" width="18" height="12"/>'
        yield _text(x + 24, 46, state)
        x += 52 + 7 * len(state)
    for label, name, shape in (
        ("unhealthy nodes", _UNHEALTHY, "m0 -6h18"),
        ("nodes being evicted", _EVICTED, "v-12h18v12Z"),
    ):
        yield f'<path class="{name}" d="M{x} 48{shape}"/>'
        yield _text(x + 24, 46, label)
        x += 52 + 7 * len(label)


def _panel(course: Course, zone: Zone, top: float) -> Iterator[str]:
    changes = [change for change in course.zone_changes if change.zone == zone]
    asked = (count for _, count in _evicted(course, zone))
    most = max(1, *(change.status.nodes for change in changes), *asked)
    span = max(course.end - course.start, timedelta(seconds=1))
    scale = _Scale(course.start, span, top, most)
    yield _text(_LEFT, top - 6, printable(str(zone)), font_weight="bold")
    yield _text(_WIDTH - _RIGHT, top - 6, _total(course, zone), anchor="end", quiet=True)
    yield from _bands(changes, course.end, scale)
    for tick in range(_TICKS + 1):
        time = course.start + span * tick / _TICKS
        x = scale.x(time)
        yield f'<path class="grid" d="M{x} {top}v{_PANEL}"/>'
        elapsed = timedelta(seconds=round((span * tick / _TICKS).total_seconds()))
        anchor = "end" if tick == _TICKS else "middle"
        yield _text(x, top + _PANEL + 15, f"+{elapsed}", anchor=anchor, quiet=True)
    for count in (0, most):
        yield _text(_LEFT - 6, scale.y(count) + 4, str(count), anchor="end", quiet=True)
    yield _text(_LEFT - 6, scale.y(0) - _PANEL / 2 + 4, "nodes", anchor="end", quiet=True)
    yield _area(_evicted(course, zone), scale)
    unhealthy = [(change.time, change.status.unhealthy) for change in changes]
    line = _steps([*unhealthy, (course.end, unhealthy[-1][1])], scale)
    yield f'<path class="{_UNHEALTHY}" d="{line}"/>'


def _total(course: Course, zone: Zone) -> str:
    turns = [item.pods for item in course.departures if item.zone == zone]
    spared = sum(item.pods for item in course.withdrawals if item.zone == zone)
    asked = f"{counted(sum(turns), 'pod')} asked to leave in {counted(len(turns), 'turn')}"
    return f"{asked}, {spared} no longer"


def _evicted(course: Course, zone: Zone) -> Iterator[tuple[datetime, int]]:
    """How many nodes have pods that are asked to leave."""
    happenings = [(item.time, item.node, True) for item in course.departures if item.zone == zone]
    happenings += [
        (item.time, item.node, False) for item in course.withdrawals if item.zone == zone
    ]
    evicted: set[str] = set()
    yield course.start, 0
    for time, node, is_asked in sorted(happenings):
        if is_asked:
            evicted.add(node)
        else:
            evicted.discard(node)
        yield time, len(evicted)
    yield course.end, len(evicted)


def _bands(changes: list[ZoneChange], end: datetime, scale: _Scale) -> Iterator[str]:
    """The state as the background; what is the same but for the number of nodes is one band."""
    last = ZoneChange(end, changes[-1].zone, changes[-1].status)
    bands: list[ZoneChange] = []
    for change in changes:
        if not bands or _looks(bands[-1].status) != _looks(change.status):
            bands.append(change)
    for band, following in pairwise([*bands, last]):
        left, right = scale.x(band.time), scale.x(following.time)
        about = f"{band.status.state}, {rate_text(band.status.rate)}"
        yield (
            f'<rect class="{_CLASSES[band.status.state]} grid" x="{left}" y="{scale.top}" '
            f'width="{round(right - left, 1)}" height="{_PANEL}">'
            f"<title>{about}</title></rect>"
        )
        rate = rate_text(band.status.rate)
        fitting = [label for label in (about, rate) if right - left > 7 * len(label) + 10]
        if fitting:
            yield _text(left + 5, scale.top + 14, fitting[0], quiet=True)


def _looks(status: ZoneStatus) -> tuple[ZoneState, float]:
    return status.state, status.rate


def _steps(points: Iterable[tuple[datetime, int]], scale: _Scale) -> str:
    """A line that stays level between two points."""
    parts: list[str] = []
    for time, count in points:
        x, y = scale.x(time), scale.y(count)
        parts.append(f"H{x}V{y}" if parts else f"M{x} {y}")
    return "".join(parts)


def _area(points: Iterable[tuple[datetime, int]], scale: _Scale) -> str:
    """What is below such a line, which begins with nothing."""
    return f'<path class="{_EVICTED}" d="{_steps(points, scale)}V{scale.y(0)}Z"/>'


def _text(
    x: float,
    y: float,
    text: str,
    *,
    size: int = 12,
    anchor: str = "start",
    quiet: bool = False,
    font_weight: str = "normal",
) -> str:
    kind = ' class="quiet"' if quiet else ""
    return (
        f'<text{kind} x="{x}" y="{y}" font-size="{size}" font-weight="{font_weight}" '
        f'text-anchor="{anchor}">{escape(text)}</text>'
    )
