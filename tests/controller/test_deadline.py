"""An overall deadline ends an eviction lawfully, once, and nobody starts the next one unasked."""

from datetime import timedelta
from typing import Final

import pytest

from controller.eviction.plan import Sync
from controller.eviction.planning.extras import Extras
from rules.api import EVICTOR
from rules.times import format_time
from tests.controller.extended import Extended
from tests.controller.objects import target_of
from tests.controller.program import reasons, states
from tests.controller.running import Item
from tests.controller.store import Store

DEADLINE: Final = timedelta(minutes=5)
SECOND: Final = timedelta(seconds=1)
FIRST, OTHER = "db.acme.io/failover", "acme.io/x"
RESPONDERS: Final = ((FIRST, 20_000), (OTHER, 1000))
EVICTION: Final = "pod-1-web"


class Scene:
    """A pod with two responders, and a request that has been told that its eviction goes on."""

    def __init__(self, extras: Extras, *, begin: bool = True) -> None:
        self.store = Store()
        self.controller = Extended(self.store, extras)
        self.store.create_pod("web", RESPONDERS)
        self.request = self.ask()
        if begin:
            self.controller.settle()

    def ask(self, requester: str = "ops.acme.io/drain") -> str:
        return self.store.create_request(target_of(self.store.pods["web"]), requester, "Eviction")

    def wait(self, span: timedelta) -> None:
        self.store.now += span
        self.controller.settle()

    def ends(self) -> dict[str, set[str]]:
        return {name: reasons(found) for name, found in self.store.evictions.items()}


@pytest.fixture
def scene() -> Scene:
    return Scene(Extras(deadline=DEADLINE))


def test_it_ends_an_eviction_and_says_so_to_the_request(scene: Scene) -> None:
    scene.wait(DEADLINE - SECOND)
    assert scene.ends() == {EVICTION: set()}
    scene.wait(SECOND)
    ended = scene.store.evictions[EVICTION]
    assert states(ended) == {FIRST: "Interrupted", OTHER: "Inactive", EVICTOR: "Inactive"}
    (failed, evicted) = ended["status"]["conditions"]
    assert (failed["type"], failed["reason"]) == ("Failed", "DeadlineExceeded")
    assert failed["message"] == "The eviction has not ended within 300 s of its creation."
    assert (evicted["status"], evicted["reason"]) == ("False", "EvictionFailed")
    assert reasons(scene.store.requests[scene.request]) == {"DeadlineExceeded"}


def test_somebody_looks_when_the_time_is_over(scene: Scene) -> None:
    scene.store.now += DEADLINE - SECOND
    assert scene.controller.plan(Item(Sync.EVICTION, EVICTION)).requeue_after == SECOND


def test_the_turn_of_a_responder_may_end_earlier() -> None:
    scene = Scene(Extras(deadline=timedelta(hours=1)))
    planned = scene.controller.plan(Item(Sync.EVICTION, EVICTION))
    assert planned.requeue_after == timedelta(minutes=20)


def test_who_has_completed_is_not_called_interrupted(scene: Scene) -> None:
    scene.store.now += DEADLINE
    scene.store.report(EVICTION, FIRST, {"completionTime": format_time(scene.store.now)})
    scene.controller.settle()
    assert states(scene.store.evictions[EVICTION]) == {
        FIRST: "Completed",
        OTHER: "Inactive",
        EVICTOR: "Inactive",
    }


def test_without_one_nothing_ends() -> None:
    scene = Scene(Extras())
    scene.wait(timedelta(minutes=19))
    assert scene.ends() == {EVICTION: set()}


def test_an_eviction_that_never_began_ends_too(scene: Scene) -> None:
    scene = Scene(Extras(deadline=DEADLINE), begin=False)
    scene.controller.sync(Item(Sync.REQUEST, scene.request), crash_after=1)
    scene.wait(DEADLINE)
    ended = scene.store.evictions[EVICTION]
    assert set(states(ended).values()) == {"Inactive"}
    assert reasons(ended) == {"DeadlineExceeded"}


def test_an_eviction_that_has_reached_its_aim_succeeds(scene: Scene) -> None:
    scene.store.now += DEADLINE - SECOND
    scene.store.remove_pod("web")
    scene.wait(2 * SECOND)
    assert scene.ends() == {EVICTION: set()}  # the last report is awaited
    scene.wait(timedelta(seconds=5))
    assert scene.ends() == {EVICTION: {"PodDeleted"}}


def test_no_other_end_is_overruled(scene: Scene) -> None:
    scene.store.flip_request(scene.request, "Withdrawn")
    scene.wait(DEADLINE)
    assert scene.ends() == {EVICTION: {"CanceledDueToNoRequesters"}}


# --- what comes next ----------------------------------------------------------------------------


def test_nothing_follows_by_itself(scene: Scene) -> None:
    for _ in range(10):
        scene.wait(DEADLINE)
    assert list(scene.store.evictions) == [EVICTION]


def test_damping_does_not_revive_it() -> None:
    scene = Scene(Extras(deadline=DEADLINE, damping=SECOND))
    for _ in range(3):
        scene.wait(DEADLINE)
    assert list(scene.store.evictions) == [EVICTION]


def test_who_flips_the_intent_asks_anew(scene: Scene) -> None:
    scene.wait(DEADLINE)
    scene.store.flip_request(scene.request, "Withdrawn")
    scene.wait(SECOND)
    assert len(scene.store.evictions) == 1
    scene.store.flip_request(scene.request, "Eviction")
    scene.wait(SECOND)
    assert len(scene.store.evictions) == 2
    scene.wait(DEADLINE)
    scene.wait(DEADLINE)
    assert set(scene.ends()) == {EVICTION, "pod-2-web"}


def test_two_flips_at_once_are_one_wish(scene: Scene) -> None:
    scene.wait(DEADLINE)
    scene.store.flip_request(scene.request, "Withdrawn")
    scene.store.flip_request(scene.request, "Eviction")
    scene.wait(SECOND)
    assert len(scene.store.evictions) == 2


@pytest.mark.parametrize("requester", ["ops.acme.io/drain", "vpa.example.com/resize"])
def test_a_new_request_asks_anew(scene: Scene, requester: str) -> None:
    scene.wait(DEADLINE)
    second = scene.ask(requester)
    scene.wait(SECOND)
    assert scene.ends() == {EVICTION: {"DeadlineExceeded"}, "pod-2-web": set()}
    assert reasons(scene.store.requests[second]) == set()
    scene.wait(DEADLINE)
    scene.wait(DEADLINE)
    assert len(scene.store.evictions) == 2


def test_a_request_that_joined_has_had_its_eviction(scene: Scene) -> None:
    scene.wait(DEADLINE / 2)
    scene.ask("vpa.example.com/resize")
    scene.wait(DEADLINE / 2)
    scene.wait(DEADLINE)
    assert list(scene.store.evictions) == [EVICTION]


def test_a_withdrawn_request_asks_for_nothing(scene: Scene) -> None:
    scene.wait(DEADLINE)
    target = target_of(scene.store.pods["web"])
    scene.store.create_request(target, "vpa.example.com/resize", "Withdrawn")
    scene.wait(SECOND)
    assert list(scene.store.evictions) == [EVICTION]


@pytest.mark.parametrize("crash_after", [0, 1])
def test_a_crash_loses_no_wish(scene: Scene, crash_after: int) -> None:
    scene.wait(DEADLINE)
    scene.store.now += SECOND
    second = scene.ask("vpa.example.com/resize")
    scene.controller.sync(Item(Sync.REQUEST, second), crash_after=crash_after)
    scene.wait(SECOND)
    assert scene.ends() == {EVICTION: {"DeadlineExceeded"}, "pod-2-web": set()}


def test_a_pod_that_goes_later_is_a_success_after_all(scene: Scene) -> None:
    scene.wait(DEADLINE)
    scene.store.remove_pod("web")
    scene.wait(SECOND)
    assert scene.ends() == {EVICTION: {"DeadlineExceeded"}, "pod-2-web": {"PodDeleted"}}
    assert reasons(scene.store.requests[scene.request]) == {"PodDeleted"}


def test_a_pod_that_ends_later_is_one_too(scene: Scene) -> None:
    scene.wait(DEADLINE)
    scene.store.finish_pod("web", scene.store.now)
    scene.wait(SECOND)
    assert reasons(scene.store.requests[scene.request]) == {"PodTerminal"}
