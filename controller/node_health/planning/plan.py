"""The pods of failed nodes get an EvictionRequest each; nodes that recover take them back.

Source: Kubernetes' documentation of nodes, "Rate limits on eviction", with EvictionRequests in the
place of deletions. See ADR 60.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from cluster.key import Key
from controller.eviction.planning.writes import EVICTION_REQUEST_KIND, EVICTION_REQUESTS, Write
from controller.node_health.planning.budget import Budget, Waiting
from controller.node_health.planning.outage import Outage, grace_begins, outage_after
from controller.node_health.planning.pods import (
    GRACE,
    NodePod,
    OwnRequest,
    Pods,
    has_to_leave,
    tainted_at,
)
from controller.node_health.planning.zones import (
    DEFAULTS,
    ClusterStatus,
    Limits,
    Node,
    Zone,
    assess,
)
from rules.api import API_VERSION, Intent, PodReference

REQUESTER: Final = "node-health.usher.dev/controller"
"""As whom pods are asked to leave, unless configured otherwise."""
_AT_ONCE: Final = timedelta()
_NAME_PREFIX: Final = "node-health-"
"""Of the names of requests, before the UID of the pod."""


@dataclass(frozen=True, slots=True)
class NodeHealthSnapshot:
    """Everything that a plan may depend on, besides the instant."""

    nodes: Mapping[str, Node]
    """Name → node."""
    pods: Pods
    requests: Mapping[str, OwnRequest] = field(default_factory=dict)
    """UID of a pod → the EvictionRequest of our requester for it."""
    budgets: Mapping[Zone, Budget] = field(default_factory=dict)
    """What the plan before this one has left, or a leader before."""
    elapsed: timedelta = timedelta.max
    """Since the plan before this one, by ``time.monotonic``: no budget earns more when a clock is
    set. The first plan of a leader does not know."""
    outage: Outage | None = None
    """The last total outage, as the plan before this one has left it, or a leader before."""


@dataclass(frozen=True, slots=True)
class Timing:
    """When it is acted otherwise than the tolerations alone would have it. See ADR 64."""

    lead: timedelta = timedelta()
    """So much before the end of its toleration a pod is asked that has responders of its own."""
    deadline: timedelta | None = None
    """So long after it was asked a pod of a failed node is deleted; None: never."""


TIMING: Final = Timing()


class Turn(NamedTuple):
    """A node whose pods are asked to leave now."""

    node: Node
    pods: tuple[NodePod, ...]


@dataclass(frozen=True, slots=True)
class NodeHealthPlan:
    """What to do about failed and recovered nodes now."""

    status: ClusterStatus
    turns: tuple[Turn, ...]
    """At most one in each zone: EvictionRequests to create for the pods."""
    tainted: tuple[Turn, ...]
    """More of them, because of taints that are about something else than a node's health."""
    withdrawals: tuple[OwnRequest, ...]
    """Requests that nobody needs any more: the intent becomes Withdrawn."""
    deletions: tuple[Key, ...]
    """Requests that have come to their end."""
    overdue: tuple[OwnRequest, ...]
    """Requests whose pods are to be deleted, see :attr:`Timing.deadline`."""
    oldest: datetime | None
    """When the oldest request was made for a pod that is there, and not being deleted."""
    queues: Mapping[Zone, tuple[Waiting, ...]]
    """The nodes of each zone that wait after this, in the order of their turns."""
    budgets: Mapping[Zone, Budget]
    """For the next plan; to be stored before anything is asked of the pods of :attr:`turns`."""
    outage: Outage | None
    """For the next plan, and to be stored, too."""
    requeue_after: timedelta | None
    """When to plan again although nothing has changed; None: when something changes."""


@dataclass(slots=True)
class _Found:
    """The nodes with due pods, and when the next pods become due."""

    waiting: dict[Zone, list[Waiting]]
    lead: timedelta
    next_due: timedelta | None = None


def plan_node_health(
    snapshot: NodeHealthSnapshot,
    now: datetime,
    limits: Limits = DEFAULTS,
    timing: Timing = TIMING,
) -> NodeHealthPlan:
    """What to write at ``now``, what to remember, and when to look again.

    ``now`` is to be the API server's time (``Cluster.time``): it is compared with what is
    stored about nodes, and with the budgets that another leader has stored.

    Total and deterministic: no clock, no I/O, no exception.
    """
    status = assess(snapshot.nodes.values(), limits)
    outage = outage_after(snapshot.outage, now, is_down=status.is_down)
    snapshot = replace(snapshot, outage=outage)
    tainted, next_tainted = _tainted(snapshot, status, now, timing.lead)
    asked = {pod.uid: OwnRequest(request_key(pod), pod.uid, "") for t in tainted for pod in t.pods}
    if asked:
        snapshot = replace(snapshot, requests={**snapshot.requests, **asked})
    found = _find(snapshot, status, now, timing.lead)
    turns, queues, budgets = [], {}, {}
    for zone, zone_status in status.zones.items():
        waiting = found.waiting[zone]
        budget = snapshot.budgets.get(zone, Budget(now)).remembering(waiting)
        budget = budget.advanced(zone_status.rate, now, snapshot.elapsed)
        queue = budget.queue(waiting)
        if queue and budget.allows:
            node = snapshot.nodes[queue.pop(0).node]
            turns.append(Turn(node, _due_pods(node, snapshot, now, timing.lead)))
            budget = budget.spent(node.name)
        queues[zone], budgets[zone] = tuple(queue), budget
    withdrawals, deletions = _endings(snapshot, status, asked)
    standing = [own for own in snapshot.requests.values() if _stands(own, snapshot)]
    overdue, next_overdue = _overdue(standing, snapshot, status, now, timing.deadline)
    return NodeHealthPlan(
        status,
        tuple(turns),
        tainted,
        withdrawals,
        deletions,
        overdue,
        min((own.created for own in standing if own.created), default=None),
        queues,
        budgets,
        outage,
        _requeue((found.next_due, next_tainted, next_overdue), queues, budgets),
    )


def request_key(pod: NodePod) -> Key:
    """The EvictionRequest for ``pod``: one for each UID, and of a name short enough for any."""
    return Key(pod.key.namespace, request_name(pod.uid))


def request_name(pod_uid: str) -> str:
    """What the EvictionRequest for the pod with that UID is called."""
    return f"{_NAME_PREFIX}{pod_uid}"


def _find(
    snapshot: NodeHealthSnapshot, status: ClusterStatus, now: datetime, lead: timedelta
) -> _Found:
    found = _Found({zone: [] for zone in status.zones}, lead)
    for node in snapshot.nodes.values():
        if not node.is_healthy and node.since is not None:
            _look_at(node, grace_begins(node.since, snapshot.outage), snapshot, now, found)
    return found


def _look_at(
    node: Node, since: datetime, snapshot: NodeHealthSnapshot, now: datetime, found: _Found
) -> None:
    """Add an unhealthy node to what is ``found``. Called for each of thousands, with all its pods.

    A request of ours, whatever it wants, stands for its pod: a withdrawn one is deleted first.
    """
    elapsed, first = now - since, None
    requests, grace_of = snapshot.requests, GRACE[node.health]
    for pod in snapshot.pods.by_node.get(node.name, ()):
        if pod.uid in requests or (grace := grace_of(pod)) is None:
            continue
        if pod.has_responders:
            grace = _shortened(grace, found.lead)
        if grace > elapsed:
            left = grace - elapsed
            if found.next_due is None or left < found.next_due:
                found.next_due = left
        elif first is None or grace < first:
            first = grace
    if first is not None:
        found.waiting[node.zone].append(Waiting(since + first, node.name))


def _shortened(grace: timedelta, lead: timedelta) -> timedelta:
    return max(grace - lead, _AT_ONCE)


def _due_pods(
    node: Node, snapshot: NodeHealthSnapshot, now: datetime, lead: timedelta
) -> tuple[NodePod, ...]:
    """The pods that :func:`_look_at` has found to be due."""
    if node.since is None:
        return ()
    elapsed, grace_of = now - grace_begins(node.since, snapshot.outage), GRACE[node.health]
    return tuple(
        pod
        for pod in snapshot.pods.by_node.get(node.name, ())
        if pod.uid not in snapshot.requests
        and (grace := grace_of(pod)) is not None
        and (_shortened(grace, lead) if pod.has_responders else grace) <= elapsed
    )


def _tainted(
    snapshot: NodeHealthSnapshot, status: ClusterStatus, now: datetime, lead: timedelta
) -> tuple[tuple[Turn, ...], timedelta | None]:
    """The nodes with pods that are due because of other taints, and how long until the next are.

    Whoever has set the taint has chosen which nodes, and when: no rate limits that. See ADR 63.
    """
    turns: list[Turn] = []
    times: list[datetime] = []
    for node in snapshot.nodes.values():
        if not node.taints or status.is_down:
            continue
        due = [
            (time, pod)
            for pod in snapshot.pods.by_node.get(node.name, ())
            if pod.uid not in snapshot.requests
            and (time := tainted_at(pod, node, lead)) is not None
        ]
        times += [time for time, _ in due if time > now]
        pods = tuple(pod for time, pod in due if time <= now)
        if pods:
            turns.append(Turn(node, pods))
    return tuple(turns), min(times) - now if times else None


def _endings(
    snapshot: NodeHealthSnapshot, status: ClusterStatus, asked: Collection[str]
) -> tuple[tuple[OwnRequest, ...], tuple[Key, ...]]:
    """The requests to withdraw and those to delete; ``asked``: pods of which these are new."""
    nodes, pods, is_down = snapshot.nodes, snapshot.pods.by_uid, status.is_down
    withdrawals, deletions = [], []
    for request in snapshot.requests.values():
        pod = pods.get(request.pod_uid)
        if request.is_deleted or request.pod_uid in asked:
            continue
        if pod is None or request.is_evicted:
            deletions.append(request.key)
        elif not request.wants_eviction:
            if request.is_seen:
                deletions.append(request.key)
        elif is_down or _may_stay(pod, nodes.get(pod.node)):
            # One that failed for good was kept until now: else it would be made again and again.
            if request.is_done:
                deletions.append(request.key)
            else:
                withdrawals.append(request)
    return tuple(withdrawals), tuple(deletions)


def _stands(request: OwnRequest, snapshot: NodeHealthSnapshot) -> bool:
    """Whether the pod of ``request`` is asked to leave, is there, and is not being deleted."""
    pod = snapshot.pods.by_uid.get(request.pod_uid)
    is_over = request.is_deleted or request.is_evicted
    return pod is not None and not pod.stays and request.wants_eviction and not is_over


def _overdue(
    standing: Iterable[OwnRequest],
    snapshot: NodeHealthSnapshot,
    status: ClusterStatus,
    now: datetime,
    deadline: timedelta | None,
) -> tuple[tuple[OwnRequest, ...], timedelta | None]:
    """Those of the ``standing`` requests whose pods are to be deleted, and when the next ones are.

    Only on nodes that are down, and not while evictions in their zone are stopped.
    """
    overdue: list[OwnRequest] = []
    waits: list[timedelta] = []
    for own in standing if deadline is not None else ():
        pod = snapshot.pods.by_uid[own.pod_uid]
        node = snapshot.nodes.get(pod.node)
        if node is None or own.created is None or GRACE[node.health](pod) is None:
            continue
        if status.zones[node.zone].rate <= 0:
            continue
        left = own.created + (deadline or _AT_ONCE) - now
        if left <= _AT_ONCE:
            overdue.append(own)
        else:
            waits.append(left)
    return tuple(overdue), min(waits, default=None)


def _may_stay(pod: NodePod, node: Node | None) -> bool:
    """Whether ``pod`` needs to leave its ``node`` no more; with a node that is gone it is lost."""
    return node is not None and not has_to_leave(pod, node)


def _requeue(
    due: tuple[timedelta | None, ...],
    queues: Mapping[Zone, tuple[Waiting, ...]],
    budgets: Mapping[Zone, Budget],
) -> timedelta | None:
    waits = [budgets[zone].wait for zone, queue in queues.items() if queue]
    return min((wait for wait in (*waits, *due) if wait is not None), default=None)


def request_write(key: Key, pod: PodReference, requester: str, intent: Intent) -> Write:
    """Apply the EvictionRequest ``key`` for ``pod``: made if it does not exist, else changed.

    To be made while it is sent, because there may be one for each pod.
    """
    document = {
        "apiVersion": API_VERSION,
        "kind": EVICTION_REQUEST_KIND,
        "metadata": {"name": key.name, "namespace": key.namespace},
        "spec": {
            "target": {"pod": {"name": pod.name, "uid": pod.uid}},
            "requester": requester,
            "intent": str(intent),
        },
    }
    return Write(EVICTION_REQUESTS, key, document)
