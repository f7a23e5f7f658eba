"""What would be evicted when, if nodes failed and recovered as a timeline has it.

Pure: plan after plan, without a clock. An eviction is taken to last until its node recovers, as it
does where no kubelet answers.
"""

import sys
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Annotated, Final, NamedTuple

from msgspec import Meta

from controller.node_health.planning.budget import CAPACITY, Budget
from controller.node_health.planning.plan import (
    TIMING,
    NodeHealthPlan,
    NodeHealthSnapshot,
    Timing,
    plan_node_health,
    request_key,
)
from controller.node_health.planning.pods import OwnRequest
from controller.node_health.planning.zones import DEFAULTS, Health, Limits, Node, Zone, ZoneStatus
from rules.api import ApiType, Time

HORIZON: Final = 3600.0
"""Seconds that are looked ahead, unless a timeline says otherwise."""


class TimelineError(ValueError):
    """A timeline means nothing for these nodes; the text says where and what is wanted."""


class TimelineEvent(ApiType):
    """Nodes fail or recover: those that are named, or those of a zone, or a fraction of them."""

    after_seconds: Annotated[float, Meta(ge=0, le=sys.float_info.max)] = 0.0
    state: str = ""
    """``ready``, ``not-ready`` or ``unreachable``."""
    nodes: tuple[str, ...] = ()
    zone: str | None = None
    """As the table of zones shows it; None: any."""
    fraction: Annotated[float, Meta(ge=0, le=1)] = 1.0
    """How many of them, the first ones by name, rounded to whole nodes."""


class Timeline(ApiType):
    """What happens to nodes."""

    start: Time | None = None
    until_seconds: Annotated[float, Meta(ge=0, le=366 * 24 * 3600)] = HORIZON
    """How long to look on, from the start."""
    events: tuple[TimelineEvent, ...] = ()


class Change(NamedTuple):
    """Nodes get into a state."""

    time: datetime
    nodes: tuple[str, ...]
    health: Health


class Departure(NamedTuple):
    """Pods of a node are asked to leave, or need not leave any more."""

    time: datetime
    zone: Zone
    node: str
    pods: int


class ZoneChange(NamedTuple):
    """From now on a zone stands so."""

    time: datetime
    zone: Zone
    status: ZoneStatus


@dataclass(slots=True)
class Course:
    """What would happen, each in order."""

    start: datetime
    end: datetime
    zone_changes: list[ZoneChange] = field(default_factory=list)
    departures: list[Departure] = field(default_factory=list)
    withdrawals: list[Departure] = field(default_factory=list)
    waiting: dict[Zone, int] = field(default_factory=dict)
    """How many nodes of each zone still wait for their turn at the end."""


def changes(timeline: Timeline, nodes: Iterable[Node], start: datetime) -> list[Change]:
    """The events of ``timeline``, for these ``nodes``, in order. Raises TimelineError."""
    known = sorted(nodes, key=lambda node: node.name)
    found = []
    for position, event in enumerate(timeline.events):
        where = f"events[{position}]"
        if event.state not in tuple(Health):
            raise TimelineError(f"{where}.state: must be one of {', '.join(Health)}")
        time = start + timedelta(seconds=min(event.after_seconds, timeline.until_seconds + 1))
        found.append(Change(time, _chosen(event, known, where), Health(event.state)))
    return sorted(found, key=lambda change: change.time)


def with_full_budgets(
    snapshot: NodeHealthSnapshot, now: datetime, limits: Limits
) -> NodeHealthSnapshot:
    """``snapshot`` as after a long time in which nothing had to be evicted."""
    full = Budget(now, CAPACITY, limits.eviction_rate)
    return replace(snapshot, budgets={node.zone: full for node in snapshot.nodes.values()})


def simulate(
    snapshot: NodeHealthSnapshot,
    happenings: Iterable[Change],
    start: datetime,
    duration: timedelta,
    limits: Limits = DEFAULTS,
    timing: Timing = TIMING,
    watch: Callable[[timedelta], object] = lambda _: None,
) -> Course:
    """What would happen in ``duration``; ``happenings`` in order of time.

    ``watch`` is told how far it has come.
    """
    run = _Run(snapshot, Course(start, start + duration), limits, timing)
    left = list(happenings)[::-1]
    now: datetime | None = start
    while now is not None and now <= run.course.end:
        while left and left[-1].time <= now:
            run.change(left.pop())
        watch(now - start)
        wait = run.tick(now)
        instants = [change.time for change in left[-1:]]
        if wait is not None and wait <= run.course.end - now:
            instants.append(now + wait)
        now = min(instants, default=None)
    return run.course


class _Run:
    """A simulation under way."""

    def __init__(
        self, snapshot: NodeHealthSnapshot, course: Course, limits: Limits, timing: Timing
    ) -> None:
        self.course = course
        self._limits = limits
        self._timing = timing
        self._nodes = dict(snapshot.nodes)
        self._pods = snapshot.pods
        self._requests = dict(snapshot.requests)
        self._budgets = snapshot.budgets
        self._outage = snapshot.outage
        self._seen: dict[Zone, ZoneStatus] = {}

    def change(self, change: Change) -> None:
        """Nodes fail or recover; who is in that state already stays so since then."""
        for name in change.nodes:
            node = self._nodes[name]
            if node.health is not change.health:
                changed = replace(node, health=change.health, since=change.time, down_since=None)
                self._nodes[name] = changed.after(node, change.time)

    def tick(self, now: datetime) -> timedelta | None:
        """Plan, and do what was planned; returns when to plan again."""
        snapshot = NodeHealthSnapshot(
            self._nodes, self._pods, self._requests, self._budgets, outage=self._outage
        )
        plan = plan_node_health(snapshot, now, self._limits, self._timing)
        self._budgets, self._outage = plan.budgets, plan.outage
        self._record_zones(plan, now)
        for node, pods in plan.turns + plan.tainted:
            for pod in pods:
                request = OwnRequest(request_key(pod), pod.uid, pod.key.name)
                self._requests[pod.uid] = request
            self.course.departures.append(Departure(now, node.zone, node.name, len(pods)))
        self._withdraw(plan, now)
        self.course.waiting = {zone: len(queue) for zone, queue in plan.queues.items()}
        return plan.requeue_after

    def _record_zones(self, plan: NodeHealthPlan, now: datetime) -> None:
        for zone, status in plan.status.zones.items():
            if self._seen.get(zone) != status:
                self._seen[zone] = status
                self.course.zone_changes.append(ZoneChange(now, zone, status))

    def _withdraw(self, plan: NodeHealthPlan, now: datetime) -> None:
        withdrawn: Counter[str] = Counter()
        for request in plan.withdrawals:
            withdrawn[self._pods.by_uid[request.pod_uid].node] += 1
            del self._requests[request.pod_uid]
        for name, pods in withdrawn.items():
            zone = self._nodes[name].zone if name in self._nodes else Zone()
            self.course.withdrawals.append(Departure(now, zone, name, pods))


def _chosen(event: TimelineEvent, known: list[Node], where: str) -> tuple[str, ...]:
    names = {node.name for node in known}
    for name in event.nodes:
        if name not in names:
            raise TimelineError(f"{where}.nodes: there is no node '{name}'")
    zones = {str(node.zone) for node in known}
    if event.zone is not None and event.zone not in zones:
        raise TimelineError(f"{where}.zone: must be one of {', '.join(sorted(zones))}")
    chosen = [
        node.name
        for node in known
        if (not event.nodes or node.name in event.nodes) and event.zone in (None, str(node.zone))
    ]
    return tuple(chosen[: round(event.fraction * len(chosen))])
