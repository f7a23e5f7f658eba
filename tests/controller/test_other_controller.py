"""The cluster's own controller is noticed by its role and by its traces, and by nothing older."""

from datetime import timedelta
from typing import Any

import pytest

from cluster.failures import ClusterFailure, Denied, Missing, Unreachable
from controller.other_controller import MANAGER, TRACE_AGE, OtherController
from rules.times import format_time
from tests.controller.store import START


class Server:
    """An API server that has the role, or fails."""

    def __init__(self, failure: ClusterFailure | None, *, is_native: bool = True) -> None:
        self.failure = failure
        self.is_native = is_native
        self.now = START

    async def get(self, *_: Any) -> dict[str, Any]:
        if self.failure:
            raise self.failure
        return {}

    async def is_built_in(self, _: Any) -> bool:
        return self.is_native


def other_controller(
    failure: ClusterFailure | None, *, is_native: bool = True
) -> tuple[OtherController, Server]:
    server: Any = Server(failure, is_native=is_native)
    return OtherController(server, lambda: server.now), server


def eviction(manager: str, ago: timedelta = timedelta(), **status: Any) -> dict[str, Any]:
    entry = {"manager": manager, "time": format_time(START - ago)}
    return {"metadata": {"managedFields": [entry]}, "status": status}


async def test_the_role_is_a_reason_where_the_api_is_native() -> None:
    found, server = other_controller(None)
    assert found.reason() is None
    await found.look()
    assert "ClusterRole" in str(found.reason())
    server.failure = Unreachable("no answer")
    await found.look()
    assert found.reason() is not None  # nothing new is known
    server.failure = Missing("no such role")
    await found.leave()
    assert found.reason() is None


async def test_a_role_that_is_left_over_is_none() -> None:
    found, server = other_controller(None, is_native=False)
    await found.look()
    assert found.reason() is None
    server.is_native = True  # the cluster has come to serve the API itself
    await found.look()
    assert found.reason() is not None


async def test_who_may_not_look_goes_on() -> None:
    found, _ = other_controller(Denied("no", "get clusterroles"))
    await found.look()
    assert found.reason() is None


async def test_a_fresh_trace_is_a_reason_until_it_is_old() -> None:
    found, server = other_controller(Missing("no such role"))
    found.saw(eviction("kubectl"))
    found.saw(eviction(MANAGER, conditions=[{"type": "Failed", "status": "True"}]))
    assert found.reason() is None
    found.saw(eviction(MANAGER))
    await found.appear()
    assert MANAGER in str(found.reason())
    server.now += TRACE_AGE
    assert found.reason() is None


@pytest.mark.parametrize("time", ["", "yesterday", None])
def test_an_entry_without_a_time_says_nothing(time: str | None) -> None:
    found, _ = other_controller(Missing("no such role"))
    entry = {"manager": MANAGER, "time": time}
    found.saw({"metadata": {"managedFields": [entry]}})
    assert found.reason() is None


def test_an_old_entry_stays_old_however_often_others_write() -> None:
    found, server = other_controller(Missing("no such role"))
    for _ in range(480):  # a heartbeat every three minutes for a day
        found.saw(eviction(MANAGER, ago=timedelta(days=31)))
        assert found.reason() is None
        server.now += timedelta(minutes=3)
