"""Cares for the pods of failed nodes: plans, and has requests made and taken back.

What a turn costs is in the Lease before its first request is sent, so that no leader after this one
spends it again. See ADR 61.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from itertools import compress
from typing import Final
from uuid import UUID

from cluster import clock
from cluster.client import Cluster
from cluster.failures import ClusterFailure, Missing
from cluster.informer import Informer
from cluster.key import Key
from cluster.leader_election import Lead
from cluster.recorder import Say
from cluster.resources import NODES
from cluster.store import Change
from controller.eviction.loop import Handler
from controller.eviction.planning.admission import as_request
from controller.eviction.planning.snapshot import Snapshot
from controller.eviction.routing import NODE_DEADLINE, NODE_REQUEST, PLANNING, Item
from controller.eviction.view import KnownPod, View
from controller.eviction.writer import Writer
from controller.metrics import Metrics
from controller.node_health.deadline import NodeDeadline
from controller.node_health.metrics import NodeMetrics, ZoneCollector
from controller.node_health.planning.plan import (
    REQUESTER,
    TIMING,
    NodeHealthPlan,
    Timing,
    Turn,
    plan_node_health,
    request_write,
)
from controller.node_health.planning.zones import DEFAULTS, Limits, Node
from controller.node_health.recorder import NodeRecorder
from controller.node_health.requests import NodeRequests, PretendedRequests
from controller.node_health.view import NodeView, read_node
from controller.node_health.zone_budgets import ZoneBudgets
from rules.api import EvictionRequest, Intent, PodReference
from rules.evaluate import evaluate

TICK: Final = Item(PLANNING, Key("", ""), "")
"""The one item that plans for all nodes."""
GATHERING_SECONDS: Final = 0.5
"""For how long further changes are waited for, so that a storm of them leads to few plans. Our own
choice: a plan takes up to a tenth of a second, and the rates are far slower."""
BLIND_SECONDS: Final = 5.0
"""Until it is looked again whether nodes can be read, or are what they were. Our own choice."""


@dataclass(frozen=True)
class NodeHealth:
    """How to care for the pods of failed nodes."""

    limits: Limits = DEFAULTS
    requester: str = REQUESTER
    dry_run: bool = False
    """Whether only to report what would be asked for."""
    timing: Timing = TIMING


def requester_error(requester: str) -> str | None:
    """Why no EvictionRequest can have ``requester``; None if one can."""
    pod = PodReference(name="pod", uid=str(UUID(int=0)))
    write = request_write(Key("default", "request"), pod, requester, Intent.EVICTION)
    denied = evaluate(as_request(write, Snapshot(), clock.now())).denied
    return denied[0].error.message if denied else None


class NodeReconciler:
    """Watches nodes, and plans again and again while this process leads."""

    def __init__(
        self,
        settings: NodeHealth,
        cluster: Cluster,
        view: View,
        writer: Writer,
        lead: Lead,
        say: Say,
        metrics: Metrics,
        add: Callable[[Item, float], None],
    ) -> None:
        """Bind to the parts of a controller; ``add`` adds an item to the queue, after seconds."""
        self._settings = settings
        self._cluster = cluster
        self._lead = lead
        self._add = add
        self._leading = False
        self._plan: NodeHealthPlan | None = None
        self._nodes = nodes = NodeView(settings.requester)
        self.counters = counters = NodeMetrics(metrics.registry)
        metrics.registry.register(ZoneCollector(lambda: self.plan, cluster.time.now))
        self.informer = Informer(
            cluster, NODES, read_node, nodes.store, self.node_changed, metrics.reading_failures
        )
        self._budgets = ZoneBudgets(cluster.time.now, lead.margin)
        self._requests = (
            PretendedRequests(nodes, counters)
            if settings.dry_run
            else NodeRequests(settings.requester, nodes, view, writer, self._budgets, counters)
        )
        self._deadline = NodeDeadline(cluster, nodes, self.informer, writer, say, counters)
        self._recorder = NodeRecorder(nodes, lead, say, counters, dry_run=settings.dry_run)

    @property
    def handlers(self) -> Mapping[str, Handler]:
        """The kinds of work that are done here."""
        return {
            PLANNING: self._tick,
            NODE_REQUEST: self._requests.run,
            NODE_DEADLINE: self._deadline.run,
        }

    async def begin(self) -> None:
        """This process leads from now on; returns when nodes are known as they are by now.

        Where they can't be read that may never be, while all other work goes on.
        """
        await self.informer.catch_up()
        self._requests.clear()
        self._deadline.clear()
        self._recorder.clear()
        self._budgets.begin(self._lead.inherited)
        self._leading = True
        self._add(TICK, 0.0)

    def end(self) -> None:
        """It does not any more. What zones may spend is still to be told to the next leader."""
        self._leading = False
        self._plan = None

    def node_changed(self, change: Change[Node]) -> None:
        """A node has come, gone, or changed in what counts."""
        self._plan_soon(self._nodes.node(change, self._budgets.now()))

    def pod_changed(self, change: Change[KnownPod]) -> None:
        """The same about a pod."""
        self._plan_soon(self._nodes.pod(change))

    def request_changed(self, change: Change[EvictionRequest]) -> None:
        """The same about an EvictionRequest."""
        self._plan_soon(self._nodes.request(change))

    def _plan_soon(self, is_called_for: bool) -> None:  # noqa: FBT001 - what each change says
        if is_called_for and self._leading:
            self._add(TICK, GATHERING_SECONDS)

    @property
    def plan(self) -> NodeHealthPlan | None:
        """The last plan, with the budgets of the present; None where this process does not lead."""
        return replace(self._plan, budgets=self._budgets.present()) if self._plan else None

    def note(self) -> str | None:
        """What the next leader is to know; None: nothing that is new."""
        return None if self._settings.dry_run else self._budgets.note()

    async def _tick(self, _: Item) -> timedelta | None:
        """Plan, and see to what is planned.

        Raises ClusterFailure where nodes can't be looked at or the Lease can't be written: then
        nobody has had a turn.
        """
        if self.informer.trouble is not None:
            # What was seen last is kept, but nobody is to lose a pod for news that may be old.
            return timedelta(seconds=BLIND_SECONDS)
        plan = self._new_plan()
        self._requests.end_turns(plan)
        self._budgets.after(plan.budgets, plan.outage)
        planned, tainted = plan.turns, self._requests.unscheduled(plan.tainted)
        turns, real = await self._pay(planned, tainted)
        plan = replace(plan, turns=turns, tainted=real)
        try:
            self._plan = plan
            self._recorder.tell(plan, self._requests.new_withdrawals(plan))
            for item in (*self._requests.schedule(plan), *self._deadline.schedule(plan)):
                self._add(item, 0.0)
        finally:
            self._close(plan.turns)
        waits = [plan.requeue_after, self._requests.next_release()]
        if len(plan.turns + plan.tainted) < len(planned + tainted):
            waits.append(timedelta(seconds=BLIND_SECONDS))
        return min((wait for wait in waits if wait is not None), default=None)

    def _new_plan(self) -> NodeHealthPlan:
        now = self._budgets.now()
        snapshot = self._nodes.snapshot(
            self._requests.known(),
            self._budgets.before(now),
            self._budgets.elapsed,
            self._budgets.outage,
        )
        return plan_node_health(snapshot, now, self._settings.limits, self._settings.timing)

    async def _pay(
        self, planned: tuple[Turn, ...], tainted: tuple[Turn, ...]
    ) -> tuple[tuple[Turn, ...], tuple[Turn, ...]]:
        """Those of both that are to be had. The ``planned`` turns among them are not closed yet.

        It is stored that they are paid for, and that they have not ended. The others cost nothing.
        """
        for turn in planned:
            self._budgets.open(turn.node.zone)
        try:
            real = await self._real(tainted)
            turns = await self._real(planned)
            if turns and not self._settings.dry_run:
                await self._lead.keep()
        except ClusterFailure:
            self._cancel(planned)
            raise
        self._cancel([turn for turn in planned if turn not in turns])
        return turns, real

    async def _real(self, turns: tuple[Turn, ...]) -> tuple[Turn, ...]:
        """Those of ``turns`` whose node is what the plan goes by. Raises ClusterFailure."""
        real = await asyncio.gather(*(self._is_as_seen(turn.node) for turn in turns))
        return tuple(compress(turns, real))

    async def _is_as_seen(self, node: Node) -> bool:
        """Whether ``node`` is at this moment what the plan goes by; else the view learns better.

        A watch may be silent for long before anybody notices. Raises ClusterFailure.
        """
        try:
            self.informer.learn(await self._cluster.get(NODES, Key("", node.name)))
        except Missing:
            return False  # the watch has yet to tell; its pods go with it
        return self._nodes.nodes.get(node.name) == node

    def _cancel(self, turns: Iterable[Turn]) -> None:
        """These turns do not come to be."""
        self._close(turns)
        for turn in turns:
            self._budgets.give_back(turn.node.zone, turn.node.name)

    def _close(self, turns: Iterable[Turn]) -> None:
        """From now on each request of these turns counts for itself."""
        for turn in turns:
            self._budgets.close(turn.node.zone, has_arrived=False)
