"""A webhook whose machine has the wrong time judges by the API server's."""

from pathlib import Path

import pytest

from rules.states import CLOCK_SKEW
from tests.e2e import rbac
from tests.e2e.cluster import Cluster
from tests.e2e.test_identity import KEEP, RESPONDER, WEBHOOK_USER, Change, Scene, first_report
from tests.e2e.times import ago
from tests.e2e.usher import registered, running_usher

pytestmark = pytest.mark.e2e

_OFF = int(CLOCK_SKEW.total_seconds()) + 15
"""Seconds by which a report is wrong whose writer's clock is; more than a slow machine takes."""


def late(seconds: int) -> Change:
    """A heartbeat from so many seconds ago."""
    return Change(
        "Eviction",
        "status",
        lambda status: status["responders"][0].update(heartbeatTime=ago(seconds=seconds)),
        first_report,
    )


@pytest.mark.parametrize("ahead", [60, -60, 45, -45, 25 * 60, -25 * 60])
def test_only_the_api_servers_time_counts(cluster: Cluster, tmp_path: Path, ahead: int) -> None:
    rbac.grant_everywhere(cluster, WEBHOOK_USER, *rbac.ASK)
    kubeconfig = str(cluster.plane.kubeconfig(WEBHOOK_USER))
    with (
        running_usher(tmp_path, "--kubeconfig", kubeconfig, ahead=ahead) as usher,
        registered(cluster, "clock", usher.authority, usher.port) as registration,
    ):
        scene = Scene(cluster, registration.new_namespace())
        answer = KEEP.write(scene, "put", RESPONDER)
        assert answer.ok, answer.message
        for wrong in (_OFF, -_OFF):
            answer = late(wrong).write(scene, "put", RESPONDER)
            assert ("FieldValueInvalid", "status.responders[0].heartbeatTime") in answer.causes
        assert usher.metric("usher_webhook_clock_ahead_seconds") == pytest.approx(ahead, abs=5)
        (line,) = [line for line in usher.log() if "clock differs" in line["event"]]
        assert line["seconds_ahead"] == pytest.approx(ahead, abs=5)
