"""Who may lead, and for how long; time is a value."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from email.utils import format_datetime
from typing import Any

import pytest

from cluster import leader_election as lease_module
from cluster.failures import ClusterFailure, Conflict, Missing, Unreachable
from cluster.key import Key
from cluster.leader_election import (
    Elector,
    Sight,
    Terms,
    claimed,
    format_micro_time,
    may_take,
    seen,
)
from cluster.server_time import ServerTime
from tests.patience import PATIENCE

NOW = datetime(2026, 7, 1, 12, tzinfo=UTC)
KEY = Key("kube-system", "usher-controller")


def lease(holder: str, version: str = "1", duration: int = 15) -> dict[str, Any]:
    return {
        "metadata": {"resourceVersion": version},
        "spec": {"holderIdentity": holder, "leaseDurationSeconds": duration},
    }


def test_silence_counts_from_when_it_was_seen() -> None:
    sight = seen(Sight(), lease("other"), 100)
    assert not may_take(sight, "me", 114.9)
    assert may_take(sight, "me", 115)
    sight = seen(sight, lease("other"), 110)
    assert sight.since == 100
    sight = seen(sight, lease("other", version="2"), 114)
    assert not may_take(sight, "me", 128)


def test_a_free_lease_and_ones_own_may_be_taken() -> None:
    assert may_take(seen(Sight(), lease(""), 0), "me", 0)
    assert may_take(seen(Sight(), lease("me"), 0), "me", 0)


def test_times_are_utc_with_six_digits() -> None:
    zone = timezone(timedelta(hours=5))
    local = datetime(2026, 7, 1, 12, 0, 0, tzinfo=zone)
    assert format_micro_time(local) == "2026-07-01T07:00:00.000000Z"


def test_taking_over_counts_and_renewing_does_not() -> None:
    taken = claimed(lease("other"), "me", Terms(), NOW)
    assert taken["spec"]["leaseTransitions"] == 1
    assert taken["spec"]["acquireTime"] == taken["spec"]["renewTime"]
    later = claimed(taken, "me", Terms(), NOW + timedelta(seconds=2))
    assert later["spec"]["leaseTransitions"] == 1
    assert later["spec"]["acquireTime"] == "2026-07-01T12:00:00.000000Z"
    assert later["spec"]["renewTime"] == "2026-07-01T12:00:02.000000Z"
    released = claimed(later, "me", Terms(), NOW, released=True)
    assert (released["spec"]["holderIdentity"], released["spec"]["leaseDurationSeconds"]) == ("", 1)


class Clock:
    """A steady clock that sleeping moves."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.now += max(seconds, 0.01)


class Leases:
    """An API server with one Lease; ``failure`` is raised while it is set."""

    def __init__(self) -> None:
        self.stored: dict[str, Any] | None = None
        self.failure: Exception | None = None
        self.time = ServerTime()
        self.replaced = 0
        self.last_replaced = -1
        """With which replacement the API server falls silent."""
        self._version = 0

    def put(self, document: dict[str, Any]) -> dict[str, Any]:
        self._version += 1
        metadata = {**document["metadata"], "resourceVersion": str(self._version)}
        self.stored = {**document, "metadata": metadata}
        return self.stored

    async def get(self, *_: Any) -> dict[str, Any]:
        self._fail()
        if self.stored is None:
            raise Missing("no lease")
        return self.stored

    async def create(self, _: Any, __: str, document: dict[str, Any]) -> dict[str, Any]:
        self._fail()
        return self.put(document)

    async def replace(self, _: Any, __: Key, document: dict[str, Any]) -> dict[str, Any]:
        self._fail()
        assert self.stored is not None
        self.replaced += 1
        if self.replaced == self.last_replaced:
            self.failure = Unreachable("no answer")
        if document["metadata"]["resourceVersion"] != self.stored["metadata"]["resourceVersion"]:
            raise Conflict("changed")
        return self.put(document)

    def _fail(self) -> None:
        if self.failure:
            raise self.failure


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(lease_module, "monotonic", clock)
    monkeypatch.setattr(lease_module.asyncio, "sleep", clock.sleep)
    monkeypatch.setattr(lease_module, "jittered", lambda seconds: seconds)
    return clock


def elector(
    leases: Leases, name: str, told: list[bool], note: Callable[[], str | None] = lambda: None
) -> Elector:
    return Elector(leases, KEY, name, Terms(), told.append, note)  # type: ignore[arg-type]


async def test_a_leader_that_can_not_renew_stops_before_others_may_start(clock: Clock) -> None:
    leases, told = Leases(), []
    first = elector(leases, "first", told)
    await first.acquire()
    won = clock.now
    assert first.leads()
    leases.failure = Unreachable("no answer")
    await first.hold()
    assert not first.leads()
    assert won + Terms().renew <= clock.now < won + Terms().duration
    assert told == [True, False]
    leases.failure = None
    second = elector(leases, "second", told)
    began = clock.now
    await second.acquire()
    assert clock.now - began >= Terms().duration


async def test_a_release_lets_others_in_at_once(clock: Clock) -> None:
    leases, told = Leases(), []
    first = elector(leases, "first", told)
    await first.acquire()
    await first.release()
    await first.release()
    assert not first.leads()
    began = clock.now
    await elector(leases, "second", told).acquire()
    assert clock.now == began


async def test_a_conflict_with_another_holder_ends_the_lead(clock: Clock) -> None:
    leases, told = Leases(), []
    first = elector(leases, "first", told)
    await first.acquire()
    assert leases.stored is not None
    leases.put(claimed(leases.stored, "thief", Terms(), NOW))
    await first.hold()
    assert clock.now - 1000 <= Terms().retry
    assert not first.leads()


async def test_a_conflict_with_a_labeller_does_not(clock: Clock) -> None:
    leases, told = Leases(), []
    first = elector(leases, "first", told)
    await first.acquire()
    assert leases.stored is not None
    leases.put(leases.stored)
    leases.last_replaced = 3
    await first.hold()
    # The second and third replacement were renewals, 2 s and 4 s after the start.
    assert clock.now == 1000 + 2 * Terms().retry + Terms().renew


async def test_a_note_is_kept_at_once_and_inherited(clock: Clock) -> None:
    leases, told = Leases(), []
    first = elector(leases, "first", told, lambda: "spent")
    await first.acquire()
    assert first.inherited == ""
    await first.keep()
    second = elector(leases, "second", told)  # one that has nothing to tell leaves it alone
    await second.acquire()
    assert second.inherited == "spent"
    await second.keep()
    assert second.inherited == "spent"


async def test_a_note_goes_with_the_release(clock: Clock) -> None:
    leases, told = Leases(), []
    first = elector(leases, "first", told, lambda: "saved up")
    await first.acquire()
    await first.release()
    second = elector(leases, "second", told)
    await second.acquire()
    assert second.inherited == "saved up"


async def test_who_can_not_keep_a_note_is_told(clock: Clock) -> None:
    leases, told = Leases(), []
    first = elector(leases, "first", told, lambda: "spent")
    await first.acquire()
    leases.failure = Unreachable("no answer")
    with pytest.raises(ClusterFailure, match="the Lease can't be written"):
        await first.keep()
    leases.failure = None
    assert first.leads()
    await first.keep()
    assert leases.stored is not None
    leases.put(claimed(leases.stored, "thief", Terms(), NOW))
    with pytest.raises(ClusterFailure, match="the Lease can't be written"):
        await first.keep()
    assert not first.leads()


async def test_the_lease_can_be_pointed_at_while_it_is_held(clock: Clock) -> None:
    leases, told = Leases(), []
    first = elector(leases, "first", told)
    assert first.subject is None
    await first.acquire()
    assert first.subject is not None
    assert (first.subject["kind"], first.subject["name"]) == ("Lease", KEY.name)


class Listener:
    """A process that hears the API server's time, which is ``ahead`` of an hour ago."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.time = ServerTime(clock)

    def hear(self, ahead: timedelta = timedelta()) -> ServerTime:
        date = NOW + timedelta(seconds=self._clock.now) + ahead
        self.time.heard(format_datetime(date, usegmt=True), self._clock.now, self._clock.now)
        return self.time


@pytest.mark.parametrize("minutes", [-25, 5])
async def test_the_next_leader_knows_that_the_time_has_jumped(clock: Clock, minutes: int) -> None:
    """Even one that has begun after the jump."""
    leases, told, jump = Leases(), [], timedelta(minutes=minutes)
    first = Listener(clock)
    leases.time = first.hear()
    assert leases.time.is_settled
    leader = elector(leases, "first", told)
    await leader.acquire()
    first.hear(jump)
    await leader.release()
    leases.time = Listener(clock).hear(jump)
    await elector(leases, "second", told).acquire()
    assert not leases.time.is_settled


async def test_the_next_leader_sees_that_the_time_has_jumped_meanwhile(clock: Clock) -> None:
    leases, told = Leases(), []
    leases.time = Listener(clock).hear()
    leader = elector(leases, "first", told)
    await leader.acquire()
    await leader.release()
    leases.time = Listener(clock).hear(timedelta(minutes=5))
    await elector(leases, "second", told).acquire()
    assert not leases.time.is_settled


async def test_without_a_jump_a_restart_changes_nothing(clock: Clock) -> None:
    leases, told = Leases(), []
    leases.time = Listener(clock).hear()
    leader = elector(leases, "first", told)
    await leader.acquire()
    await leader.release()
    clock.now += 20
    leases.time = Listener(clock).hear()
    await elector(leases, "second", told).acquire()
    assert leases.time.is_settled


@pytest.mark.parametrize("text", [None, "", "yesterday", "0001-01-01T00:00:00+14:00"])
async def test_a_lease_that_tells_no_time_is_not_relied_on(clock: Clock, text: str | None) -> None:
    leases, told = Leases(), []
    leases.put({"metadata": {}, "spec": {"renewTime": text}})
    leases.time = Listener(clock).hear()
    await elector(leases, "me", told).acquire()
    assert not leases.time.is_settled


async def test_a_renewal_that_hangs_does_not_cost_the_lead() -> None:
    terms = Terms(duration=3.0, renew=2.0, retry=0.05)
    leases = Leases()
    hangs = [asyncio.Event()]
    replace = leases.replace

    async def replace_some(*args: Any) -> dict[str, Any]:
        if hangs:
            await hangs.pop().wait()  # which never happens: the connection is dead
        return await replace(*args)

    told: list[bool] = []
    leader = Elector(leases, KEY, "me", terms, told.append)  # type: ignore[arg-type]
    await leader.acquire()
    leases.replace = replace_some  # type: ignore[method-assign]
    renewed = leases.replaced
    holding = asyncio.create_task(leader.hold())
    async with asyncio.timeout(PATIENCE):
        while leases.replaced < renewed + 3:
            assert not holding.done()
            await asyncio.sleep(0.01)
    assert leader.leads()
    assert told == [True]
    holding.cancel()
    await asyncio.gather(holding, return_exceptions=True)


@pytest.mark.parametrize(("duration", "written"), [(15.0, 15), (15.4, 16), (15.6, 16)])
def test_others_wait_for_at_least_as_long_as_was_said(duration: float, written: int) -> None:
    lease: dict[str, Any] = {"metadata": {}}
    found = claimed(lease, "me", Terms(duration=duration, renew=15.3), NOW)
    assert found["spec"]["leaseDurationSeconds"] == written
