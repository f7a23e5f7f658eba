"""The default evictor's plan: when it calls, what it reports, and what a restart forgets."""

from datetime import timedelta
from typing import Any, Final

from cluster.key import Key
from controller.eviction.planning.snapshot import Snapshot
from controller.evictor.planning import (
    FIRST_BACKOFF,
    HEARTBEAT_INTERVAL,
    LONGEST_BACKOFF,
    NOT_YET_PAUSE,
    SWIFT,
    Answer,
    Attempts,
    EvictorPlan,
    plan_evictor,
    remembered,
    report_request,
    report_write,
)
from rules.api import EVICTOR, MAX_MESSAGE, Intent, ResponderStatus
from rules.decode import decode_model
from rules.evaluate import evaluate
from rules.times import format_time
from tests.controller import objects
from tests.controller.objects import NAMESPACE, Document
from tests.controller.store import START

KEY: Final = Key(NAMESPACE, "pod-1-web")
SECOND: Final = timedelta(seconds=1)
REFUSAL: Final = "Cannot evict pod. The disruption budget web needs 3 healthy pods."


class Scene:
    """A pod whose evictor is Active since START, as documents that tests change."""

    def __init__(self) -> None:
        self.pod = objects.pod("web", 1)
        target = objects.target_of(self.pod)
        start = format_time(START)
        self.request = objects.request("drain", target, 2, start, "a.io/b", Intent.EVICTION)
        self.eviction = objects.eviction(KEY.name, target, 3, start)
        self.report: Document = {"name": EVICTOR, "startTime": start}
        self.target: Document = {"name": EVICTOR, "priority": 100, "state": "Active"}
        self.eviction["status"] = {
            "observedGeneration": 1,
            "targetResponders": [self.target],
            "responders": [self.report],
        }
        self.pods = [self.pod]

    def snapshot(self) -> Snapshot:
        return decode_model(
            Snapshot,
            {
                "pods": self.pods,
                "evictions": [self.eviction],
                "evictionRequests": [self.request],
            },
        )

    def plan(self, after: timedelta, attempts: Attempts | None = None) -> EvictorPlan:
        """The plan; its report is one that the rules admit without a warning."""
        snapshot, now = self.snapshot(), START + after
        plan = plan_evictor(KEY, snapshot, now, attempts)
        if plan.report is not None:
            request = report_request(KEY, plan.report, snapshot, now)
            assert request is not None
            assert evaluate(request).violations == ()
        return plan

    def store(self, report: ResponderStatus | None) -> None:
        """Send the report."""
        assert report is not None
        (entry,) = report_write(KEY, report).apply["status"]["responders"]
        self.report.update(entry)


def test_it_calls_at_once_in_its_turn() -> None:
    scene = Scene()
    calls = scene.plan(timedelta()).calls
    assert calls is not None
    assert (calls.name, calls.uid) == ("web", objects.uid(1))


def test_it_does_nothing_out_of_turn() -> None:
    changes: list[Any] = [
        lambda scene: scene.target.update(state="Inactive"),
        lambda scene: scene.target.update(state="Completed"),
        lambda scene: scene.eviction["status"].pop("observedGeneration"),
        lambda scene: scene.eviction["status"].update(responders=[]),
        lambda scene: scene.report.update(completionTime=format_time(START)),
        lambda scene: scene.request["spec"].update(intent="Withdrawn"),
        lambda scene: scene.request["metadata"].update(deletionTimestamp=format_time(START)),
        lambda scene: scene.eviction["status"].update(
            conditions=[{"type": "Failed", "status": "True", "reason": "X"}]
        ),
    ]
    for change in changes:
        scene = Scene()
        change(scene)
        assert scene.plan(timedelta()) == EvictorPlan()


def test_an_accepted_call_is_not_repeated_at_once() -> None:
    scene = Scene()
    attempts = Attempts().after(START, Answer.ACCEPTED)
    assert scene.plan(SECOND, attempts) == EvictorPlan(requeue_after=FIRST_BACKOFF - SECOND)


def test_a_refusal_is_reported_and_tried_again_with_backoff() -> None:
    scene = Scene()
    attempts = Attempts().after(START, Answer.REFUSED, REFUSAL)
    plan = scene.plan(timedelta(), attempts)
    assert plan.report is not None
    assert plan.report.message == f"Attempt 1 to evict the pod was refused: {REFUSAL}"
    assert plan.report.heartbeat_time == START
    assert plan.requeue_after == FIRST_BACKOFF
    scene.store(plan.report)
    assert scene.plan(FIRST_BACKOFF, attempts).calls is not None
    attempts = attempts.after(START + FIRST_BACKOFF, Answer.REFUSED, REFUSAL)
    # News, but the last report was a moment ago.
    plan = scene.plan(FIRST_BACKOFF, attempts)
    assert (plan.report, plan.requeue_after) == (None, 2 * FIRST_BACKOFF)


def test_backoff_has_an_end_and_the_server_a_say() -> None:
    many = Attempts(99, START, Answer.REFUSED, REFUSAL)
    assert many.left(START) == LONGEST_BACKOFF
    asked = Attempts().after(START, Answer.REFUSED, REFUSAL, timedelta(hours=1))
    assert asked.left(START) == timedelta(hours=1)


def test_a_restart_goes_on_counting() -> None:
    scene = Scene()
    attempts = Attempts(3, START, Answer.REFUSED, REFUSAL)
    scene.store(scene.plan(timedelta(), attempts).report)
    found = remembered(scene.snapshot().evictions[0])
    assert found == attempts
    assert scene.plan(SECOND) == scene.plan(SECOND, attempts)


def test_it_shows_life_while_nothing_changes() -> None:
    scene = Scene()
    attempts = Attempts(20, START, Answer.REFUSED, REFUSAL)
    scene.store(scene.plan(timedelta(), attempts).report)
    plan = scene.plan(HEARTBEAT_INTERVAL - SECOND, attempts)
    assert (plan.report, plan.requeue_after) == (None, SECOND)
    plan = scene.plan(HEARTBEAT_INTERVAL, attempts)
    assert plan.report is not None
    assert plan.report.heartbeat_time == START + HEARTBEAT_INTERVAL


def test_a_swift_deletion_is_reported_once() -> None:
    scene = Scene()
    end = START + timedelta(seconds=30)
    scene.pod["metadata"]["deletionTimestamp"] = format_time(end)
    assert scene.plan(SECOND) == EvictorPlan(requeue_after=SWIFT - SECOND)
    scene.pods = []
    plan = scene.plan(2 * SECOND)
    assert plan.report is not None
    assert plan.report.completion_time == plan.report.heartbeat_time == START + 2 * SECOND
    scene.store(plan.report)
    assert scene.plan(3 * SECOND) == EvictorPlan()


def test_a_slow_deletion_says_when_it_will_end() -> None:
    scene = Scene()
    end = START + timedelta(seconds=30)
    scene.pod["metadata"]["deletionTimestamp"] = format_time(end)
    plan = scene.plan(SWIFT)
    assert plan.report is not None
    assert plan.report.expected_completion_time == end
    scene.store(plan.report)
    # The end has passed, the pod has not: a finalizer, or a node that does not answer.
    plan = scene.plan(SWIFT + HEARTBEAT_INTERVAL)
    assert plan.report is not None
    assert plan.report.expected_completion_time == end


def test_a_pod_that_has_ended_needs_no_call() -> None:
    scene = Scene()
    scene.pod["status"]["phase"] = "Succeeded"
    plan = scene.plan(SECOND)
    assert plan.calls is None
    assert plan.report is not None
    assert plan.report.message == "The pod has ended."


def test_a_namesake_is_left_alone() -> None:
    scene = Scene()
    scene.pod["metadata"]["uid"] = objects.uid(9)
    plan = scene.plan(SECOND)
    assert plan.calls is None
    assert plan.report is not None
    assert plan.report.completion_time is not None


def test_a_clock_that_is_behind_does_no_harm() -> None:
    scene = Scene()
    scene.pods = []
    plan = scene.plan(timedelta(seconds=-2))
    assert plan.report is not None
    assert plan.report.completion_time == START


def test_a_long_refusal_is_cut() -> None:
    scene = Scene()
    plan = scene.plan(timedelta(), Attempts(1, START, Answer.REFUSED, "x" * 2 * MAX_MESSAGE))
    assert plan.report is not None
    assert len(plan.report.message or "") == MAX_MESSAGE


def test_what_has_begun_elsewhere_is_no_refusal_and_is_asked_for_steadily() -> None:
    scene = Scene()
    words = "Eviction triggered evacuation of VMI db/web"
    attempts = Attempts(9, START, Answer.NOT_YET, words)
    plan = scene.plan(timedelta(), attempts)
    assert plan.report is not None
    assert plan.report.message == f"Not yet, after attempt 9 to evict the pod: {words}"
    assert plan.requeue_after == attempts.left(START) == NOT_YET_PAUSE
    scene.store(plan.report)
    assert remembered(scene.snapshot().evictions[0]) == attempts


def test_a_server_that_has_too_much_to_do_gets_no_report() -> None:
    scene = Scene()
    attempts = Attempts().after(START, Answer.NONE, "too many requests", timedelta(seconds=9))
    assert attempts.count == 0
    assert scene.plan(SECOND, attempts) == EvictorPlan(requeue_after=timedelta(seconds=8))
    for _ in range(99):
        attempts = attempts.after(START, Answer.NONE)
    assert attempts.left(START) == FIRST_BACKOFF


def test_it_shows_life_although_nobody_answers() -> None:
    scene = Scene()
    now = START + HEARTBEAT_INTERVAL
    plan = scene.plan(HEARTBEAT_INTERVAL, Attempts().after(now, Answer.NONE))
    assert plan.report is not None
    assert plan.report.heartbeat_time == now
    assert plan.report.message is None
