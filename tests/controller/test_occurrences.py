"""What is told of an eviction: each step once, and how loudly."""

from datetime import timedelta
from typing import Final

import pytest

from cluster.event import Level, Occurrence
from controller.eviction.plan import Sync
from controller.eviction.planning.admission import as_request
from controller.eviction.planning.extras import Extras
from controller.eviction.planning.occurrences import occurrences
from rules.api import EVICTOR, Eviction
from rules.times import format_time
from tests.controller.extended import Extended
from tests.controller.objects import target_of
from tests.controller.running import Item
from tests.controller.store import Store

FIRST: Final = "db.acme.io/failover"
NAME: Final = "pod-1-web"


class Scene:
    """One pod and its eviction; notes what each write to the Eviction's status tells."""

    def __init__(self, *responders: str, extras: Extras | None = None) -> None:
        self.store = Store()
        self.controller = Extended(self.store, extras or Extras())
        self.store.create_pod("web", [(name, 1000) for name in responders])
        target = target_of(self.store.pods["web"])
        self.request = self.store.create_request(target, "ops.acme.io/drain", "Eviction")
        self.controller.sync(Item(Sync.REQUEST, self.request), crash_after=1)

    def tell(self, after: timedelta = timedelta()) -> list[Occurrence]:
        """What the next write to the status tells."""
        self.store.now += after
        snapshot = self.controller.snapshot()
        (write,) = self.controller.plan(Item(Sync.EVICTION, NAME)).writes
        judged = as_request(write, snapshot, self.store.now)
        assert self.store.apply(write).allowed
        old, new = judged.old_object, judged.object
        assert isinstance(old, Eviction)
        assert isinstance(new, Eviction)
        return list(occurrences(old.status, new.status))

    def complete(self, responder: str) -> None:
        self.store.report(NAME, responder, {"completionTime": format_time(self.store.now)})


def shown(told: list[Occurrence]) -> list[tuple[str, str, bool]]:
    return [(o.level.name, o.reason, o.is_warning) for o in told]


def test_turns_of_responders() -> None:
    scene = Scene(FIRST)
    (active,) = scene.tell()
    assert active == Occurrence("ResponderActive", f"It is the turn of responder {FIRST}.")
    scene.complete(FIRST)
    completed, active = scene.tell()
    assert completed == Occurrence("ResponderCompleted", f"Responder {FIRST} has completed.")
    assert (active.level, active.message) == (Level.ALL, f"It is the turn of responder {EVICTOR}.")


def test_silence_is_a_warning_whoever_keeps_it() -> None:
    scene = Scene(FIRST)
    scene.tell()
    interrupted, _ = scene.tell(timedelta(minutes=20))
    assert interrupted.is_warning
    assert interrupted.message == f"Responder {FIRST} is passed over after 20 minutes of silence."
    assert shown(scene.tell(timedelta(minutes=20))) == [("NOTABLE", "ResponderInterrupted", True)]
    (failed,) = scene.tell()
    assert shown([failed]) == [("NOTABLE", "EvictionFailed", True)]
    assert failed.message.startswith("NoFurtherResponder: ")


@pytest.mark.parametrize(("responders", "level"), [((), "ALL"), ((FIRST,), "NOTABLE")])
def test_success_is_notable_where_somebody_had_a_part_in_it(
    responders: tuple[str, ...], level: str
) -> None:
    scene = Scene(*responders)
    scene.tell()
    scene.complete(responders[0] if responders else EVICTOR)
    scene.store.remove_pod("web")
    assert shown(scene.tell()) == [
        (level, "ResponderCompleted", False),
        (level, "EvictionSucceeded", False),
    ]


def test_a_pod_that_goes_without_a_report() -> None:
    scene = Scene(FIRST)
    scene.tell()
    scene.store.remove_pod("web")
    scene.controller.settle()  # the report is awaited
    interrupted, succeeded = scene.tell(timedelta(seconds=5))
    assert (interrupted.is_warning, succeeded.is_warning) == (False, False)
    assert "before" in interrupted.message


def test_cancellation_is_no_failure() -> None:
    scene = Scene(FIRST)
    scene.tell()
    scene.store.flip_request(scene.request, "Withdrawn")
    assert shown(scene.tell()) == [("NOTABLE", "EvictionCanceled", False)]


def test_failure_is_a_warning_for_plain_pods_too() -> None:
    scene = Scene(extras=Extras(deadline=timedelta(minutes=1)))
    scene.tell()
    assert shown(scene.tell(timedelta(minutes=1))) == [
        ("ALL", "ResponderInterrupted", False),
        ("NOTABLE", "EvictionFailed", True),
    ]


def test_other_changes_tell_nothing() -> None:
    scene = Scene(FIRST)
    scene.tell()
    target = target_of(scene.store.pods["web"])
    scene.store.create_request(target, "vpa.example.com/resize", "Eviction")
    assert scene.tell() == []  # one requester more
