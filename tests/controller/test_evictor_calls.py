"""What the evictor makes of the API server's answers to its calls."""

from datetime import datetime, timedelta
from typing import Any, Final

import pytest
from msgspec.structs import replace

from cluster.event import Occurrence
from cluster.failures import (
    Busy,
    BusySource,
    ClusterFailure,
    Conflict,
    Denied,
    Missing,
    Refused,
    ServerFailure,
    Unauthenticated,
    Unreachable,
)
from cluster.key import Key
from cluster.store import entry_of
from controller.eviction.routing import EVICTOR, Item
from controller.eviction.view import View, read_eviction, read_pod, read_request
from controller.evictor.evictor import Evictor
from controller.metrics import Metrics
from rules.api import EVICTOR as EVICTOR_NAME
from rules.api import Eviction
from rules.times import format_time
from tests.controller.objects import NAMESPACE, Document
from tests.controller.store import START
from tests.controller.test_evictor import KEY, Scene

ITEM: Final = Item(EVICTOR, KEY, "")
BUDGET: Final = Busy(
    "Cannot evict pod", None, ["The disruption budget web needs 3"], BusySource.BUDGET
)
BEGUN: Final = Busy("admission webhook denied: evacuation", None, [], BusySource.ADMISSION)
THROTTLED: Final = Busy("Too many requests, please try again later.", 1.0, [], BusySource.SERVER)
KINDS: Final = "imperative_eviction_responder_controller_failed_evictions_total"


class Hands:
    """Writes nothing, and answers calls as it was told."""

    def __init__(self, *answers: ClusterFailure | None) -> None:
        self.answers = list(answers)
        self.reports: list[Document] = []

    async def evict(self, *_: Any) -> None:
        if answer := self.answers.pop(0):
            raise answer

    async def apply(self, write: Any, *_: Any) -> None:
        self.reports += write.apply["status"]["responders"]

    async def prove(self, *_: Any) -> None:
        pass


class Trial:
    """An evictor whose turn it is."""

    def __init__(self, *answers: ClusterFailure | None, **entry: str) -> None:
        """``entry``: what the evictor has reported so far."""
        self.now = START
        scene, self.view, self.metrics = Scene(), View(), Metrics()
        (reported,) = (
            each for each in scene.eviction["status"]["responders"] if each["name"] == EVICTOR_NAME
        )
        reported |= entry
        for document, store, read in (
            (scene.pod, self.view.pods, read_pod),
            (scene.eviction, self.view.evictions, read_eviction),
            (scene.request, self.view.requests, read_request),
        ):
            document["metadata"]["resourceVersion"] = "5"
            any_store: Any = store
            any_store.put(entry_of(document, read(document)))
        self.hands: Any = Hands(*answers)
        self.told: list[str] = []
        self.evictor = Evictor(
            self.view, self.hands, self.hands, self.metrics, self._tell, lambda: self.now
        )

    def watch(self) -> None:
        """See what was reported last."""
        store = self.view.evictions
        entry = store.get(KEY)
        if entry is None or not self.hands.reports:
            return
        told = self.hands.reports[-1]
        changes = {
            "heartbeat_time": datetime.fromisoformat(told["heartbeatTime"]),
            "message": told["message"],
        }
        responders = tuple(
            replace(each, **changes) if each.name == EVICTOR_NAME else each
            for each in entry.value.status.responders
        )
        status = replace(entry.value.status, responders=responders)
        kept = replace(entry.value, status=status)
        store.put(entry._replace(version=entry.version + 1, kept=kept))

    def _tell(self, _: Eviction, occurrence: Occurrence) -> None:
        self.told.append(occurrence.reason)

    @property
    def failed(self) -> float:
        return self.metrics.registry.get_sample_value(KINDS) or 0.0


@pytest.mark.parametrize(
    "failure", [BUDGET, Denied("no", "create pods/eviction"), Refused("no"), ServerFailure("two")]
)
async def test_a_refusal_is_told_reported_and_counted_once(failure: ClusterFailure) -> None:
    trial = Trial(failure, failure)
    for _ in range(2):
        await trial.evictor.run(ITEM)
        (uid, attempts), *_ = trial.evictor._attempts.items()
        # Its time comes at once.
        trial.evictor._attempts[uid] = type(attempts)(
            attempts.count, None, attempts.answer, attempts.words
        )
    assert trial.told == ["EvictionRefused"] * 2
    assert "was refused" in trial.hands.reports[0]["message"]
    assert trial.failed == 1


async def test_what_has_begun_elsewhere_is_no_failure() -> None:
    trial = Trial(BEGUN)
    await trial.evictor.run(ITEM)
    assert trial.told == []
    assert trial.hands.reports[0]["message"].startswith("Not yet")
    assert trial.failed == 0


@pytest.mark.parametrize("failure", [THROTTLED, Missing("gone"), Conflict("changed")])
async def test_what_says_nothing_about_the_pod_costs_nothing(failure: ClusterFailure) -> None:
    trial = Trial(failure)
    assert await trial.evictor.run(ITEM) is not None
    assert (trial.told, trial.hands.reports, trial.failed) == ([], [], 0)


@pytest.mark.parametrize("failure", [Unreachable("no answer"), Unauthenticated("401", "create")])
async def test_no_answer_is_none(failure: ClusterFailure) -> None:
    trial = Trial(failure)
    with pytest.raises(type(failure)):
        await trial.evictor.run(ITEM)
    assert (trial.told, trial.hands.reports, trial.failed) == ([], [], 0)


async def test_after_a_restart_a_refused_pod_gets_its_next_attempt() -> None:
    """However often it is reported meanwhile that there was one before."""
    message = "Attempt 7 to evict the pod was refused: budget"
    trial = Trial(None, message=message, heartbeatTime=format_time(START))
    for _ in range(6):
        await trial.evictor.run(ITEM)
        trial.watch()
        trial.now += timedelta(minutes=3)
    assert trial.hands.answers == []


async def test_nothing_is_remembered_of_what_is_gone() -> None:
    trial = Trial(None)
    evict = trial.hands.evict

    async def evict_and_delete(*arguments: Any) -> None:
        await evict(*arguments)
        uid = trial.view.evictions.get(KEY)
        assert uid is not None
        trial.view.evictions.delete(Key(NAMESPACE, KEY.name), uid.uid, 9)
        trial.evictor.forget(uid.uid)

    trial.hands.evict = evict_and_delete
    await trial.evictor.run(ITEM)
    assert trial.evictor._attempts == {}
