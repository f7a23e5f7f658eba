"""What a final write rests on is read, and all requests where one may have been missed."""

from collections.abc import AsyncIterator, Mapping
from typing import Any, Final

import pytest

from cluster.client import Page
from cluster.failures import Missing
from cluster.key import Key
from cluster.resources import EVICTION_REQUESTS, PODS
from cluster.store import entry_of
from controller.eviction.planning.claims import RequestIsVoid
from controller.eviction.verification import LateViewError, Verifier
from controller.eviction.view import View, keep_request
from rules.api import PodReference
from tests.controller.objects import NAMESPACE, pod, request, target_of
from tests.e2e.api import Object

CREATED: Final = "2026-07-01T12:00:00Z"
TARGET: Final = target_of(pod("db-0", 1))
POD: Final = PodReference(**TARGET["pod"])


class Server:
    """What is stored: requests by name."""

    def __init__(self, *stored: Object) -> None:
        self.stored = {each["metadata"]["name"]: each for each in stored}
        self.lists = 0

    async def get(self, resource: Any, key: Key) -> Object:
        assert resource == EVICTION_REQUESTS
        try:
            return self.stored[key.name]
        except KeyError:
            raise Missing("not found") from None

    async def pages(self, resource: Any, namespace: str) -> AsyncIterator[Page]:
        assert (resource, namespace) == (EVICTION_REQUESTS, NAMESPACE)
        self.lists += 1
        yield Page(list(self.stored.values()), "9")


def one(name: str, number: int, version: int, intent: str = "Eviction") -> Object:
    document = request(name, TARGET, number, CREATED, f"{name}.acme.io/drain", intent)
    document["metadata"]["resourceVersion"] = str(version)
    return document


def void(document: Object) -> RequestIsVoid:
    return RequestIsVoid(document["metadata"]["name"], document["metadata"]["uid"], POD)


class Scene:
    """A view that has been told all up to version 5, and learns what is read."""

    def __init__(self, server: Server) -> None:
        self.view = View()
        self.server: Any = server
        self.view.requests.saw(5)
        learn = {PODS.name: lambda _: None, EVICTION_REQUESTS.name: self.learn}
        self._verifier = Verifier(self.server, self.view, learn, lambda: None)

    def learn(self, document: Mapping[str, Any]) -> None:
        self.view.requests.learn(entry_of(document, keep_request(document)))

    def told(self, document: Object) -> None:
        self.view.requests.put(entry_of(document, keep_request(document)))

    async def proves(self, claim: RequestIsVoid) -> bool:
        try:
            await self._verifier.prove(NAMESPACE, [claim])
        except LateViewError:
            return False
        return True


@pytest.mark.parametrize("version", [5, 6])
@pytest.mark.parametrize("is_gone", [False, True])
async def test_who_came_before_a_withdrawal_that_was_not_told(
    version: int, *, is_gone: bool
) -> None:
    """By an own write's answer (6) it is known too early; told by the watch (5) it is enough."""
    mine, other = one("mine", 2, version, "Withdrawn"), one("other", 3, 4)
    server = Server(other) if is_gone else Server(mine, other)
    scene = Scene(server)
    (scene.told if version == 5 else scene.learn)(mine)
    assert await scene.proves(void(mine)) is (version == 5)
    assert server.lists == (version == 6)


async def test_nobody_else_came() -> None:
    mine = one("mine", 2, 6, "Withdrawn")
    scene = Scene(Server(mine))
    scene.learn(mine)
    assert await scene.proves(void(mine))


async def test_whoever_asks_again_is_heard() -> None:
    mine = one("mine", 2, 5, "Withdrawn")
    scene = Scene(Server(one("mine", 2, 7)))
    scene.told(mine)
    assert not await scene.proves(void(mine))
    (known,) = scene.view.requests
    assert known.version == 7


async def test_what_was_seen_deleted_is_not_read() -> None:
    mine = one("mine", 2, 5)
    scene = Scene(Server())
    scene.told(mine)
    scene.view.requests.delete(Key(NAMESPACE, "mine"), mine["metadata"]["uid"], 6)
    assert await scene.proves(void(mine))
    assert scene.server.lists == 0
