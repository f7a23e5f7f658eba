"""What holds whatever happens, in whatever order: random users, responders, crashes, old caches."""

import copy
import json
import random
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final

from hypothesis import given, settings
from hypothesis import strategies as st

from controller.eviction.plan import Sync
from controller.eviction.planning.extras import Extras
from controller.eviction.planning.relevance import has_ended
from controller.eviction.planning.target import Target
from rules.api import EVICTOR, RESPONDERS_ANNOTATION, ResponderState
from rules.states import PROCESSED
from rules.times import format_time
from tests.controller import objects
from tests.controller.extended import Extended
from tests.controller.objects import NAMESPACE, Document
from tests.controller.running import Item
from tests.controller.store import Store

PODS: Final = ("web-0", "web-1")
RESPONDERS: Final = (("db.acme.io/failover", 20_000), ("acme.io/x", 1000), ("acme.io/y", 1000))
NAMES: Final = (*(name for name, _ in RESPONDERS), EVICTOR)
REQUESTERS: Final = ("ops.acme.io/drain", "acme.io/x", "vpa.example.com/resize")
INTENTS: Final = ("Eviction", "Eviction", "Eviction", "Withdrawn")
SECONDS: Final = (1, 3, 5, 29, 60, 600, 1170, 1199, 1200, 5000)
STEPS: Final = 80


class Lifecycle:
    """Everybody acts at random; the controller's writes must always be lawful."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.store = Store()
        self.deadline = timedelta(seconds=chance.choice([0, 0, 60, 600, 3600]))
        self.controller = Extended(self.store, Extras(deadline=self.deadline))
        self.old_snapshot = self.controller.snapshot()
        self.ended: dict[str, Any] = {}
        self.processed: dict[tuple[str, str], str] = {}

    def run(self) -> None:
        steps = [step for step, weight in WEIGHTS.items() for _ in range(weight)]
        for _ in range(STEPS):
            self.chance.choice(steps)(self)
            self.never_two_active()
            self.no_way_back()
        self.settle()

    def pick(self, names: dict[str, Document]) -> str | None:
        return self.chance.choice(sorted(names)) if names else None

    # --- users ----------------------------------------------------------------------------------

    def create_pod(self) -> None:
        name = self.chance.choice(PODS)
        if name in self.store.pods:
            return
        responders = self.chance.sample(RESPONDERS, self.chance.randint(0, len(RESPONDERS)))
        carrier = self.chance.choice(["field", "field", "annotation", "broken"])
        group: Document = {"schedulingGroup": {}} if self.chance.random() < 0.05 else {}
        self.store.create_pod(name, responders if carrier == "field" else (), **group)
        if carrier != "field":
            listed = json.dumps([{"name": n, "priority": p} for n, p in responders])
            text = listed if carrier == "annotation" else listed[:-1]
            self.store.pods[name]["metadata"]["annotations"] = {RESPONDERS_ANNOTATION: text}

    def create_request(self) -> None:
        name = self.chance.choice(PODS)
        pod = self.store.pods.get(name) or objects.pod(name, 999)
        self.store.create_request(
            objects.target_of(pod), self.chance.choice(REQUESTERS), self.chance.choice(INTENTS)
        )

    def flip_request(self) -> None:
        if name := self.pick(self.store.requests):
            self.store.flip_request(name, self.chance.choice(INTENTS))

    def delete_request(self) -> None:
        if name := self.pick(self.store.requests):
            self.store.delete_request(name, held=self.chance.random() < 0.5)

    def delete_pod(self) -> None:
        if name := self.pick(self.store.pods):
            self.store.delete_pod(name, timedelta(seconds=self.chance.choice([0, 30])))

    def finish_pod(self) -> None:
        if name := self.pick(self.store.pods):
            ago = self.chance.choice([None, 0, 4, 60, -10])
            finished = None if ago is None else self.store.now - timedelta(seconds=ago)
            self.store.finish_pod(name, finished)

    def remove_pod(self) -> None:
        if name := self.pick(self.store.pods):
            self.store.remove_pod(name)

    def collect_garbage(self) -> None:
        self.store.collect_garbage()

    def wait(self) -> None:
        self.store.now += timedelta(seconds=self.chance.choice(SECONDS))

    # --- responders, honest or not --------------------------------------------------------------

    def report(self) -> None:
        if name := self.pick(self.store.evictions):
            field = self.chance.choice(["heartbeatTime", "completionTime", "startTime", "message"])
            ago = timedelta(seconds=self.chance.choice([0, 0, 0, 10, 100, -10]))
            changes = {field: format_time(self.store.now - ago)}
            self.store.report(name, self.chance.choice(NAMES), changes)

    def grab_a_turn(self) -> None:
        if name := self.pick(self.store.evictions):
            changed = copy.deepcopy(self.store.evictions[name])
            responder = self.chance.choice(NAMES)
            for target in changed.get("status", {}).get("targetResponders", []):
                if target["name"] == responder:
                    target["state"] = self.chance.choice(sorted(ResponderState))
            self.store.update_status(name, changed)

    # --- the controller -------------------------------------------------------------------------

    def sync(self) -> None:
        if items := self.controller.items():
            crash_after = self.chance.choice([None, None, 0, 1])
            self.controller.sync(self.chance.choice(items), crash_after=crash_after)

    def restart(self) -> None:
        self.controller.terminal_times.clear()

    def settle(self) -> None:
        self.controller.settle()
        for item in self.controller.items():
            assert self.controller.plan(item).writes == ()
        self.everything_ends_in_time()

    def keep_a_cache(self) -> None:
        self.old_snapshot = self.controller.snapshot()

    def sync_from_an_old_cache(self) -> None:
        seen = self.old_snapshot
        items = [Item(Sync.REQUEST, r.metadata.name) for r in seen.eviction_requests]
        for eviction in seen.evictions:
            items += [Item(sync, eviction.metadata.name) for sync in (Sync.EVICTION, Sync.METADATA)]
        for item in items:
            for write in self.controller.plan(item, seen).writes:
                if write.key.name in self.store.stored[write.resource] or not write.subresource:
                    self.store.apply(write)  # which may be refused

    # --- the laws -------------------------------------------------------------------------------

    def never_two_active(self) -> None:
        for eviction in self.store.evictions.values():
            targets = eviction.get("status", {}).get("targetResponders", [])
            active = [t for t in targets if t["state"] == ResponderState.ACTIVE]
            assert len(active) <= (0 if _final(eviction) else 1)

    def everything_ends_in_time(self) -> None:
        seen = self.controller.snapshot()
        for eviction in seen.evictions:
            pod, created = eviction.spec.target.pod, eviction.metadata.creation_timestamp
            assert pod is not None
            assert created is not None
            # The last report of an eviction that has reached its aim is awaited for a moment more.
            if self.deadline and not Target.find(seen, NAMESPACE, pod).is_evicted:
                assert has_ended(eviction) or self.store.now - created < self.deadline

    def no_way_back(self) -> None:
        for eviction in self.store.evictions.values():
            uid = eviction["metadata"]["uid"]
            final = _final(eviction)
            assert self.ended.setdefault(uid, final) == final if final else uid not in self.ended
            for target in eviction.get("status", {}).get("targetResponders", []):
                known = self.processed.get((uid, target["name"]))
                assert known is None or target["state"] == known
                if target["state"] in PROCESSED:
                    self.processed[uid, target["name"]] = target["state"]


def _final(eviction: Document) -> list[tuple[str, str]]:
    """How the eviction has ended: type and reason."""
    conditions = eviction.get("status", {}).get("conditions", [])
    return [(c["type"], c["reason"]) for c in conditions if c["status"] == "True"]


WEIGHTS: Final[dict[Callable[[Lifecycle], None], int]] = {
    Lifecycle.create_pod: 4,
    Lifecycle.create_request: 4,
    Lifecycle.flip_request: 1,
    Lifecycle.delete_request: 1,
    Lifecycle.delete_pod: 1,
    Lifecycle.finish_pod: 1,
    Lifecycle.remove_pod: 1,
    Lifecycle.collect_garbage: 1,
    Lifecycle.wait: 5,
    Lifecycle.report: 6,
    Lifecycle.grab_a_turn: 2,
    Lifecycle.sync: 8,
    Lifecycle.restart: 1,
    Lifecycle.settle: 4,
    Lifecycle.keep_a_cache: 1,
    Lifecycle.sync_from_an_old_cache: 1,
}


@settings(max_examples=60, deadline=None)
@given(st.randoms(use_true_random=False))
def test_the_laws_hold_whatever_happens(chance: random.Random) -> None:
    Lifecycle(chance).run()
