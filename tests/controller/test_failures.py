"""What answers of an API server mean, and how the informer and the loop take them."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, Counter

from cluster import informer as informer_module
from cluster.client import Page, WatchEvent, _Call, _failure
from cluster.failures import (
    Busy,
    BusySource,
    ClusterFailure,
    Conflict,
    Denied,
    Gone,
    Missing,
    Refused,
    ServerFailure,
    Silent,
    Unauthenticated,
    Unreachable,
)
from cluster.informer import Informer
from cluster.resources import EVICTIONS, PODS
from cluster.store import Change, Store
from controller.eviction.loop import HOPELESS_SECONDS, PERMISSION_SECONDS, reaction_to
from rules.decode import DecodeError
from tests.patience import PATIENCE

FORBIDDEN = 'evictions "a" is forbidden: User "u" cannot patch resource "evictions/status"'
CALL = _Call("patch", EVICTIONS, "default", "status")


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (400, Refused),
        (401, Unauthenticated),
        (403, Refused),
        (404, Missing),
        (409, Conflict),
        (410, Gone),
        (422, Refused),
        (429, Busy),
        (500, ServerFailure),
        (503, ServerFailure),
        (0, ServerFailure),
    ],
)
def test_each_code_has_a_meaning(code: int, kind: type[ClusterFailure]) -> None:
    failure = _failure(code, {"message": "so it is"}, None, CALL)
    assert type(failure) is kind
    assert str(failure) == "so it is"


def test_an_answer_without_a_status_is_understood() -> None:
    assert str(_failure(502, ["?"], None, CALL)) == "HTTP 502"


def test_a_missing_permission_is_named_as_a_role_grants_it() -> None:
    failure = _failure(403, {"message": FORBIDDEN}, None, CALL)
    assert isinstance(failure, Denied)
    wanted = 'patch evictions/status of API group "lifecycle.k8s.io" in namespace default'
    assert failure.permission == wanted
    reaction = reaction_to(failure)
    assert wanted in reaction.event
    assert reaction.at_least == PERMISSION_SECONDS


@pytest.mark.parametrize(
    "message",
    [
        FORBIDDEN,
        (
            'evictions.lifecycle.k8s.io is forbidden: User "u" cannot list resource "evictions" in '
            'API group "lifecycle.k8s.io" at the cluster scope'
        ),
        (
            'pods "db-0" is forbidden: User "system:serviceaccount:a:b" cannot create resource '
            '"pods/eviction" in API group "" in the namespace "c": RBAC: role "x" not found'
        ),
        'forbidden: User "u" cannot get path "/metrics"',
    ],
)
def test_what_the_authorizer_refuses_is_a_missing_permission(message: str) -> None:
    failure = _failure(403, {"message": message}, None, CALL)
    assert type(failure) is Denied
    assert "a Role has to grant it" in failure.explanation


@pytest.mark.parametrize(
    "message",
    [
        'admission webhook "validate.usher.dev" denied the request: no',
        'admission webhook "a.b.c" denied the request: this pod cannot be evicted now',
        'admission webhook "a.b" denied the request: pods "a" is forbidden: User "u" cannot move',
        (
            'evictions.lifecycle.k8s.io "pod-1-db-0" is forbidden: ValidatingAdmissionPolicy '
            "'freeze' with binding 'freeze' denied request: nothing cannot change before Monday"
        ),
        'pods "db-0" is forbidden: exceeded quota: q, used: count/evictions=10, limited: 10',
        (
            'evictions "a" is forbidden: cannot set blockOwnerDeletion if an ownerReference refers '
            "to a resource you can't set finalizers on: no RBAC policy matched"
        ),
    ],
)
def test_what_admission_refuses_is_no_missing_permission(message: str) -> None:
    assert type(_failure(403, {"message": message}, None, CALL)) is Refused


def test_who_is_not_known_lacks_no_permission() -> None:
    failure = _failure(401, {"message": "Unauthorized"}, None, CALL)
    reaction = reaction_to(failure)
    assert "does not accept the credentials (401)" in reaction.event
    assert "missing" not in reaction.event
    assert reaction.at_least == PERMISSION_SECONDS


def test_a_namespace_that_is_being_deleted_is_no_missing_permission() -> None:
    details = {"causes": [{"reason": "NamespaceTerminating"}]}
    assert not reaction_to(_failure(403, {"details": details}, None, CALL)).retry


def test_the_server_says_when_to_come_back() -> None:
    details = {"retryAfterSeconds": 7, "causes": [{"message": "The disruption budget b needs 1"}]}
    failure = _failure(429, {"details": details}, None, CALL)
    assert isinstance(failure, Busy)
    assert (failure.retry_after, failure.causes) == (7, ["The disruption budget b needs 1"])
    assert reaction_to(failure).at_least == 7
    assert reaction_to(_failure(503, {}, 3.0, CALL)).at_least == 3


@pytest.mark.parametrize(
    ("status", "source"),
    [
        (
            {
                "message": "Cannot evict pod as it would violate the pod's disruption budget.",
                "details": {
                    "causes": [
                        {
                            "reason": "DisruptionBudget",
                            "message": "The disruption budget db needs 1 healthy pods",
                        }
                    ]
                },
            },
            BusySource.BUDGET,
        ),
        (
            {"message": 'admission webhook "a.b.c" denied the request: migration has begun'},
            BusySource.ADMISSION,
        ),
        (
            {"message": 'admission webhook "a.b.c" denied the request without explanation'},
            BusySource.ADMISSION,
        ),
        (
            {
                "message": "pods \"a\" is forbidden: ValidatingAdmissionPolicy 'freeze' with "
                "binding 'all' denied request: not before Monday"
            },
            BusySource.ADMISSION,
        ),
        ({"message": "Too many requests, please try again later."}, BusySource.SERVER),
        ({"message": "too many requests", "details": {"retryAfterSeconds": 1}}, BusySource.SERVER),
        ({}, BusySource.SERVER),
    ],
)
def test_who_is_busy_is_told_apart(status: dict[str, Any], source: BusySource) -> None:
    failure = _failure(429, status, None, CALL)
    assert isinstance(failure, Busy)
    assert failure.source is source


def test_a_refusal_is_not_repeated_hotly() -> None:
    reaction = reaction_to(Refused("spec is wrong"))
    assert (reaction.level, reaction.at_least) == ("error", HOPELESS_SECONDS)


def test_the_others_are_tried_again_soon() -> None:
    for failure in (Conflict(""), Unreachable("")):
        assert reaction_to(failure).retry
        assert reaction_to(failure).at_least == 0


# --- the informer -------------------------------------------------------------------------------


def thing(name: str, version: int, **more: Any) -> dict[str, Any]:
    metadata = {"name": name, "uid": name, "resourceVersion": str(version)}
    return {"metadata": metadata, **more}


class Script:
    """An API server that answers as told: each step is a list, a watch, or a failure."""

    def __init__(self, *steps: Any) -> None:
        self._steps = list(steps)
        self.asked: list[str] = []
        self.finished = asyncio.Event()

    async def _next(self, asked: str) -> Any:
        self.asked.append(asked)
        if not self._steps:
            self.finished.set()
            await asyncio.get_running_loop().create_future()
        step = self._steps.pop(0)
        if isinstance(step, ClusterFailure):
            raise step
        return step

    async def encoded_pages(self, _: Any) -> AsyncGenerator[Page, None]:
        for page in await self._next("list"):
            yield page

    async def watch(
        self, _: Any, version: str, opened: Callable[[], None]
    ) -> AsyncGenerator[WatchEvent, None]:
        if not self._steps:
            opened()  # and nothing happens
        for event in await self._next(f"watch {version}"):
            if isinstance(event, ClusterFailure):
                raise event
            yield event


def read(document: Any) -> str:
    if "broken" in document:
        raise DecodeError("broken")
    return str(document["metadata"]["resourceVersion"])


def kinds(informer: Informer[str]) -> dict[str, float]:
    """How often reading has failed, by kind."""
    (family,) = informer._failures.collect()
    return {s.labels["kind"]: s.value for s in family.samples if s.name.endswith("_total")}


async def told(
    script: Script, monkeypatch: pytest.MonkeyPatch, first_pause: float = 0.0
) -> tuple[list[str], Informer[str]]:
    """What the informer has told when the script is over."""
    monkeypatch.setattr(informer_module, "_FIRST_PAUSE", first_pause)
    changes: list[str] = []

    def note(change: Change[str]) -> None:
        entry = change.new or change.old
        assert entry is not None
        kind = "+" if change.old is None else "-" if change.new is None else "~"
        changes.append(f"{kind}{entry.key.name}")

    cluster: Any = script
    counter = Counter("failures", "", ("resource", "kind"), registry=CollectorRegistry())
    informer = Informer(cluster, PODS, read, Store(), note, counter)
    task = asyncio.create_task(informer.run())
    async with asyncio.timeout(PATIENCE):
        await script.finished.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return changes, informer


async def test_it_lists_watches_and_resumes(monkeypatch: pytest.MonkeyPatch) -> None:
    script = Script(
        [Page([thing("a", 1)], "5"), Page([thing("b", 2)], "5")],
        [WatchEvent("MODIFIED", thing("a", 6)), WatchEvent("BOOKMARK", thing("", 9))],
        [WatchEvent("DELETED", thing("b", 10)), WatchEvent("ADDED", thing("c", 11))],
    )
    changes, informer = await told(script, monkeypatch)
    assert changes == ["+a", "+b", "~a", "-b", "+c"]
    assert script.asked == ["list", "watch 5", "watch 9", "watch 11"]
    assert informer.trouble is None


async def test_it_lists_again_after_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    script = Script(
        [Page([thing("a", 1), thing("b", 2)], "5")],
        [Gone("too old")],
        [Page([thing("a", 1), thing("c", 7)], "9")],
    )
    changes, _ = await told(script, monkeypatch)
    assert changes == ["+a", "+b", "-b", "+c"]
    assert script.asked == ["list", "watch 5", "list", "watch 9"]


async def test_what_is_known_outlives_an_api_that_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    script = Script(
        [Page([thing("a", 1)], "5")], [Missing("no such resource")], Missing("no such resource")
    )
    changes, informer = await told(script, monkeypatch)
    assert changes == ["+a"]
    assert "waiting for pods to be served" in str(informer.trouble)


async def test_a_broken_connection_resumes(monkeypatch: pytest.MonkeyPatch) -> None:
    script = Script([Page([], "5")], [WatchEvent("ADDED", thing("a", 6)), Unreachable("gone")])
    _, informer = await told(script, monkeypatch)
    assert script.asked == ["list", "watch 5", "watch 6"]
    # All is well as soon as it is told again, whether anything happens or not.
    assert (informer.trouble, informer.lateness) == (None, None)


@pytest.mark.parametrize("watch", [[Silent("for 150 s")], []], ids=["silent", "ended at once"])
async def test_a_watch_that_tells_nothing_is_not_relied_on(
    monkeypatch: pytest.MonkeyPatch, watch: list[Any]
) -> None:
    script = Script(
        [Page([thing("a", 1)], "5")], watch, [Page([thing("b", 7)], "9")], watch, [Page([], "11")]
    )
    changes, informer = await told(script, monkeypatch)
    assert changes == ["+a", "-a", "+b", "-b"]
    assert script.asked == ["list", "watch 5", "list", "watch 9", "list", "watch 11"]
    assert kinds(informer) == {"Silent": 2}


async def pauses(script: Script, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long the informer has waited between its attempts."""
    waited: list[float] = []

    async def sleep(seconds: float) -> None:
        waited.append(seconds)

    monkeypatch.setattr(informer_module, "sleep", sleep)
    monkeypatch.setattr(informer_module, "jittered", lambda seconds: seconds)
    await told(script, monkeypatch, first_pause=0.5)
    return waited


async def test_lists_in_place_of_watches_become_rare(monkeypatch: pytest.MonkeyPatch) -> None:
    lists_only: list[Any] = [step for _ in range(9) for step in ([Page([], "5")], [])]
    assert await pauses(Script(*lists_only), monkeypatch) == [
        *(0.5, 1, 2, 4, 8, 16, 30, 30, 30),
    ]


async def test_a_server_that_has_always_forgotten_is_not_asked_all_the_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    forgetful: list[Any] = [step for _ in range(5) for step in ([Page([], "5")], [Gone("too old")])]
    assert await pauses(Script(*forgetful), monkeypatch) == [0.5, 1, 2, 4]


async def test_one_good_watch_makes_up_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    bad: list[Any] = [[Page([], "5")], [Silent("")], [Page([], "5")], [Silent("")]]
    good: list[Any] = [[Page([], "5")], [WatchEvent("ADDED", thing("a", 6)), Silent("")]]
    assert await pauses(Script(*bad, *good), monkeypatch) == [0.5, 1, 0.5]


async def test_an_object_that_can_not_be_read_is_left_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    script = Script([Page([thing("a", 1, broken=True), thing("b", 2)], "5")])
    changes, informer = await told(script, monkeypatch)
    assert changes == ["+b"]
    assert informer.synced.is_set()


async def test_an_object_without_an_identity_is_a_failure_of_the_server(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    nameless = {"metadata": {"name": 5, "resourceVersion": "6"}}
    lists = [Page([nameless], "5")], [Page([thing("a", 1)], "7")]
    script = Script(*lists, [WatchEvent("ADDED", nameless)], [Page([thing("b", 8)], "9")])
    changes, informer = await told(script, monkeypatch)
    assert changes == ["+a", "-a", "+b"]
    assert informer.trouble is None
