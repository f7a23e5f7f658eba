"""Hours in the life of two controllers in virtual time, at random, and what may never happen then.

Watches are late, leaders take over, clocks jump, processes crash and come back, answers are lost;
users, responders and everybody else go on meanwhile. The whole program runs as it is, but for its
health port: informers, election, queue, planning and writing.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import Any, Final

import pytest
from structlog.testing import capture_logs

from cluster import pauses
from cluster.event import Level
from cluster.key import Key
from cluster.leader_election import Terms
from cluster.work_queue import WorkQueue
from controller import app, policies
from controller.app import Controller, Settings
from controller.eviction.planning.extras import Extras
from controller.eviction.planning.writes import EVICTION_REQUESTS, EVICTIONS, Write
from controller.metrics import Metrics
from rules.api import ResponderState
from rules.states import CLOCK_SKEW, HEARTBEAT_DEADLINE
from rules.times import format_time
from tests.controller import virtual_time
from tests.controller.api_world import PODS, Link, World
from tests.controller.objects import Document, target_of

POD_NAMES: Final = ("web-0", "web-1", "web-2")
RESPONDERS: Final = (("db.acme.io/failover", 20_000), ("acme.io/x", 1000))
REQUESTERS: Final = ("ops.acme.io/drain", "acme.io/x", "vpa.example.com/resize")
JUMPS: Final = tuple(timedelta(minutes=minutes) for minutes in (-25, -5, 5, 25))
STEPS: Final = 45
_LEASE: Final = Key("usher-system", "usher-controller")
_TERMS: Final = Terms(duration=18.0, renew=15.0, retry=8.0)
"""Long spans keep long schedules short; one who takes over does so within 30 s all the same."""
_SETTLING_MINUTES: Final = 240
_ABOUT_TIME: Final = (
    "completion-times",
    "expected-completion-times",
    "heartbeat-times",
    "silence-before-handover",
    "start-times",
)
"""The rules that compare with the present."""
_FRESH_SECONDS: Final = 60.0
"""A wish that is younger may cross with what is said at the same time."""


class Process:
    """One replica, which may crash and come back."""

    def __init__(self, world: World, name: str, loss: float, extras: Extras) -> None:
        self._world = world
        self.name = name
        self._loss = loss
        self._extras = extras
        self._task: asyncio.Task[None] | None = None
        self.link = Link(world, loss)
        self.metrics: list[Metrics] = []

    @property
    def runs(self) -> bool:
        return self._task is not None and not self._task.done()

    def start(self) -> None:
        self.link = Link(self._world, self._loss)
        self.metrics.append(Metrics())
        settings = Settings(
            kubeconfig=None,
            identity=self.name,
            lease=_LEASE,
            terms=_TERMS,
            workers=3,
            events=Level.NONE,
            stand_down=False,
            extras=self._extras,
        )
        cluster: Any = self.link
        self._task = asyncio.create_task(Controller(cluster, settings, self.metrics[-1]).work())

    async def stop(self, *, crashes: bool) -> None:
        """End; who ``crashes`` does not give the lead back."""
        if self._task is None:
            return
        if crashes:
            self.link.cut_until = float("inf")
        task, self._task = self._task, None
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    def bugs(self) -> Iterator[str]:
        """What the program itself calls one."""
        for metrics in self.metrics:
            for family in metrics.registry.collect():
                for sample in family.samples:
                    is_bug = sample.labels.get("kind") == "bug"
                    if sample.value and (is_bug or "refused_writes_total" in sample.name):
                        yield f"{sample.name} {sample.labels}"


class Schedule:
    """One random course of events, and what it shows."""

    def __init__(self, seed: int) -> None:
        self._chance = chance = random.Random(seed)
        self._world = world = World(chance)
        world.changed, world.refused = self._see, self._see_refusal
        loss = chance.choice([0.0, 0.0, 0.02, 0.2])
        extras = Extras(
            request_ttl=timedelta(hours=chance.choice([0, 0, 1, 24])),
            orphan_ttl=timedelta(hours=chance.choice([0, 1])),
        )
        self._processes = [Process(world, name, loss, extras) for name in ("one", "two")]
        self._life: dict[tuple[str, str], float] = {}
        """Eviction's UID and responder → when the responder last showed life."""
        self._asked: dict[str, float] = {}
        """Name of a request → since when it wants its pod gone."""
        self._moods: dict[tuple[str, str], str] = {}
        self._is_settling = False
        self._jumps = chance.choice([0, 0, 1, 2, 4])
        self._last_jump = float("-inf")
        self.found: list[str] = []
        """What should never happen, and did."""
        self.log: list[str] = []

    async def run(self) -> None:
        """Live through everything, and then let all end."""
        for process in self._processes:
            process.start()
        responders = asyncio.create_task(self._respond())
        steps = [step for step, weight in _WEIGHTS.items() for _ in range(weight)]
        for _ in range(STEPS):
            await asyncio.sleep(self._chance.choice([0.01, 0.3, 2.0, 20.0, 90.0, 240.0]))
            step = self._chance.choice(steps)
            self._note(step.__name__.strip("_"))
            await step(self)
        await self._settle()
        responders.cancel()
        for process in self._processes:
            await process.stop(crashes=False)
            self.found += process.bugs()

    def _note(self, text: str) -> None:
        self.log.append(f"{self._world.seconds:10.2f} {text}")

    # --- what happens ---------------------------------------------------------------------------

    async def _create_pod(self) -> None:
        name = self._chance.choice(POD_NAMES)
        if name not in self._world.store.pods:
            count = self._chance.choice([0, 1, 1, 1, 2])
            with self._world.change() as store:
                store.create_pod(name, self._chance.sample(RESPONDERS, count))

    async def _create_request(self) -> None:
        if pod := self._pick(self._world.store.pods):
            with self._world.change() as store:
                requester = self._chance.choice(REQUESTERS)
                store.create_request(target_of(store.pods[pod]), requester, "Eviction")

    async def _withdraw(self) -> None:
        if name := self._pick(self._world.store.requests):
            with self._world.change() as store:
                store.flip_request(name, "Withdrawn")

    async def _want_again(self) -> None:
        if name := self._pick(self._world.store.requests):
            with self._world.change() as store:
                store.flip_request(name, "Eviction")

    async def _delete_request(self) -> None:
        if name := self._pick(self._world.store.requests):
            held = self._chance.random() < 0.3
            with self._world.change() as store:
                store.delete_request(name, held=held)
            loop = asyncio.get_running_loop()
            loop.call_later(self._chance.choice([0.1, 5, 60]), self._collect_garbage)

    def _collect_garbage(self) -> None:
        with self._world.change() as store:
            store.collect_garbage()

    async def _delete_pod(self) -> None:
        if name := self._pick(self._world.store.pods):
            self._world.end_pod(name, timedelta(seconds=self._chance.choice([0, 30])))

    async def _replace_pod(self) -> None:
        """As the controller of a StatefulSet does it."""
        if name := self._pick(self._world.store.pods):
            self._world.end_pod(name, timedelta())
            await asyncio.sleep(0.01)
            if name not in self._world.store.pods:
                with self._world.change() as store:
                    store.create_pod(name, self._chance.sample(RESPONDERS, 1))

    async def _finish_pod(self) -> None:
        if name := self._pick(self._world.store.pods):
            with self._world.change() as store:
                store.finish_pod(name, store.now - timedelta(seconds=self._chance.choice([0, 60])))

    async def _close_budget(self) -> None:
        self._world.is_budget_open = False

    async def _open_budget(self) -> None:
        self._world.is_budget_open = True

    async def _jump(self) -> None:
        if self._jumps > 0:
            self._jumps -= 1
            self._last_jump = self._world.seconds
            self._world.jumped += self._chance.choice(JUMPS)
            self._note(f"the clock is {self._world.jumped} ahead")

    async def _crash(self) -> None:
        process = self._chance.choice(self._processes)
        await process.stop(crashes=self._chance.random() < 0.7)

    async def _start(self) -> None:
        for process in self._processes:
            if not process.runs:
                process.start()

    async def _deafen(self) -> None:
        link = self._chance.choice(self._processes).link
        resource = self._chance.choice(sorted(link.deaf_until))
        until = self._world.seconds + self._chance.choice([1, 10, 100, 140, 600])
        link.deaf_until[resource] = max(until, link.deaf_until[resource])
        self._note(f"{resource} until {until:.0f}")

    async def _act_unheard(self) -> None:
        """Much happens while nobody's watch tells of it."""
        resource = self._chance.choice((PODS, EVICTIONS, EVICTION_REQUESTS))
        until = self._world.seconds + self._chance.choice([5, 60, 140, 600])
        for process in self._processes:
            process.link.deaf_until[resource] = until
        self._note(f"{resource} until {until:.0f}")
        for _ in range(self._chance.randint(2, 5)):
            await asyncio.sleep(self._chance.choice([0.01, 1.0, 6.0]))
            step = self._chance.choice(_UNHEARD)
            self._note(step.__name__.strip("_"))
            await step(self)

    async def _take_over(self) -> None:
        """Whoever leads is gone, and somebody else has to go on."""
        lease = self._world.leases.get(_LEASE, {"spec": {}})
        for process in self._processes:
            if process.name == lease["spec"].get("holderIdentity"):
                await process.stop(crashes=True)
            elif not process.runs:
                process.start()

    async def _cut(self) -> None:
        link = self._chance.choice(self._processes).link
        until = self._world.seconds + self._chance.choice([1, 12, 40, 300])
        link.cut_until = max(until, link.cut_until)

    def _pick(self, documents: dict[str, Document]) -> str | None:
        return self._chance.choice(sorted(documents)) if documents else None

    # --- responders -----------------------------------------------------------------------------

    async def _respond(self) -> None:
        while True:
            await asyncio.sleep(self._chance.uniform(20, 90))
            for name, eviction in list(self._world.store.evictions.items()):
                status = eviction.get("status", {})
                for target in status.get("targetResponders", []):
                    if (
                        target["state"] == ResponderState.ACTIVE
                        and "/evictor" not in target["name"]
                    ):
                        self._respond_to(name, eviction, target["name"])

    def _respond_to(self, name: str, eviction: Document, responder: str) -> None:
        key = (eviction["metadata"]["uid"], responder)
        moods = ("silent", "busy", "busy", "done", "deletes")
        mood = self._moods.setdefault(key, self._chance.choice(moods))
        entry = next(r for r in eviction["status"]["responders"] if r["name"] == responder)
        waited = self._world.seconds - self._life.get(key, 0)
        if self._is_settling or mood == "silent" or waited < self._chance.choice([60, 300, 1000]):
            return
        pod = eviction["spec"]["target"]["pod"]
        with self._world.change() as store:
            now = format_time(store.now)
            changes = {"heartbeatTime": now}
            if "startTime" not in entry:
                changes["startTime"] = now
            if mood == "done" and self._chance.random() < 0.3:
                changes["completionTime"] = now
            store.report(name, responder, changes)
        # Whoever tried has shown life, as far as a clock that was set lets anybody.
        self._life[key] = self._world.seconds
        if self._chance.random() < 0.1:
            self._moods[key] = "silent"
        stored = self._world.store.pods.get(pod["name"])
        is_there = stored is not None and stored["metadata"]["uid"] == pod["uid"]
        if mood == "deletes" and is_there and self._chance.random() < 0.3:
            self._world.end_pod(pod["name"], timedelta(seconds=1))

    # --- the end --------------------------------------------------------------------------------

    async def _settle(self) -> None:
        """Nothing is in the way any more, responders are silent: what is asked for comes true."""
        self._note("settles")
        await self._start()
        self._world.is_budget_open = True
        for process in self._processes:
            link = process.link
            link.cut_until, link.deaf_until = 0.0, dict.fromkeys(link.deaf_until, 0.0)
        self._is_settling = True
        for _ in range(_SETTLING_MINUTES):
            if not any(self._waiting()):
                return
            await asyncio.sleep(60)
        self.found += [f"never came true: {name}" for name in self._waiting()]

    def _waiting(self) -> Iterator[str]:
        store = self._world.store
        alive = {pod["metadata"]["uid"] for pod in store.pods.values() if not _has_ended(pod)}
        for name, request in store.requests.items():
            is_told = bool(_final(request))
            if _wants(request) and not (is_told and _target_uid(request) not in alive):
                yield name
        for name, eviction in store.evictions.items():
            if not _final(eviction):
                yield name

    # --- what may never happen ------------------------------------------------------------------

    def _see(self, resource: str, before: Document | None, after: Document | None) -> None:
        if resource == EVICTION_REQUESTS:
            self._see_request(before, after)
        if resource in (EVICTIONS, EVICTION_REQUESTS) and after is not None:
            for reason in sorted(_final(after) - (_final(before) if before else set())):
                self._note(f"{after['metadata']['name']}: {reason}")
                self._see_end(after, reason)
        if resource == EVICTIONS and after is not None:
            self._see_turns(before, after)

    def _see_request(self, before: Document | None, after: Document | None) -> None:
        name = (after or before or {})["metadata"]["name"]
        if after is None or not _wants(after):
            self._asked.pop(name, None)
        else:
            self._asked.setdefault(name, self._world.seconds)

    def _see_end(self, document: Document, end: tuple[str, str]) -> None:
        """An Eviction or a request says something for good."""
        type_, reason = end
        store, uid = self._world.store, _target_uid(document)
        pod = next((p for p in store.pods.values() if p["metadata"]["uid"] == uid), None)
        name = document["metadata"]["name"]
        says_gone = type_ == "TargetEvicted" or reason == "EvictionInvalid"
        if says_gone and pod and not _has_ended(pod):
            self._complain(f"{name}: {type_} ({reason}), but the pod lives")
        # A request repeats what the Eviction before has said, until there is a new one.
        if reason == "CanceledDueToNoRequesters" and document["kind"] == "Eviction":
            for asking, since in self._asked.items():
                is_fresh = self._world.seconds - since < _FRESH_SECONDS
                if _target_uid(store.requests[asking]) == uid and not is_fresh:
                    self._complain(f"{name} is canceled, but {asking} asks")

    def _see_turns(self, before: Document | None, after: Document) -> None:
        uid = after["metadata"]["uid"]
        was = _states(before) if before else {}
        for responder, state in _states(after).items():
            if state == was.get(responder):
                continue
            self._note(f"{after['metadata']['name']}: {responder} {state}")
            if state == ResponderState.ACTIVE:
                self._life[uid, responder] = self._world.seconds
            elif state == ResponderState.INTERRUPTED:
                self._see_interruption(after, responder)

    def _see_interruption(self, eviction: Document, responder: str) -> None:
        uid = _target_uid(eviction)
        pods = self._world.store.pods.values()
        is_there = any(p["metadata"]["uid"] == uid and not _has_ended(p) for p in pods)
        silent = self._world.seconds - self._life[eviction["metadata"]["uid"], responder]
        if is_there and silent < (HEARTBEAT_DEADLINE - CLOCK_SKEW).total_seconds():
            self._complain(f"{responder} was interrupted, silent for {silent:.0f} s only")

    def _see_refusal(self, write: Write, why: list[str]) -> None:
        if self._may_be_refused(write, why):
            self._note(f"admission refused a write of {write.key.name}: {why}")
            return
        self._complain(f"admission refused a write of {write.key.name}: {why}")

    def _may_be_refused(self, write: Write, why: list[str]) -> bool:
        """The clock has been set a moment ago, or a name was taken a moment ago.

        What is on its way while the clock is set bears times of before, and is planned again.
        """
        has_jumped = self._world.seconds - self._last_jump < _FRESH_SECONDS
        if has_jumped and all(each.partition(":")[0] in _ABOUT_TIME for each in why):
            return True
        is_taken = write.key.name in self._world.store.stored[write.resource]
        is_creation = not write.subresource and "uid" not in write.apply["metadata"]
        return is_taken and is_creation and "spec.target" in why[0]

    def _complain(self, text: str) -> None:
        self._note(text)
        self.found.append(text)


def _wants(request: Document) -> bool:
    is_going = "deletionTimestamp" in request["metadata"]
    return request["spec"]["intent"] == "Eviction" and not is_going


def _target_uid(document: Document) -> str:
    return str(document["spec"]["target"]["pod"]["uid"])


def _has_ended(pod: Document) -> bool:
    return pod["status"]["phase"] in ("Succeeded", "Failed")


def _final(document: Document) -> set[tuple[str, str]]:
    conditions = document.get("status", {}).get("conditions", [])
    return {(each["type"], each["reason"]) for each in conditions if each["status"] == "True"}


def _states(eviction: Document) -> dict[str, str]:
    listed = eviction.get("status", {}).get("targetResponders", [])
    return {each["name"]: each["state"] for each in listed}


_WEIGHTS: Final[dict[Callable[[Schedule], Awaitable[None]], int]] = {
    Schedule._create_pod: 6,
    Schedule._create_request: 6,
    Schedule._withdraw: 1,
    Schedule._want_again: 1,
    Schedule._delete_request: 1,
    Schedule._delete_pod: 1,
    Schedule._replace_pod: 1,
    Schedule._finish_pod: 1,
    Schedule._close_budget: 1,
    Schedule._open_budget: 2,
    Schedule._jump: 3,
    Schedule._crash: 2,
    Schedule._start: 4,
    Schedule._deafen: 2,
    Schedule._act_unheard: 5,
    Schedule._take_over: 3,
    Schedule._cut: 2,
}
_UNHEARD: Final = (
    Schedule._create_pod,
    Schedule._create_pod,
    Schedule._create_request,
    Schedule._create_request,
    Schedule._create_request,
    Schedule._replace_pod,
    Schedule._delete_pod,
    Schedule._withdraw,
    Schedule._want_again,
    Schedule._delete_request,
    Schedule._take_over,
)


def live_through(seed: int) -> Schedule:
    """The schedule of that ``seed``, which is always the same."""

    async def live() -> Schedule:
        schedule = Schedule(seed)
        loop = asyncio.get_running_loop()
        with pytest.MonkeyPatch.context() as patch, capture_logs():
            patch.setattr(app, "WorkQueue", partial(WorkQueue, loop.time))
            patch.setattr(policies, "COUNT_SECONDS", 86_400.0)  # there are none
            patch.setattr(pauses, "uniform", random.Random(seed).uniform)
            await schedule.run()
        return schedule

    return virtual_time.run(live(), "controller", "cluster")
