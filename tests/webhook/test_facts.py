"""How facts are found: once however many ask, again where that helps, and remembered in little."""

import asyncio
import tracemalloc
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from cluster.facts import MAX_REMEMBERED, FactFinder, SilentClusterError
from cluster.failures import Busy, ClusterFailure, Denied, ServerFailure, Unreachable
from cluster.pauses import pause
from cluster.questions import ClusterFacts
from rules.facts import (
    Answer,
    EvictionRight,
    LivePod,
    NamedPod,
    Permission,
    PodLookup,
    Policies,
    Question,
    Right,
    Target,
    TargetLookup,
    may_respond,
)
from rules.request import User
from tests.webhook.reviews import POD_UID
from webhook.metrics import Metrics

RESPOND = may_respond("db.acme.io/failover", "db")
GHOST = TargetLookup("db", "ghost", POD_UID)
JANE = User("jane")


class Cluster:
    """Has some pods, and fails as often as a test says."""

    def __init__(self, *failures: Exception, **pods: str) -> None:
        self.failures = list(failures)
        self.pods = {LivePod(uid): name.replace("_", "-") for name, uid in pods.items()}
        self.asked: list[str] = []
        self.listing = asyncio.Event()
        self.listing.set()

    async def _come(self, what: str) -> None:
        self.asked.append(what)
        if self.failures:
            raise self.failures.pop(0)

    async def has_permission(self, user: User, permission: Permission, name: str) -> bool:  # noqa: ARG002
        await self._come(name)
        return True

    async def find_pod(self, lookup: PodLookup) -> LivePod | None:
        await self._come(lookup.name)
        return next((pod for pod, name in self.pods.items() if name == lookup.name), None)

    async def list_pods(self, namespace: str) -> Mapping[str, str]:
        await self._come(f"list {namespace}")
        await self.listing.wait()
        return {pod.uid: name for pod, name in self.pods.items()}

    async def list_policies(self, namespace: str) -> list[Any]:
        raise AssertionError(namespace)

    find_labels = has_native_responders = list_policies  # type: ignore[assignment]


def finder(cluster: Cluster) -> FactFinder:
    return FactFinder(cluster, Metrics())  # type: ignore[arg-type]


async def found(cluster: Cluster, question: Question, seconds: float = 4.5) -> Answer:
    return (await finder(cluster).find(JANE, {question: True}, seconds)).answers[question]


# --- which pod has this UID? --------------------------------------------------------------------


async def test_a_pod_is_found_by_its_name_if_that_is_its_own() -> None:
    cluster = Cluster(ghost=POD_UID)
    assert await found(cluster, GHOST) == Target(
        LivePod(POD_UID), NamedPod("ghost", LivePod(POD_UID))
    )
    assert cluster.asked == ["ghost"]


async def test_a_pod_is_found_by_its_uid_under_any_name() -> None:
    cluster = Cluster(db_0=POD_UID)
    assert await found(cluster, GHOST) == Target(None, NamedPod("db-0", LivePod(POD_UID)))
    assert cluster.asked == ["ghost", "list db", "db-0"]


async def test_both_pods_are_found_where_there_are_two() -> None:
    cluster = Cluster(ghost="another", db_0=POD_UID)
    pair = Target(LivePod("another"), NamedPod("db-0", LivePod(POD_UID)))
    assert await found(cluster, GHOST) == pair


async def test_what_no_pod_can_have_is_not_looked_for() -> None:
    cluster = Cluster()
    for lookup in (TargetLookup("db", "..", "x"), TargetLookup("../..", "x", POD_UID)):
        assert await found(cluster, lookup) == Target()
    assert await found(cluster, Policies("../..")) == ()
    assert cluster.asked == []


async def test_the_right_is_asked_for_the_pod_that_has_the_uid() -> None:
    cluster = Cluster(db_0=POD_UID)
    assert await found(cluster, EvictionRight(GHOST)) == Right("db-0", is_granted=True)
    assert cluster.asked[-1] == "db-0"
    gone = Cluster()
    assert await found(gone, EvictionRight(GHOST)) == Right("ghost", is_granted=True)


async def test_one_list_at_a_time_that_began_after_the_question() -> None:
    cluster = Cluster()
    facts = finder(cluster)
    cluster.listing.clear()
    first = asyncio.create_task(facts.find(JANE, {GHOST: True}))
    await _until(lambda: "list db" in cluster.asked)
    rest = [asyncio.create_task(facts.find(JANE, {GHOST: True})) for _ in range(50)]
    await _until(lambda: cluster.asked.count("ghost") == 51)
    cluster.pods[LivePod(POD_UID)] = "db-0"  # the list that is under way may be without it
    cluster.listing.set()
    await first
    for each in rest:
        target = (await each).answers[GHOST]
        assert target == Target(None, NamedPod("db-0", LivePod(POD_UID)))
    assert cluster.asked.count("list db") == 2


async def _until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - it is about the order of steps
        await asyncio.sleep(0)
    await asyncio.sleep(0)


# --- asked again --------------------------------------------------------------------------------

TRANSIENT: list[ClusterFailure] = [
    Busy("too many requests", retry_after=1),
    Unreachable("connection reset by peer"),
    ServerFailure("etcd leader changed"),
]


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The waits before further tries, which take no time."""
    told: list[float] = []

    def skip(failure: ClusterFailure, wait: float) -> float:
        told.append(pause(failure, wait))
        return 0

    monkeypatch.setattr("cluster.facts.pause", skip)
    return told


@pytest.mark.parametrize("failure", TRANSIENT, ids=lambda failure: type(failure).__name__)
async def test_what_was_throttled_or_cut_off_is_asked_again(
    failure: ClusterFailure, pauses: list[float]
) -> None:
    cluster = Cluster(failure)
    assert await found(cluster, RESPOND) is True
    assert cluster.asked == ["db.acme.io/failover"] * 2
    (pause,) = pauses
    told = failure.retry_after if isinstance(failure, Busy) else None
    assert (told or 0) < pause <= (told or 0) + 0.1


async def test_waits_grow(pauses: list[float]) -> None:
    cluster = Cluster(*[Unreachable("refused")] * 4)
    assert await found(cluster, PodLookup("db", "db-0"), 30) is None
    assert pauses == sorted(pauses)
    assert pauses[-1] >= 0.4


async def test_nobody_waits_longer_than_the_caller_does() -> None:
    cluster = Cluster(Busy("too many requests", retry_after=5))
    with pytest.raises(SilentClusterError, match="too many requests"):
        await found(cluster, RESPOND, seconds=4.5)
    assert len(cluster.asked) == 1


@pytest.mark.parametrize("failure", [Denied("no", "get pods"), ConnectionError("ours")])
async def test_what_would_fail_again_is_not_asked_again(
    failure: Exception, pauses: list[float]
) -> None:
    cluster = Cluster(failure)
    with pytest.raises(SilentClusterError):
        await found(cluster, RESPOND)
    assert pauses == []


# --- remembered ---------------------------------------------------------------------------------


async def test_remembered_users_take_next_to_nothing() -> None:
    facts, groups = finder(Cluster()), 2_000_000
    tracemalloc.start()
    try:
        for number in range(10):
            user = User(f"user-{number}", ("g" * groups,))
            await facts.find(user, {RESPOND: True})
            assert facts.recall(user, {RESPOND: True}) is not None
        del user
        size, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert size < groups / 4


@pytest.mark.slow
async def test_a_full_memory_is_small() -> None:
    facts = finder(Cluster())
    tracemalloc.start()
    try:
        for number in range(MAX_REMEMBERED):
            await facts.find(User(f"user-{number}", ("group",) * 200), {RESPOND: True})
        size, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert size < 8_000_000


async def test_users_are_told_apart_by_all_that_they_have() -> None:
    cluster = Cluster()
    facts = finder(cluster)
    users = [
        User("jane"),
        User("jane", ("devs",)),
        User("jane", uid="1"),
        User("jane", extra=(("scopes", ("a",)),)),
    ]
    for user in users:
        assert facts.recall(user, {RESPOND: True}) is None
        await facts.find(user, {RESPOND: True})
    assert len(cluster.asked) == len(users)


# --- what an API server's answers mean ----------------------------------------------------------


class Reviewer:
    """An API server whose answer to a SubjectAccessReview has that status."""

    def __init__(self, **status: object) -> None:
        self.status = status

    async def create(self, *_: object) -> dict[str, object]:
        return {"status": self.status}


async def permits(**status: object) -> bool:
    facts = ClusterFacts(Reviewer(**status))  # type: ignore[arg-type]
    return await facts.has_permission(JANE, RESPOND, "db.acme.io/failover")


async def test_a_failing_authorizer_has_not_refused() -> None:
    with pytest.raises(ServerFailure, match="webhook authorizer timed out"):
        await permits(allowed=False, evaluationError="webhook authorizer timed out")
    assert await permits(allowed=True, evaluationError="webhook authorizer timed out")
    # As RBAC answers where a binding has no role.
    assert not await permits(allowed=False, reason='RBAC: role "x" not found')


async def test_what_no_authorizer_could_tell_is_asked_again_and_not_remembered(
    pauses: list[float],
) -> None:
    cluster = Cluster(*[ServerFailure("no authorizer could tell")] * 2)
    facts = finder(cluster)
    assert facts.recall(JANE, {RESPOND: True}) is None
    assert (await facts.find(JANE, {RESPOND: True}, 30)).permits(RESPOND)
    assert len(pauses) == 2
