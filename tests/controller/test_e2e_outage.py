"""Outages of a cluster with 120 nodes in three zones and 2,000 pods, at measured rates.

The rates are faster than the defaults by their flags, and by nothing else.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Final

import pytest

from controller.node_health.planning.zones import Health
from tests.controller.node_bed import PATIENT, Asked, Bed, running_bed, turns
from tests.controller.program import Program, running
from tests.controller.rights import CONTROLLER, NODE_HEALTH, PERMISSIONS
from tests.controlplane import Mode
from tests.e2e import rbac
from tests.e2e.waiting import eventually

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

NODES_OF_A_ZONE: Final = 40
PODS: Final = 2000
RATE, SECONDARY_RATE = 1.0, 0.5
FLAGS: Final = (
    *("--node-health", "--events", "notable"),
    *("--node-eviction-rate", str(RATE)),
    *("--secondary-node-eviction-rate", str(SECONDARY_RATE)),
)


@pytest.fixture(scope="module")
def bed() -> Iterator[Bed]:
    with running_bed(Mode.NATIVE) as cluster:
        rbac.grant_everywhere(cluster, CONTROLLER, *PERMISSIONS, *NODE_HEALTH)
        bed = Bed(cluster)
        bed.create_nodes(NODES_OF_A_ZONE)
        bed.create_pods(PODS, lambda node: () if node == "a-00" else (PATIENT,))
        yield bed


@pytest.fixture
def program(bed: Bed, tmp_path: Path) -> Iterator[Program]:
    """One controller; at the end all nodes are ready, and nothing is left of what was asked for."""
    with started(tmp_path, bed) as program:
        program.wait_for_lead()
        yield program
        bed.turn(Health.READY, *bed.nodes())
        bed.wait_until_gone()
        program.terminate()  # or the next one would wait until the Lease runs out
        eventually(program.has_ended, "the controller ends")


def started(folder: Path, bed: Bed, *flags: str) -> AbstractContextManager[Program]:
    """A controller; the Lease, with what zones may spend, goes from test to test."""
    return running(bed.cluster, folder, *FLAGS, *flags, identity=CONTROLLER)


def test_one_node(bed: Bed, program: Program) -> None:
    lost = bed.pods("a-00")
    assert len(lost) == 17
    bed.turn(Health.UNREACHABLE, "a-00")
    eventually(lambda: not bed.pods("a-00"), "its pods are evicted")
    bed.wait_until_gone()
    assert {each.pod for each in bed.asked()} == lost
    assert len(bed.pods()) == PODS - len(lost)


def test_55_percent_of_a_zone(bed: Bed, program: Program) -> None:
    before, pods = len(bed.asked()), bed.pods()
    failed = bed.nodes("b")[:22]
    bed.turn(Health.UNREACHABLE, *failed)
    eventually(lambda: program.zone_state("b") == "partial disruption", "the zone is disrupted")
    seen = datetime.now(UTC)
    asked = eventually(lambda: nodes_asked(bed, 6), "some nodes have had their turns")
    assert asked <= set(failed)
    bed.turn(Health.READY, *bed.nodes("b"))
    bed.wait_until_gone()
    found = [each for each in bed.asked()[before:] if each.time > seen]
    check_rate("55 % of a zone", found, SECONDARY_RATE)
    assert bed.pods() == pods


def test_a_whole_zone(bed: Bed, program: Program) -> None:
    before, pods = len(bed.asked()), bed.pods()
    failed = bed.nodes("c")
    bed.turn(Health.NOT_READY, *failed)
    asked = eventually(lambda: nodes_asked(bed, 10), "some nodes have had their turns")
    assert program.zone_state("c") == "full disruption"
    recovered = sorted(asked)[:5]
    bed.turn(Health.READY, *recovered)
    bed.wait_until_gone(*recovered)
    assert bed.asked_nodes() >= asked - set(recovered)
    bed.turn(Health.READY, *failed)
    bed.wait_until_gone()
    check_rate("a whole zone", bed.asked()[before:], RATE)
    assert bed.pods() == pods


def test_everything(bed: Bed, program: Program) -> None:
    before, pods = len(bed.asked()), bed.pods()
    bed.turn(Health.UNREACHABLE, *bed.nodes())
    down = "usher_controller_node_health_cluster_down"
    eventually(lambda: program.metric(down) == 1, "the cluster is down")
    bed.wait_until_gone()  # what was asked before is taken back
    gone = len(bed.asked())
    enough = datetime.now(UTC) + timedelta(seconds=5 / RATE)
    eventually(lambda: renewed(bed) > enough, "the leader goes on")
    assert len(bed.asked()) == gone
    bed.turn(Health.READY, "b-00")  # it reappears, and the others are evicted
    eventually(lambda: nodes_asked(bed, 9), "nodes have their turns again")
    bed.turn(Health.READY, *bed.nodes())
    bed.wait_until_gone()
    check_rate("everything, as nodes fail", bed.asked()[before:gone], RATE)
    check_rate("everything, as nodes reappear", bed.asked()[gone:], RATE)
    assert bed.pods() == pods


def test_leaders_are_killed(bed: Bed, tmp_path: Path) -> None:
    before, pods = len(bed.asked()), bed.pods()
    # Another one leads seconds after a death; on a busy machine it takes some to renew a Lease.
    swift = ("--lease-duration", "6", "--renew-deadline", "5", "--retry-period", "0.5")
    bed.turn(Health.UNREACHABLE, *bed.nodes("a"))
    with ExitStack() as stack:
        programs = [stack.enter_context(started(tmp_path, bed, *swift)) for _ in range(3)]
        for goal in (3, 6):
            leader = eventually(lambda: leading(programs), "one of them leads")
            eventually(lambda: nodes_asked(bed, goal), "nodes have their turns")  # noqa: B023
            leader.kill()
            programs.remove(leader)
        eventually(lambda: nodes_asked(bed, 10), "the last one goes on")
        bed.turn(Health.READY, *bed.nodes())
        bed.wait_until_gone()
    check_rate("three leaders", bed.asked()[before:], RATE)
    assert bed.pods() == pods


def renewed(bed: Bed) -> datetime:
    """When the leader has renewed the Lease."""
    path = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/usher-controller"
    return datetime.fromisoformat(bed.cluster.api("GET", path).body["spec"]["renewTime"])


def leading(programs: Iterable[Program]) -> Program | None:
    return next((each for each in programs if each.metric("usher_controller_lease_held")), None)


def nodes_asked(bed: Bed, number: int) -> set[str] | None:
    """The nodes whose pods are asked to leave, as soon as there are so many."""
    nodes = bed.asked_nodes()
    return nodes if len(nodes) >= number else None


def check_rate(what: str, asked: Sequence[Asked], rate: float) -> None:
    """In no zone do two nodes follow each other faster than the rate allows.

    From the last request of one to the first of the next: that is more than the rate promises for
    any window.
    """
    for zone, found in turns(asked).items():
        spans = [second.first - first.last for first, second in pairwise(found)]
        assert not spans or min(spans) >= timedelta(seconds=1 / rate)
        if spans:
            measured = len(spans) / (found[-1].first - found[0].first).total_seconds()
            text = f"{measured:.3f} nodes/s of {rate:g}, {sum(turn.pods for turn in found)} pods"
            print(f"{what}, zone {zone}: {len(found)} turns, {text}")
