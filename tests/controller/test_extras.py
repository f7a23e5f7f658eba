"""Damping and removal: off by default, and never too early."""

from datetime import timedelta
from typing import Any, Final

import pytest

from cluster.key import Key
from controller.eviction.plan import Sync, plan
from controller.eviction.planning.extras import Expiry, Extras, expiry, extended
from controller.eviction.planning.snapshot import Snapshot
from rules.decode import decode_model
from rules.times import format_time
from tests.controller import objects
from tests.controller.objects import NAMESPACE, Document
from tests.controller.store import START

POD: Final = objects.pod("web", 1)
EVICTION, REQUEST = Key(NAMESPACE, "pod-1-web"), Key(NAMESPACE, "drain")
HOUR: Final = timedelta(hours=1)


def condition(type_: str, reason: str) -> Document:
    return {
        "type": type_,
        "status": "True",
        "reason": reason,
        "lastTransitionTime": format_time(START),
    }


def snapshot(
    reason: str, *, type_: str = "Failed", requests: bool = True, **metadata: Any
) -> Snapshot:
    """A pod, its Eviction that has ended for ``reason``, and the request that was told."""
    status = {"observedGeneration": 1, "conditions": [condition(type_, reason)]}
    target = objects.target_of(POD)
    eviction = objects.eviction(EVICTION.name, target, 3, format_time(START)) | {"status": status}
    request = objects.request("drain", target, 2, format_time(START), "a.io/b", "Eviction")
    eviction["metadata"] |= metadata
    listed = [request | {"status": status}] if requests else []
    return decode_model(
        Snapshot, {"pods": [POD], "evictions": [eviction], "evictionRequests": listed}
    )


@pytest.mark.parametrize(
    ("reason", "after", "damping", "wait"),
    [
        ("NoFurtherResponder", timedelta(), HOUR, HOUR),
        ("NoFurtherResponder", HOUR, HOUR, None),
        ("NoFurtherResponder", timedelta(), timedelta(), None),
        ("CanceledDueToNoRequesters", timedelta(), HOUR, None),
    ],
)
def test_a_new_eviction_waits_only_after_no_avail(
    reason: str, after: timedelta, damping: timedelta, wait: timedelta | None
) -> None:
    seen, now = snapshot(reason), START + after
    extras = Extras(damping=damping)
    planned = plan(Sync.REQUEST, REQUEST, seen, now)
    planned = extended(Sync.REQUEST, planned, REQUEST, seen, now, extras)
    creates = any(write.resource == "evictions" for write in planned.writes)
    assert (creates, planned.requeue_after) == (wait is None, wait)


def test_an_ended_request_expires() -> None:
    seen, extras = snapshot("PodDeleted", type_="TargetEvicted"), Extras(request_ttl=HOUR)
    assert expiry(Sync.REQUEST, REQUEST, seen, START, extras) == Expiry(after=HOUR)
    assert expiry(Sync.REQUEST, REQUEST, seen, START + HOUR, extras) == Expiry(is_due=True)
    assert expiry(Sync.REQUEST, REQUEST, seen, START + HOUR, Extras()) == Expiry()


def test_nothing_is_old_by_a_clock_that_is_wrong() -> None:
    extras = Extras(request_ttl=HOUR, deadline=HOUR, trusts_clock=False)
    seen, now = snapshot("PodDeleted", type_="TargetEvicted"), START + 2 * HOUR
    assert expiry(Sync.REQUEST, REQUEST, seen, now, extras) == Expiry(after=timedelta(minutes=5))
    assert expiry(Sync.METADATA, EVICTION, seen, now, extras) == Expiry()
    planned = plan(Sync.EVICTION, EVICTION, seen, now)
    assert extended(Sync.EVICTION, planned, EVICTION, seen, now, extras) is planned


def test_a_request_that_may_go_on_does_not() -> None:
    seen, extras = snapshot("CanceledDueToNoRequesters"), Extras(request_ttl=HOUR)
    assert expiry(Sync.REQUEST, REQUEST, seen, START + HOUR, extras) == Expiry()


def test_an_orphan_expires() -> None:
    extras = Extras(orphan_ttl=HOUR)
    seen = snapshot("EvictionInvalid", requests=False)
    assert expiry(Sync.METADATA, EVICTION, seen, START, extras) == Expiry(after=HOUR)
    assert expiry(Sync.METADATA, EVICTION, seen, START + HOUR, extras) == Expiry(is_due=True)


def test_an_eviction_that_means_something_does_not() -> None:
    extras = Extras(orphan_ttl=HOUR)
    owner = {"apiVersion": "v1", "kind": "X", "name": "x", "uid": objects.uid(9)}
    for seen in (
        snapshot("EvictionInvalid"),
        snapshot("EvictionInvalid", requests=False, ownerReferences=[owner]),
        snapshot("EvictionInvalid", requests=False, deletionTimestamp=format_time(START)),
    ):
        assert expiry(Sync.METADATA, EVICTION, seen, START + HOUR, extras) == Expiry()
