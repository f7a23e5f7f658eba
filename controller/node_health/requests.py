"""Makes, withdraws and deletes the EvictionRequests that plans about failed nodes call for.

Each is an item of the work queue, so that failures are handled as those of all other work: one
request that is refused holds up nobody.
"""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import timedelta
from time import monotonic
from typing import Final, NamedTuple

from cluster import clock
from cluster.failures import ClusterFailure, Denied, Missing, Refused, ServerFailure, Unreachable
from cluster.store import Entry
from controller.eviction.ownership import NODE_HEALTH_MANAGER
from controller.eviction.planning.admission import as_request
from controller.eviction.planning.snapshot import Snapshot
from controller.eviction.planning.writes import EVICTION_REQUESTS
from controller.eviction.routing import NODE_REQUEST, Item, target_uid
from controller.eviction.view import View
from controller.eviction.writer import RefusedPlanError, Writer
from controller.node_health.metrics import NodeMetrics
from controller.node_health.planning.plan import NodeHealthPlan, Turn, request_key, request_write
from controller.node_health.planning.pods import NodePod, OwnRequest
from controller.node_health.planning.zones import Node, Zone
from controller.node_health.view import NodeView
from controller.node_health.zone_budgets import ZoneBudgets
from rules.api import EvictionRequest, Intent, PodReference

REFUSED_SECONDS: Final = 300.0
"""For how long nobody asks again for a pod whose request was refused. Our own choice."""
_MAY_HAVE_WORKED: Final = (Unreachable, ServerFailure)
"""Failures of writes that may have had their effect nevertheless."""


class _Task(NamedTuple):
    """What to do about one EvictionRequest."""

    intent: Intent | None
    """What it is to say; None: it is to be deleted."""
    pod_name: str
    zone: Zone
    """That of the node."""
    is_limited: bool = True
    """Whether the zone's budget has paid for it."""


class _Refusal(NamedTuple):
    """A pod that is not asked for at present."""

    until: float
    """By the steady clock, in seconds."""
    stand_in: OwnRequest
    """What plans see in the place of a request."""


class NodeRequests:
    """What is to be done, and what has come of it."""

    def __init__(
        self,
        requester: str,
        nodes: NodeView,
        view: View,
        writer: Writer,
        budgets: ZoneBudgets,
        metrics: NodeMetrics,
    ) -> None:
        """``requester``: as whom pods are asked to leave."""
        self._requester = requester
        self._nodes = nodes
        self._view = view
        self._writer = writer
        self._budgets = budgets
        self._metrics = metrics
        self.clear()

    def clear(self) -> None:
        """Forget everything; nobody may be at work."""
        self._tasks: dict[Item, _Task] = {}
        self._opened: dict[Item, Zone] = {}
        """Those that :class:`ZoneBudgets` has been told of."""
        self._sending: set[Item] = set()
        self._refused: dict[str, _Refusal] = {}
        self._deleted: set[str] = set()
        """UIDs of requests that the watch has not told the end of."""
        self._is_down = False

    # --- for plans ------------------------------------------------------------------------------

    def known(self) -> dict[str, OwnRequest]:
        """UID of a pod → the request for it, or what stands in its place."""
        now = monotonic()
        self._refused = {uid: each for uid, each in self._refused.items() if each.until > now}
        return {uid: each.stand_in for uid, each in self._refused.items()} | self._nodes.requests()

    def next_release(self) -> timedelta | None:
        """When the next pod whose request was refused may be asked again."""
        until = min((each.until for each in self._refused.values()), default=None)
        return timedelta(seconds=max(until - monotonic(), 0.0)) if until is not None else None

    def end_turns(self, plan: NodeHealthPlan) -> None:
        """Give up what earlier turns have left over in zones where there is a new one.

        In a total outage that is everywhere: after it, everybody's grace starts anew.
        """
        zones = {turn.node.zone for turn in plan.turns}
        for item, task in tuple(self._tasks.items()):
            is_over = plan.status.is_down or (task.is_limited and task.zone in zones)
            if task.intent is Intent.EVICTION and is_over:
                self._finish(item)

    def schedule(self, plan: NodeHealthPlan) -> Iterator[Item]:
        """Take over what is to be done; gives the items that are new."""
        self._is_down = plan.status.is_down
        wanted = dict(self._wanted(plan))
        for item, task in tuple(self._tasks.items()):
            if task.intent is not Intent.EVICTION and item not in wanted:
                self._finish(item)
        for item, task in wanted.items():
            if self._tasks.get(item) == task:
                continue
            self._finish(item)
            self._tasks[item] = task
            if task.intent is Intent.EVICTION:
                self._open(item, task)
            yield item

    def unscheduled(self, turns: Iterable[Turn]) -> tuple[Turn, ...]:
        """What is new of ``turns`` that no budget pays for: plans have them until all is asked."""
        left = (
            Turn(node, tuple(pod for pod in pods if not self._is_scheduled(pod, node)))
            for node, pods in turns
        )
        return tuple(turn for turn in left if turn.pods)

    def _is_scheduled(self, pod: NodePod, node: Node) -> bool:
        item = Item(NODE_REQUEST, request_key(pod), pod.uid)
        return self._tasks.get(item) == _tainted(pod, node)

    def new_withdrawals(self, plan: NodeHealthPlan) -> list[OwnRequest]:
        """The requests to withdraw that no plan before has told of."""
        return [own for own in plan.withdrawals if self._intent(own) is not Intent.WITHDRAWN]

    def _intent(self, own: OwnRequest) -> Intent | None:
        task = self._tasks.get(Item(NODE_REQUEST, own.key, own.pod_uid))
        return task.intent if task is not None else None

    def _wanted(self, plan: NodeHealthPlan) -> Iterator[tuple[Item, _Task]]:
        for own in plan.withdrawals:
            node = self._nodes.node_of(own.pod_uid)
            task = _Task(Intent.WITHDRAWN, own.pod_name, node.zone if node else Zone())
            yield Item(NODE_REQUEST, own.key, own.pod_uid), task
        deletions = [self._view.requests.get(key) for key in plan.deletions]
        self._deleted &= {entry.uid for entry in deletions if entry}
        for entry in deletions:
            if entry is not None and entry.uid not in self._deleted:
                yield Item(NODE_REQUEST, entry.key, target_uid(entry.value)), _DELETE
        for turn in plan.turns:
            for pod in turn.pods:
                task = _Task(Intent.EVICTION, pod.key.name, turn.node.zone)
                yield Item(NODE_REQUEST, request_key(pod), pod.uid), task
        for node, pods in plan.tainted:
            for pod in pods:
                yield Item(NODE_REQUEST, request_key(pod), pod.uid), _tainted(pod, node)

    # --- the work -------------------------------------------------------------------------------

    async def run(self, item: Item) -> None:
        """Do what is to be done about one request, if anything still is.

        Raises what :meth:`controller.eviction.writer.Writer.apply` raises.
        """
        task = self._tasks.get(item)
        if task is None:
            return
        entry = self._view.requests.get(item.key)
        if task.intent is Intent.EVICTION:
            await self._ask(item, task, entry)
        elif entry is not None and task.intent is Intent.WITHDRAWN:
            await self._apply(item, task.pod_name, task.intent, entry.value)
            self._metrics.withdrawn.labels(*task.zone).inc()
        elif entry is not None:
            await self._delete(entry)
        if self._tasks.get(item) is task:
            self._finish(item)

    async def _ask(self, item: Item, task: _Task, entry: Entry[EvictionRequest] | None) -> None:
        node = self._nodes.node_of(item.target)
        if node is None or self._is_down or not self._nodes.has_to_leave(item.target):
            return  # nodes recover while requests wait
        if task.is_limited and node.is_healthy:
            return
        if entry is not None:
            self._refuse(item, task)  # its name is taken: nobody can ask for the pod
            return
        self._open(item, task)
        self._sending.add(item)
        try:
            await self._apply(item, task.pod_name, Intent.EVICTION)
        except (ClusterFailure, RefusedPlanError) as failure:
            self._close(item, has_arrived=isinstance(failure, _MAY_HAVE_WORKED))
            if isinstance(failure, (Denied, Refused, RefusedPlanError)):
                self._refuse(item, task)
            raise
        self._close(item, has_arrived=True)
        self._metrics.asked.labels(*task.zone).inc()

    async def _apply(
        self, item: Item, pod_name: str, intent: Intent, stored: EvictionRequest | None = None
    ) -> None:
        pod = PodReference(name=pod_name, uid=item.target)
        write = request_write(item.key, pod, self._requester, intent)
        known = Snapshot(eviction_requests=(stored,) if stored else ())
        judged = as_request(write, known, clock.now())
        await self._writer.apply(write, judged, NODE_HEALTH_MANAGER)

    async def _delete(self, entry: Entry[EvictionRequest]) -> None:
        with suppress(Missing):  # somebody was faster
            await self._writer.delete(EVICTION_REQUESTS, entry.key, entry.value.metadata)
        self._deleted.add(entry.uid)

    def _refuse(self, item: Item, task: _Task) -> None:
        stand_in = OwnRequest(item.key, item.target, task.pod_name, is_deleted=True)
        self._refused[item.target] = _Refusal(monotonic() + REFUSED_SECONDS, stand_in)
        self._finish(item)

    def _open(self, item: Item, task: _Task) -> None:
        if item not in self._opened and task.is_limited:
            self._opened[item] = task.zone
            self._budgets.open(task.zone)

    def _close(self, item: Item, *, has_arrived: bool) -> None:
        self._sending.discard(item)
        if item in self._opened:
            self._budgets.close(self._opened.pop(item), has_arrived=has_arrived)

    def _finish(self, item: Item) -> None:
        """There is nothing to be done about the request any more, or something else."""
        self._tasks.pop(item, None)
        if item in self._opened and item not in self._sending:
            self._close(item, has_arrived=False)


_DELETE: Final = _Task(None, "", Zone())


def _tainted(pod: NodePod, node: Node) -> _Task:
    return _Task(Intent.EVICTION, pod.key.name, node.zone, is_limited=False)


class PretendedRequests:
    """The same for a dry run: requests that are only taken to be made.

    Those of a former run in earnest do not count, nor are they touched.
    """

    def __init__(self, nodes: NodeView, metrics: NodeMetrics) -> None:
        self._nodes = nodes
        self._metrics = metrics
        self.clear()

    def clear(self) -> None:
        """Forget everything."""
        self._pretended: dict[str, OwnRequest] = {}

    def known(self) -> dict[str, OwnRequest]:
        """UID of a pod → the request for it."""
        return self._pretended

    def next_release(self) -> None:
        """Nobody refuses anything."""

    def end_turns(self, plan: NodeHealthPlan) -> None:
        """Nothing is left over."""

    def unscheduled(self, turns: Iterable[Turn]) -> tuple[Turn, ...]:
        """All: each plan's are carried out at once."""
        return tuple(turns)

    def new_withdrawals(self, plan: NodeHealthPlan) -> list[OwnRequest]:
        """The requests to withdraw: each plan's are carried out at once."""
        return list(plan.withdrawals)

    async def run(self, item: Item) -> None:
        """There are no items."""

    def schedule(self, plan: NodeHealthPlan) -> Iterator[Item]:
        """Do what is to be done."""
        for own in plan.withdrawals:
            del self._pretended[own.pod_uid]
            node = self._nodes.node_of(own.pod_uid)
            self._metrics.withdrawn.labels(*(node.zone if node else Zone())).inc()
        ended = set(plan.deletions)
        self._pretended = {u: own for u, own in self._pretended.items() if own.key not in ended}
        for turn in plan.turns + plan.tainted:
            self._metrics.asked.labels(*turn.node.zone).inc(len(turn.pods))
            for pod in turn.pods:
                self._pretended[pod.uid] = OwnRequest(request_key(pod), pod.uid, pod.key.name)
        return iter(())
