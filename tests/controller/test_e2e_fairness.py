"""On a real API server: what one tenant does keeps nobody else waiting."""

from pathlib import Path
from typing import Final

import pytest

from tests.controller.program import Users, cluster, controller, users
from tests.controller.slow_admission import slow_admission
from tests.e2e.waiting import eventually

__all__ = ["cluster", "controller", "users"]

pytestmark = pytest.mark.e2e

_PODS: Final = 30
_SHARE: Final = 5
"""Calls that one namespace may have under way: half of the controller's ten workers."""


def test_slow_evictions_hold_up_no_other_namespace(users: Users, tmp_path: Path) -> None:
    """Whoever asks later is served while not one of the slow calls has been answered."""
    slow = Users(users.cluster)
    with slow_admission(slow, tmp_path, 25) as admission:
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
