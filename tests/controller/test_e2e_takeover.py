"""Two controllers, and what becomes of evictions when the one that leads is killed."""

from datetime import datetime
from pathlib import Path
from typing import Final

import pytest

from cluster.leader_election import Terms
from rules.api import EVICTOR
from tests.controller.program import Program, Users, cluster, present, running, states
from tests.e2e.cluster import Cluster
from tests.e2e.waiting import eventually

__all__ = ["cluster"]
pytestmark = pytest.mark.e2e

RESPONDER: Final = "db.acme.io/failover"
NEXT: Final = "mesh.example.com/drain"
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
        assert standby.metric("usher_controller_lease_held") == 0
        assert "usher_controller_evictions{" not in standby.ask("/metrics")[1]
        assert leader.metric("usher_controller_evictions") > 0
        leader.kill()
        renewed = _lease_time(cluster, "renewTime")
        standby.wait_for_lead()
        span = (_lease_time(cluster, "acquireTime") - renewed).total_seconds()
        print(f"{cluster.plane.mode}: the lead was taken {span:.1f} s after the last renewal")
        for name in names:
            users.wait_for_reason("evictionrequests", name, "PodDeleted")
        users.report("pod-1-patient", RESPONDER, completionTime=present())
        users.wait_for_reason("evictions", "pod-1-patient", "PodDeleted")
        assert standby.metric("usher_controller_evictions") == SWIFT + 1
        assert standby.metric("usher_controller_evictions_ended_total") >= 1
        assert standby.metric("usher_controller_api_request_seconds_count") > SWIFT
    assert set(users.evictions_called()) == {"patient", *names}
    # A call that was on its way when the leader died may be made again if it came to nothing.
    assert max(users.evictions_called(201).values()) == 1
    assert len(users.list("evictions")) == SWIFT + 1


def test_a_responder_evicts_the_pod_while_nobody_leads(cluster: Cluster, tmp_path: Path) -> None:
    """It says so itself. The next leader sees report and deletion at once: nobody else has a turn.

    One that leads meanwhile may hear of either first, and then begin the next responder's turn.
    """
    users = Users(cluster)
    with Program(cluster, tmp_path, "--no-leader-elect").killed_afterwards():
        users.request(users.create_pod("web-0", RESPONDER, NEXT), "drain")
        users.wait_for("evictions", "pod-1-web-0", lambda e: states(e).get(RESPONDER) == "Active")
    users.delete("pods", "web-0")
    users.wait_until_gone("pods", "web-0")
    users.report("pod-1-web-0", RESPONDER, completionTime=present())
    with running(cluster, tmp_path, "--no-leader-elect"):
        ended = users.wait_for_reason("evictions", "pod-1-web-0", "PodDeleted")
    assert states(ended) == {RESPONDER: "Completed", NEXT: "Inactive", EVICTOR: "Inactive"}


def _lease_time(cluster: Cluster, field: str) -> datetime:
    return datetime.fromisoformat(cluster.api("GET", LEASE).body["spec"][field])
