"""The cluster's own controller is noticed by its role and by its traces."""

from typing import Any

import pytest

from cluster.failures import ClusterFailure, Denied, Missing, Unreachable
from controller import rival as rival_module
from controller.rival import MANAGER, TRACE_SECONDS, Rival


class Roles:
    """An API server that has the role, or fails."""

    def __init__(self, failure: ClusterFailure | None) -> None:
        self.failure = failure

    async def get(self, *_: Any) -> dict[str, Any]:
        if self.failure:
            raise self.failure
        return {}


def rival(failure: ClusterFailure | None) -> tuple[Rival, Roles]:
    roles: Any = Roles(failure)
    return Rival(roles), roles


def eviction(manager: str, **status: Any) -> dict[str, Any]:
    return {"metadata": {"managedFields": [{"manager": manager}]}, "status": status}


async def test_the_role_is_a_reason_while_it_is_there() -> None:
    found, roles = rival(None)
    assert found.reason() is None
    await found.look()
    assert "ClusterRole" in str(found.reason())
    roles.failure = Unreachable("no answer")
    await found.look()
    assert found.reason() is not None  # nothing new is known
    roles.failure = Missing("no such role")
    await found.leave()
    assert found.reason() is None


async def test_who_may_not_look_goes_on() -> None:
    found, _ = rival(Denied("no", "get clusterroles"))
    await found.look()
    assert found.reason() is None


async def test_a_fresh_trace_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(rival_module, "monotonic", lambda: now[0])
    found, _ = rival(Missing("no such role"))
    found.saw(eviction("kubectl"))
    found.saw(eviction(MANAGER, conditions=[{"type": "Failed", "status": "True"}]))
    assert found.reason() is None
    found.saw(eviction(MANAGER))
    await found.appear()
    assert MANAGER in str(found.reason())
    now[0] = TRACE_SECONDS
    assert found.reason() is None
