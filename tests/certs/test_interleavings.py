"""Whatever happens in whatever order, servers and bundles fit, and in the end all is well."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from certs.holdings import CA_CERTIFICATES, CA_KEY, CERTIFICATE, KEY, decode
from certs.renewal import Step
from cluster.failures import Conflict
from tests.certs.world import Replica, World, settle

pytestmark = pytest.mark.slow

_REPLICAS: Final = 3
_WHO: Final = st.integers(0, _REPLICAS - 1)
_SPANS: Final = [
    timedelta(seconds=1),
    timedelta(seconds=5),
    timedelta(minutes=2),
    timedelta(hours=1),
    timedelta(days=20),
    timedelta(days=61),
    timedelta(days=244),
    timedelta(days=400),
]
_OFFSETS: Final = [timedelta(hours=hours) for hours in (-2, 0, 2)]
_YEARS: Final = 3
_FILES: Final = (CA_CERTIFICATES, CA_KEY, CERTIFICATE, KEY)


def _delete(world: World) -> None:
    # What nobody trusts any more can't be found again.
    if None not in world.bundles:
        world.delete()


def _break(name: str) -> Callable[[World], None]:
    def act(world: World) -> None:
        if world.version and (name != CA_CERTIFICATES or None not in world.bundles):
            world.overwrite({**world.files, name: b"broken"})

    return act


_DISTURBANCES: Final = [
    _delete,
    *map(_break, _FILES),
    lambda world: world.empty(0),
    lambda world: world.empty(1),
]

_steps = st.tuples(st.just("step"), _WHO)
_ticks = st.tuples(st.just("tick"), _WHO)
_events = st.one_of(
    st.tuples(st.just("crash"), _WHO),
    st.tuples(st.just("advance"), st.sampled_from(_SPANS)),
    st.tuples(st.just("clock"), _WHO, st.sampled_from(_OFFSETS)),
    st.tuples(st.just("disturb"), st.sampled_from(_DISTURBANCES)),
)
_histories = st.lists(st.one_of(_steps, _steps, _ticks, _ticks, _events), max_size=80)


def _happen(world: World, replicas: list[Replica], event: tuple[Any, ...]) -> None:
    match event:
        case "step", who:
            replicas[who].step()
        case "tick", who:
            replicas[who].finish()
        case "crash", who:
            replicas[who].crash()
        case "advance", span:
            world.advance(span)
        case "clock", who, offset:
            replicas[who].offset = offset
        case "disturb", act:
            act(world)


@settings(max_examples=60)
@given(_histories)
def test_no_client_meets_a_leaf_that_its_bundle_does_not_verify(
    history: list[tuple[Any, ...]],
) -> None:
    world = World()
    replicas = [Replica(world, index) for index in range(_REPLICAS)]
    settle(world, *replicas)
    for event in history:
        _happen(world, replicas, event)
        world.check()
    for replica in replicas:
        replica.offset = timedelta()
    settle(world, *replicas)
    _assert_all_is_well(world)


def _assert_all_is_well(world: World) -> None:
    held = decode(world.files)
    assert held.flaws == ()
    assert held.serves(world.now)
    assert all(found is not None and set(found) == set(held.authorities) for found in world.bundles)
    assert len(world.served) == _REPLICAS
    assert all(files[CERTIFICATE] == world.files[CERTIFICATE] for files in world.served.values())
    world.check_times()


@settings(max_examples=30)
@given(st.lists(_steps, max_size=120))
def test_replicas_that_start_at_once_end_with_one_authority(
    history: list[tuple[str, int]],
) -> None:
    world = World()
    replicas = [Replica(world, index) for index in range(_REPLICAS)]
    for event in history:
        _happen(world, replicas, event)
    settle(world, *replicas)
    assert world.authorities_created == 1
    _assert_all_is_well(world)


def test_years_go_by_and_nothing_expires() -> None:
    world = World()
    replicas = [Replica(world, index) for index in range(_REPLICAS)]
    settle(world, *replicas)
    for _ in range(0, _YEARS * 365, 5):
        world.advance(timedelta(days=5))
        world.check_times()
        settle(world, *replicas)
        world.check_times()
        assert len(decode(world.files).authorities) <= 2
    assert world.authorities_created == 1 + _YEARS * 365 // 245


@pytest.mark.parametrize("act", _DISTURBANCES)
@pytest.mark.parametrize("in_rotation", [False, True])
def test_every_disturbance_is_repaired_without_a_new_one(
    act: Callable[[World], None], *, in_rotation: bool
) -> None:
    world = World()
    replicas = [Replica(world, index) for index in range(_REPLICAS)]
    settle(world, *replicas)
    if in_rotation:
        world.advance(timedelta(days=244))
        for replica in replicas:
            replica.finish()
    act(world)
    settle(world, *replicas)
    _assert_all_is_well(world)
    created = world.authorities_created
    settle(world, *replicas)
    assert world.authorities_created == created


@pytest.mark.parametrize("awaits", range(1, 6))
@pytest.mark.parametrize("index", [0, 1])
def test_who_wakes_up_late_does_no_harm(awaits: int, index: int) -> None:
    world = World()
    late, other = Replica(world, 0), Replica(world, 1)
    settle(world, late, other)
    world.advance(timedelta(days=244))
    world.empty(index)  # so that it is about to write a bundle
    for _ in range(awaits):
        late.step()
    settle(world, other)
    late.finish()
    world.check()
    settle(world, late, other)
    world.check_times()


@pytest.mark.parametrize("hours", [-2, 2])
@pytest.mark.parametrize("who", [[0], [0, 1, 2]])
def test_clocks_that_are_two_hours_off_do_harm_no_longer_than_that(
    hours: int, who: list[int]
) -> None:
    world = World()
    replicas = [Replica(world, index) for index in range(_REPLICAS)]
    for index in who:
        replicas[index].offset = timedelta(hours=hours)
    settle(world, *(replicas[index] for index in who))
    for index in who:
        replicas[index].offset = timedelta()
    settle(world, *replicas)
    _assert_all_is_well(world)


def test_a_clock_that_was_just_set_is_not_believed() -> None:
    world = World()
    replica = Replica(world, 0)
    settle(world, replica)
    replica.offset = timedelta(days=100)
    decision = replica.finish()
    assert decision is not None
    assert "jumped" in decision.reason
    replica.offset = timedelta()
    before = world.version
    settle(world, replica)
    assert world.version == before


def test_bundles_are_repaired_where_the_pair_cannot_be_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: Any) -> None:
        raise OSError("no room")

    world = World()
    replica = Replica(world, 0)
    monkeypatch.setattr("tests.certs.world._Output.put", fail)
    settle(world, replica)
    world.empty(0)
    settle(world, replica)
    assert world.bundles[0] == decode(world.files).authorities
    assert world.served == {}


def test_no_leaf_is_forced_in_the_middle_of_a_rotation() -> None:
    world = World()
    replica = Replica(world, 0)
    settle(world, replica)
    replica.force(Step.ADD_AUTHORITY)
    before = world.version
    for _ in range(2):  # before the bundles are written, and after
        with pytest.raises(Conflict):
            replica.force(Step.ISSUE_LEAF)
        replica.finish()
    assert world.version == before
    settle(world, replica)
    replica.force(Step.ISSUE_LEAF)
    assert world.version > before
