"""Every Eviction ends, however its responders behave, by events and planned wake-ups alone."""

import random
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.eviction.planning.extras import Extras
from controller.eviction.planning.progression import COMPLETION_GRACE
from rules.api import EVICTOR
from rules.states import HEARTBEAT_DEADLINE
from rules.times import format_time, parse_time
from tests.controller import objects
from tests.controller.extended import Extended
from tests.controller.objects import Document
from tests.controller.program import reasons
from tests.controller.store import START, Store

TICK: Final = timedelta(minutes=1)
"""How often responders act."""
HORIZON: Final = START + timedelta(hours=4)
RESPONDERS: Final = (("db.acme.io/failover", 20_000), ("acme.io/x", 1000), ("acme.io/y", 1000))
KINDS: Final = ("good", "silent", "crashing", "lying")


@dataclass(frozen=True)
class Actor:
    """A responder that shows life for a while after its start."""

    name: str
    kind: str
    life: timedelta

    def act(self, store: Store, eviction: str, started: datetime) -> None:
        """One tick of an Active responder."""
        ran = store.now - started
        now = format_time(store.now)
        if self.kind == "silent" or ran > self.life:
            return
        if self.kind == "lying":
            self._lie(store, eviction, now)
        elif ran == self.life and self.kind == "good":
            if self.name == EVICTOR:
                for pod in list(store.pods):
                    store.remove_pod(pod)
            store.report(eviction, self.name, {"completionTime": now})
        else:
            store.report(eviction, self.name, {"heartbeatTime": now})

    def _lie(self, store: Store, eviction: str, now: str) -> None:
        later = format_time(store.now + timedelta(hours=3))
        for name, _ in (*RESPONDERS, (EVICTOR, 100)):
            if name != self.name:
                store.report(eviction, name, {"completionTime": now, "startTime": now})
        store.report(eviction, self.name, {"heartbeatTime": later})
        store.report(eviction, self.name, {"startTime": now})
        store.report(eviction, self.name, {"heartbeatTime": now, "message": "almost there"})


class Trial:
    """One pod, one request, some responders, four hours."""

    def __init__(self, chance: random.Random, deadline: timedelta = timedelta()) -> None:
        self.store = Store()
        self.controller = Extended(self.store, Extras(deadline=deadline))
        self.deadline = deadline
        responders = chance.sample(RESPONDERS, chance.randint(0, len(RESPONDERS)))
        self.actors = {
            name: Actor(name, chance.choice(KINDS), TICK * chance.randint(0, 18))
            for name in (*(name for name, _ in responders), EVICTOR)
        }
        self.store.create_pod("web-0", responders)
        target = objects.target_of(self.store.pods["web-0"])
        self.request = self.store.create_request(target, "ops.acme.io/drain", "Eviction")
        self.events = {
            START + TICK * chance.randint(1, 300): chance.choice([self.withdraw, self.finish])
        }
        self.ends: dict[str, datetime] = {}

    def withdraw(self) -> None:
        self.store.flip_request(self.request, "Withdrawn")

    def ask_again(self) -> None:
        self.store.flip_request(self.request, "Withdrawn")
        self.store.flip_request(self.request, "Eviction")

    def finish(self) -> None:
        for name in self.store.pods:
            self.store.finish_pod(name, None)

    def run(self) -> None:
        while self.store.now < HORIZON:
            self.controller.react()
            for name, eviction in self.store.evictions.items():
                if _has_ended(eviction):
                    self.ends.setdefault(name, self.store.now)
            self._advance()

    def _advance(self) -> None:
        tick = START + ((self.store.now - START) // TICK + 1) * TICK
        self.store.now = min([tick, *(wake_up.time for wake_up in self.controller.wake_ups)])
        if self.store.now < tick:
            return  # a wake-up between two ticks
        self.events.get(tick, lambda: None)()
        for name, eviction in list(self.store.evictions.items()):
            status = eviction["status"]
            states = {t["name"]: t["state"] for t in status.get("targetResponders", [])}
            for report in status.get("responders", []):
                if states[report["name"]] == "Active":
                    actor = self.actors[report["name"]]
                    actor.act(self.store, name, parse_time(report["startTime"]))

    def bound(self) -> timedelta:
        """The longest that an Eviction of this pod may take."""
        turns = [actor.life + HEARTBEAT_DEADLINE for actor in self.actors.values()]
        return sum(turns, COMPLETION_GRACE)

    def asked(self) -> int:
        """How often somebody has asked for an eviction."""
        return self.store.requests[self.request]["metadata"]["generation"] // 2 + 1


def _has_ended(eviction: Document) -> bool:
    return any(c["status"] == "True" for c in eviction["status"]["conditions"])


@pytest.mark.slow
@settings(max_examples=40)
@given(st.randoms(use_true_random=False))
def test_every_eviction_ends_within_its_bound(chance: random.Random) -> None:
    trial = Trial(chance)
    trial.run()
    assert trial.store.evictions
    for name, eviction in trial.store.evictions.items():
        created = parse_time(eviction["metadata"]["creationTimestamp"])
        assert trial.ends.get(name, HORIZON) - created <= trial.bound()


@pytest.mark.slow
@settings(max_examples=40)
@given(st.randoms(use_true_random=False), st.integers(1, 90))
def test_with_a_deadline_every_eviction_ends_in_time_and_none_follows(
    chance: random.Random, minutes: int
) -> None:
    trial = Trial(chance, deadline=TICK * minutes)
    trial.events[START + TICK * chance.randint(1, 300)] = trial.ask_again
    trial.run()
    overdue = 0
    for name, eviction in trial.store.evictions.items():
        created = parse_time(eviction["metadata"]["creationTimestamp"])
        ended = trial.ends.get(name, trial.store.now)
        assert ended - created <= trial.deadline + COMPLETION_GRACE
        overdue += "DeadlineExceeded" in reasons(eviction)
    assert overdue <= trial.asked()


def test_silent_responders_take_twenty_minutes_each() -> None:
    trial = Trial(random.Random(0))
    trial.store.create_pod("db-0", RESPONDERS)
    trial.events.clear()
    trial.actors = {n: Actor(n, "silent", TICK) for n in (*dict(RESPONDERS), EVICTOR)}
    trial.store.remove_pod("web-0")
    target = objects.target_of(trial.store.pods["db-0"])
    trial.store.create_request(target, "ops.acme.io/drain", "Eviction")
    trial.run()
    starts = [r["startTime"] for r in trial.store.evictions["pod-1-db-0"]["status"]["responders"]]
    wanted = [format_time(START + position * HEARTBEAT_DEADLINE) for position in range(4)]
    assert sorted(starts) == wanted
    assert trial.ends["pod-1-db-0"] == START + 4 * HEARTBEAT_DEADLINE
