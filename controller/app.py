"""The controller as a whole: watches, leads or stands by, works, answers questions about itself."""

import asyncio
import signal
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any, Final, TypeAlias

import structlog

from cluster.client import Cluster
from cluster.event import Level
from cluster.health import serving
from cluster.informer import Informer
from cluster.key import Key
from cluster.leader_election import Alone, Elector, Lead, Terms
from cluster.recorder import Recorder
from cluster.resources import EVICTION_REQUESTS, EVICTIONS, PODS
from cluster.store import Change
from cluster.work_queue import WorkQueue
from controller.eviction.loop import Handler, Loop, is_over
from controller.eviction.plan import Sync
from controller.eviction.planning.extras import Extras
from controller.eviction.reconciler import Reconciler
from controller.eviction.routing import EVICTIONS_POOL, EVICTOR, Item, Router
from controller.eviction.verification import Verifier
from controller.eviction.view import KnownPod, View, keep_eviction, keep_request, read_pod
from controller.eviction.writer import Writer
from controller.evictor.evictor import Evictor
from controller.metrics import Metrics, StateCollector
from controller.node_health.reconciler import NodeHealth, NodeReconciler
from controller.node_health.view import read_pod_on_node
from controller.other_controller import OtherController
from controller.policies import PolicyReconciler
from rules.api import Eviction, EvictionRequest
from rules.mutation import Mode

STUCK_SECONDS: Final = 600.0
"""No item takes so long: at most nine requests (a write, the same for a version, and a look at what
has come between, each sent again after a 401; what it claims), each of at most 30 s, and as much
again for a machine that is busy. Our own choice."""
SILENT_ELECTION_SECONDS: Final = 60.0
"""The election goes on every few seconds. Our own choice."""
_RELEASE_SECONDS: Final = 5.0

AnyInformer: TypeAlias = Informer[Any]

AGENT: Final = "usher-controller"
"""How API servers know the controller, in logs and audit."""

_log = structlog.get_logger()


@dataclass(frozen=True)
class Settings:
    """How to run."""

    kubeconfig: Path | None
    """None: in a cluster."""
    identity: str
    """Who this process is among the candidates."""
    lease: Key | None
    """None: there is no election."""
    terms: Terms = field(default_factory=Terms)
    mode: Mode = Mode.AUTO
    """Where pods list their responders; auto: in the field, or else in the annotation."""
    workers: int = 10
    evictor: bool = True
    events: Level = Level.NOTABLE
    stand_down: bool = True
    """Whether to leave the work to the cluster's own controller, where there is one."""
    extras: Extras = field(default_factory=Extras)
    node_health: NodeHealth | None = None
    """How to care for the pods of failed nodes; None: not at all."""
    health_bind: tuple[str, ...] = ("0.0.0.0", "::")  # noqa: S104 - the kubelet comes from outside
    health_port: int = 8080


async def run(settings: Settings) -> None:
    """Run until SIGTERM or SIGINT.

    Raises :class:`cluster.client.ConfigurationError`, and OSError for the health port.
    """
    task = asyncio.current_task()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, task.cancel if task else loop.stop)
    # Cancelled: told to go, and gone in good order.
    with suppress(asyncio.CancelledError):
        metrics = Metrics()
        async with Cluster(settings.kubeconfig, AGENT, observe=metrics.observe) as cluster:
            await Controller(cluster, settings, metrics).run()
    _log.info("stopped")


class Controller:
    """Everything, put together."""

    def __init__(self, cluster: Cluster, settings: Settings, metrics: Metrics) -> None:
        """``metrics`` count the requests of ``cluster``, too."""
        self._cluster = cluster
        self._settings = settings
        self._view = view = View()
        self._router = Router(view)
        # Half of those who call pods/eviction are left to other namespaces.
        self._queue: WorkQueue[Item] = WorkQueue(
            shares={EVICTIONS_POOL: max(1, settings.workers // 2)}
        )
        self._metrics = metrics
        self._leading = False
        self._other = OtherController(cluster, cluster.time.now) if settings.stand_down else None
        bad = metrics.reading_failures
        read = partial(read_pod_on_node if settings.node_health else read_pod, mode=settings.mode)
        self._pods = Informer(cluster, PODS, read, view.pods, self._pod_changed, bad)
        self._evictions = Informer(
            cluster,
            EVICTIONS,
            keep_eviction,
            view.evictions,
            self._eviction_changed,
            bad,
            self._other.saw if self._other is not None else lambda _: None,
        )
        self._requests = Informer(
            cluster, EVICTION_REQUESTS, keep_request, view.requests, self._request_changed, bad
        )
        self._lead = self._candidate(cluster)
        learn = {each.resource.name: each.learn for each in self._own_informers}
        writer = Writer(cluster, metrics, learn, self._lead.leads)
        self._events = Recorder(cluster, settings.events, metrics.events)
        tell = self._events.tell
        now = cluster.time.now
        verifier = Verifier(cluster, view, learn, self._lateness)
        evictor = Evictor(view, writer, verifier, metrics, tell, now)
        self._evictor = evictor if settings.evictor else None
        self._reconciler = Reconciler(
            view, writer, verifier, extras=self._extras, tell=tell, metrics=metrics, now=now
        )
        self._nodes = self._node_health(settings.node_health, writer)
        self._loop = Loop(self._queue, self._handlers(), metrics)
        collector = StateCollector(view, self._depth, self._heard, now, lambda: self._leading)
        metrics.registry.register(collector)
        metrics.clock_ahead.set_function(self._seconds_ahead)

    def _handlers(self) -> dict[str, Handler]:
        """Who does what."""
        handlers: dict[str, Handler] = dict.fromkeys(Sync, self._reconciler.run)
        if self._evictor is not None:
            handlers[EVICTOR] = self._evictor.run
        if self._nodes is not None:
            handlers |= self._nodes.handlers
        return handlers

    def _node_health(self, settings: NodeHealth | None, writer: Writer) -> NodeReconciler | None:
        if settings is None:
            return None
        metrics, say = self._metrics, self._events.say
        return NodeReconciler(
            settings, self._cluster, self._view, writer, self._lead, say, metrics, self._queue.add
        )

    def _candidate(self, cluster: Cluster) -> Lead:
        settings = self._settings
        if settings.lease is None:
            return Alone()
        won = self._metrics.lease_held.set
        return Elector(cluster, settings.lease, settings.identity, settings.terms, won, self._note)

    def _note(self) -> str | None:
        return self._nodes.note() if self._nodes else None

    @property
    def _own_informers(self) -> list[AnyInformer]:
        return [self._pods, self._evictions, self._requests]

    @property
    def _informers(self) -> list[AnyInformer]:
        own = self._own_informers
        return [*own, self._nodes.informer] if self._nodes else own

    async def run(self) -> None:
        """Do all work until cancelled, and answer questions about it."""
        settings = self._settings
        questions = serving(
            settings.health_bind,
            settings.health_port,
            not_live=self.not_live,
            not_ready=self.not_ready,
            registry=self._metrics.registry,
        )
        async with questions as addresses:
            _log.info("started", health=addresses, identity=settings.identity)
            await self.work()

    async def work(self) -> None:
        """Watch, lead and write until cancelled.

        What was begun is cut off then, and the lease is given back.
        """
        try:
            async with asyncio.TaskGroup() as group:
                for informer in self._informers:
                    group.create_task(informer.run())
                group.create_task(self._events.run())
                group.create_task(self._lead_and_write())
        finally:
            with suppress(TimeoutError):
                async with asyncio.timeout(_RELEASE_SECONDS):
                    await self._lead.release()

    async def _lead_and_write(self) -> None:
        """Lead whenever possible. Who stands by sees everything, and can start at once."""
        for informer in self._own_informers:
            await informer.synced.wait()
        while True:
            if self._other is not None:
                await self._stand_down(self._other)
            await self._lead.acquire()
            await self._work_while_leading()

    async def _stand_down(self, other: OtherController) -> None:
        """Leave the work to the cluster's own controller as long as there is one."""
        await other.look()
        reason = other.reason()
        if reason is None:
            return
        _log.warning(reason)
        await self._lead.release()
        self._metrics.stood_down.set(1)
        await other.leave()
        self._metrics.stood_down.set(0)
        _log.info("the cluster's own controller is gone")

    async def _work_while_leading(self) -> None:
        tasks = [
            asyncio.create_task(self._work_with_the_present()),
            asyncio.create_task(self._lead.hold()),
            asyncio.create_task(PolicyReconciler(self._cluster, self._view.pods).run()),
        ]
        if self._other is not None:
            tasks.append(asyncio.create_task(self._other.appear()))
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._leading = False
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            if self._nodes is not None:
                self._nodes.end()
        for task in done:
            task.result()  # a bug in the workers must not pass for a lost lead

    async def _work_with_the_present(self) -> None:
        """Work, once everything is known that the leader before has written."""
        async with asyncio.TaskGroup() as group:
            for informer in self._own_informers:
                group.create_task(informer.catch_up())
        self._queue.clear()
        self._leading = True
        self._add(self._router.everything())
        async with asyncio.TaskGroup() as group:
            if self._nodes is not None:
                group.create_task(self._nodes.begin())
            group.create_task(self._loop.run(self._settings.workers))

    # --- what happens in the cluster ------------------------------------------------------------

    def _pod_changed(self, change: Change[KnownPod]) -> None:
        if self._nodes is not None:
            self._nodes.pod_changed(change)
        if self._leading:
            self._add(self._router.pod(change))

    def _eviction_changed(self, change: Change[Eviction]) -> None:
        old, new = (entry.value if entry else None for entry in change)
        if old is not None and is_over(old, new):
            self._reconciler.forget(old)
            if self._evictor is not None:
                self._evictor.forget(old.metadata.uid)
        if self._leading:
            self._add(self._router.eviction(change))

    def _request_changed(self, change: Change[EvictionRequest]) -> None:
        if self._nodes is not None:
            self._nodes.request_changed(change)
        if self._leading:
            self._add(self._router.request(change))

    def _add(self, items: Iterable[Item]) -> None:
        for item in items:
            self._queue.add(item)

    # --- what others want to know ---------------------------------------------------------------

    def not_live(self) -> list[str]:
        """Why the process should be restarted; empty if it should not."""
        reasons = []
        if (longest := self._loop.longest_work()) > STUCK_SECONDS:
            reasons.append(f"a worker hangs: at one item for {longest:.0f} s")
        silent = monotonic() - self._lead.beat
        if self._leading and silent > SILENT_ELECTION_SECONDS:
            reasons.append(f"the leader election hangs: silent for {silent:.0f} s")
        return reasons

    def not_ready(self) -> list[str]:
        """Why nothing is to be expected of the process; a standby is ready."""
        reasons = [informer.trouble for informer in self._informers]
        reasons += [self._other.reason()] if self._other is not None else []
        return list(filter(None, reasons))

    def _lateness(self) -> str | None:
        """Why what is seen of pods, Evictions and their requests may be old."""
        return next(filter(None, (informer.lateness for informer in self._own_informers)), None)

    def _extras(self) -> Extras:
        return replace(self._settings.extras, trusts_clock=self._cluster.time.is_settled)

    def _seconds_ahead(self) -> float:
        return self._cluster.clock_ahead.total_seconds()

    def _depth(self) -> tuple[int, int]:
        return len(self._queue.schedule), self._queue.schedule.delayed

    def _heard(self) -> dict[str, float]:
        return {informer.resource.name: informer.heard for informer in self._informers}
