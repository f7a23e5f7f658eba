"""What is sent for a planned write."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

import pytest

from cluster.failures import ClusterFailure, Conflict, Missing, Refused
from cluster.key import Key
from cluster.server_time import ServerTime
from controller.eviction.planning.writes import EVICTIONS, Write
from controller.eviction.writer import Learn, Writer
from controller.metrics import Metrics
from rules.api import Eviction
from rules.decode import decode_model
from rules.request import Operation, Request

_KEY: Final = Key("db", "pod-1-web-0")
_UID: Final = "11111111-2222-3333-4444-555555555555"
_EVICTION: Final = {
    "apiVersion": "lifecycle.k8s.io/v1alpha1",
    "kind": "Eviction",
    "metadata": {"name": _KEY.name, "namespace": _KEY.namespace},
    "spec": {"target": {"pod": {"name": "web-0", "uid": _UID}}},
}


_NEWER: Final = {**_EVICTION, "metadata": {"name": _KEY.name, "resourceVersion": "8"}}


class _Cluster:
    def __init__(self, *failures: ClusterFailure, is_there: bool = True) -> None:
        """``failures``: the answers to the first writes; ``is_there``: whether anything is."""
        self.sent: list[Mapping[str, Any]] = []
        self.time = ServerTime()
        self._is_there = is_there
        self._failures = list(failures)

    async def apply(self, _: Any, __: Any, document: Mapping[str, Any], **___: Any) -> Any:
        self.sent.append(document)
        if self._failures:
            raise self._failures.pop(0)
        return document

    async def get(self, *_: Any) -> Any:
        if not self._is_there:
            raise Missing("no such object")
        return _NEWER


@pytest.mark.parametrize(
    ("subresource", "exists", "uid"),
    [("", True, "u"), ("", False, None), ("status", True, None)],
)
async def test_a_change_of_what_exists_makes_nothing_new(
    subresource: str, *, exists: bool, uid: str | None
) -> None:
    cluster = _Cluster()
    await _apply(cluster, subresource, exists=exists)
    (sent,) = cluster.sent
    assert sent["metadata"].get("uid") == uid
    assert sent["metadata"]["name"] == _KEY.name
    assert "uid" not in _EVICTION["metadata"]


@pytest.mark.parametrize("second", [Conflict("modified"), Refused("invalid")])
async def test_a_refusal_counts_for_the_version_that_was_judged(second: ClusterFailure) -> None:
    cluster = _Cluster(Refused("invalid"), second)
    with pytest.raises(type(second)):
        await _apply(cluster, "", exists=True)
    first, again = cluster.sent
    assert "resourceVersion" not in first["metadata"]
    assert again == {**first, "metadata": {**first["metadata"], "resourceVersion": "7"}}


async def test_the_status_of_an_eviction_is_for_the_version_that_was_judged() -> None:
    cluster = _Cluster(Refused("invalid"))
    with pytest.raises(Refused):
        await _apply(cluster, "status", exists=True)
    (sent,) = cluster.sent
    assert sent["metadata"]["resourceVersion"] == "7"


async def test_what_has_come_between_is_learned_from_a_conflict() -> None:
    cluster = _Cluster(Conflict("modified"))
    learned: list[Mapping[str, Any]] = []
    with pytest.raises(Conflict):
        await _apply(cluster, "status", exists=True, learn=learned.append)
    assert learned == [_NEWER]


async def test_a_refused_creation_is_refused() -> None:
    cluster = _Cluster(Refused("invalid"), is_there=False)
    with pytest.raises(Refused):
        await _apply(cluster, "", exists=False)
    assert len(cluster.sent) == 1


async def test_what_was_planned_before_a_jump_is_planned_again_at_once() -> None:
    cluster = _Cluster()
    refuse = cluster.apply

    async def jump(*given: Any, **more: Any) -> Any:
        await refuse(*given, **more)
        cluster.time.jumps += 1
        raise Refused("status.responders[0].startTime: must be the present time")

    cluster.apply = jump  # type: ignore[method-assign]
    with pytest.raises(Conflict):
        await _apply(cluster, "status", exists=True)


async def test_a_creation_under_a_name_that_was_taken_meanwhile_is_a_conflict() -> None:
    """Which is looked at again at once, with what has been learned."""
    cluster, learned = _Cluster(Refused("field is immutable")), []
    with pytest.raises(Conflict):
        await _apply(cluster, "", exists=False, learn=learned.append)
    assert learned == [_NEWER]


async def _apply(
    cluster: Any, subresource: str, *, exists: bool, learn: Learn = lambda _: None
) -> None:
    writer = Writer(cluster, Metrics(), {"evictions": learn}, lambda: True)
    write = Write(resource=EVICTIONS, subresource=subresource, key=_KEY, apply=_EVICTION)
    metadata = {**_EVICTION["metadata"], "uid": "u", "resourceVersion": "7"}  # type: ignore[dict-item]
    stored = decode_model(Eviction, {**_EVICTION, "metadata": metadata})
    judged = Request(
        operation=Operation.UPDATE if exists else Operation.CREATE,
        now=datetime(2026, 7, 1, tzinfo=UTC),
        object=decode_model(Eviction, _EVICTION) if not exists else stored,
        old_object=stored if exists else None,
        subresource=subresource,
    )
    await writer.apply(write, judged, "me")
