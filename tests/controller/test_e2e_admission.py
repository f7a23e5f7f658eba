"""On a real API server: other admission webhooks for ``pods/eviction``, slow ones and busy ones."""

from pathlib import Path
from typing import Final

import pytest

from tests.controller.eviction_admission import eviction_admission
from tests.controller.program import Users, cluster, controller, users
from tests.e2e.api import Object
from tests.e2e.waiting import eventually

__all__ = ["cluster", "controller", "users"]

pytestmark = pytest.mark.e2e

_PODS: Final = 30
_SHARE: Final = 5
"""Calls that one namespace may have under way: half of the controller's ten workers."""


def test_slow_evictions_hold_up_no_other_namespace(users: Users, tmp_path: Path) -> None:
    """Whoever asks later is served while not one of the slow calls has been answered."""
    slow = Users(users.cluster)
    with eviction_admission(slow, tmp_path, seconds=25) as admission:
        names = [f"slow-{number}" for number in range(_PODS)]
        for name in names:
            slow.request(slow.create_pod(name), f"drain-{name}")
        eventually(lambda: admission.waiting == _SHARE, "the slow calls are under way")
        users.request(users.create_pod("web-0"), "drain-web-0")
        users.wait_for_reason("evictionrequests", "drain-web-0", "PodDeleted")
        assert (admission.waiting, admission.answered) == (_SHARE, 0)
        admission.release()
        for name in names:
            slow.wait_for_reason("evictionrequests", f"drain-{name}", "PodDeleted")


def test_an_operator_that_moves_the_pod_by_itself_is_waited_for(
    users: Users, tmp_path: Path
) -> None:
    """As KubeVirt does while a virtual machine migrates: 429 means that it has begun."""
    begun = {"code": 429, "message": "Eviction triggered evacuation of VMI vms/fedora"}
    with eviction_admission(users, tmp_path, refusal=begun) as admission:
        users.request(users.create_pod("virt-launcher-0"), "drain-vm")
        found = users.wait_for("evictions", "pod-1-virt-launcher-0", _has_message)
        (entry,) = found["status"]["responders"]
        assert entry["message"].startswith("Not yet, after attempt 1 to evict the pod: ")
        assert "evacuation" in entry["message"]
        admission.release()
        users.wait_for_reason("evictionrequests", "drain-vm", "PodDeleted")
    refused = [each for each in users.list("events") if each["reason"] == "EvictionRefused"]
    assert refused == []


def _has_message(eviction: Object) -> bool:
    entries = eviction.get("status", {}).get("responders", [])
    return any(entry.get("message") for entry in entries)
