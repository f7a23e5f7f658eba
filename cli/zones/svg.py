"""The outlook as a picture: each zone's state, unhealthy nodes, and nodes being evicted."""

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from html import escape
from itertools import pairwise
from typing import Final, NamedTuple

from cli.zones.outlook import Outlook
from cli.zones.text import rate_text
from controller.simulation import Course, ZoneChange
from controller.zones import Zone, ZoneState, ZoneStatus
from rules.times import format_time
from webhook.review import printable

# Lengths are in the picture's own units, which are pixels unless it is scaled.
_WIDTH: Final = 960
_LEFT: Final = 60
_RIGHT: Final = 30
_TOP: Final = 64
_PANEL: Final = 110
_GAP: Final = 46
_TICKS: Final = 6
_COLOURS: Final = {
    ZoneState.NORMAL: "#e6f4ea",
    ZoneState.PARTIAL: "#fff1cc",
    ZoneState.FULL: "#fbdcd9",
}
_UNHEALTHY: Final = "#c5221f"
_EVICTED: Final = "#174ea6"


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
    yield f'<rect width="{_WIDTH}" height="{height}" fill="white"/>'
    yield _text(_LEFT, 22, title, size=15)
    yield from _legend()
    for position, zone in enumerate(zones):
        yield from _panel(course, zone, _TOP + position * (_PANEL + _GAP) + 16)
    yield "</svg>"


def _legend() -> Iterator[str]:
    x = _LEFT
    entries = [(str(state), colour) for state, colour in _COLOURS.items()]
    entries += [("unhealthy nodes", _UNHEALTHY), ("nodes being evicted", _EVICTED)]
    for label, colour in entries:
        yield f'<rect x="{x}" y="36" width="12" height="12" fill="{colour}" stroke="#999"/>'
        yield _text(x + 18, 46, label)
        x += 40 + 7 * len(label)


def _panel(course: Course, zone: Zone, top: float) -> Iterator[str]:
    changes = [change for change in course.zone_changes if change.zone == zone]
    most = max(change.status.nodes for change in changes)
    span = max(course.end - course.start, timedelta(seconds=1))
    scale = _Scale(course.start, span, top, most)
    yield _text(_LEFT, top - 5, printable(str(zone)), font_weight="bold")
    yield from _bands(changes, course.end, scale)
    unhealthy = [(change.time, change.status.unhealthy) for change in changes]
    yield _steps([*unhealthy, (course.end, unhealthy[-1][1])], scale, _UNHEALTHY)
    yield _steps(_evicted(course, zone), scale, _EVICTED)
    for count in (0, most):
        yield _text(_LEFT - 6, scale.y(count) + 4, str(count), anchor="end")
    for tick in range(_TICKS + 1):
        time = course.start + span * tick / _TICKS
        elapsed = timedelta(seconds=round((span * tick / _TICKS).total_seconds()))
        anchor = "end" if tick == _TICKS else "middle"
        yield _text(scale.x(time), top + _PANEL + 15, f"+{elapsed}", anchor=anchor)


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
            f'<rect x="{left}" y="{scale.top}" width="{round(right - left, 1)}" '
            f'height="{_PANEL}" fill="{_COLOURS[band.status.state]}" stroke="#ccc">'
            f"<title>{about}</title></rect>"
        )
        if right - left > 8 * len(rate_text(band.status.rate)):
            yield _text(left + 5, scale.top + 14, rate_text(band.status.rate), fill="#666")


def _looks(status: ZoneStatus) -> tuple[ZoneState, float]:
    return status.state, status.rate


def _steps(points: Iterable[tuple[datetime, int]], scale: _Scale, colour: str) -> str:
    """A line that stays level between two points."""
    parts: list[str] = []
    for time, count in points:
        x, y = scale.x(time), scale.y(count)
        parts.append(f"H{x}V{y}" if parts else f"M{x} {y}")
    return f'<path d="{"".join(parts)}" fill="none" stroke="{colour}" stroke-width="2"/>'


def _text(
    x: float, y: float, text: str, *, size: int = 12, anchor: str = "start", **style: str
) -> str:
    others = "".join(f' {name.replace("_", "-")}="{value}"' for name, value in style.items())
    return (
        f'<text x="{x}" y="{y}" font-size="{size}" text-anchor="{anchor}"{others}>'
        f"{escape(text)}</text>"
    )
