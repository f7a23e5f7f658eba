"""Two controllers, and what becomes of evictions when the one that leads is killed."""

from datetime import datetime
from pathlib import Path
from typing import Final

import pytest

from controller.lease import Terms
from tests.controller.program import Users, cluster, present, running, states
from tests.e2e.cluster import Cluster
from tests.e2e.waiting import eventually

__all__ = ["cluster"]
pytestmark = pytest.mark.e2e

RESPONDER: Final = "db.acme.io/failover"
SWIFT: Final = 20
LEASE: Final = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/usher-controller"
LONGEST_SECONDS: Final = 20
"""What a takeover may take."""


def test_terms_allow_for_a_takeover_in_time() -> None:
    terms = Terms()
    # The standby sees the last renewal one attempt late, and asks again one attempt too late.
    assert terms.duration + 2 * terms.retry <= LONGEST_SECONDS


def test_takeover_after_a_kill(cluster: Cluster, tmp_path: Path) -> None:
    users = Users(cluster)
    names = [f"web-{number}" for number in range(SWIFT)]
    with running(cluster, tmp_path) as first, running(cluster, tmp_path) as second:
        eventually(lambda: first.leads() or second.leads(), "one of them leads")
        leader, standby = (first, second) if first.leads() else (second, first)
        eventually(lambda: standby.ask("/readyz")[0] == 200, "the standby is ready")
        waiting = users.create_pod("patient", RESPONDER)
        users.request(waiting, "patient")
        users.wait_for("evictions", "pod-1-patient", lambda e: RESPONDER in states(e))
        for name in names:
            users.request(users.create_pod(name), name)
        assert not standby.leads()
        leader.kill()
        renewed = _lease_time(cluster, "renewTime")
        standby.wait_for_lead()
        span = (_lease_time(cluster, "acquireTime") - renewed).total_seconds()
        print(f"{cluster.plane.mode}: the lead was taken {span:.1f} s after the last renewal")
        for name in names:
            users.wait_for_reason("evictionrequests", name, "PodDeleted")
        users.report("pod-1-patient", RESPONDER, completionTime=present())
        users.wait_for_reason("evictions", "pod-1-patient", "PodDeleted")
    assert set(users.evictions_called()) == {"patient", *names}
    # A call that was on its way when the leader died may be made again if it came to nothing.
    assert max(users.evictions_called(201).values()) == 1
    assert len(users.list("evictions")) == SWIFT + 1


def _lease_time(cluster: Cluster, field: str) -> datetime:
    return datetime.fromisoformat(cluster.api("GET", LEASE).body["spec"][field])
