"""Whether the cluster runs the controller of Kubernetes itself, which 1.38 brings.

Two controllers with two field managers would take turns at the same statuses for ever, so that ours
stands down. There are two signs: the role that the other one works with, and its field manager on
an Eviction that has not ended. Source: lifecycle of Kubernetes 1.38.0-beta.0.
"""

import asyncio
from collections.abc import Mapping
from time import monotonic
from typing import Any, Final

import structlog

from cluster.client import Cluster
from cluster.failures import ClusterFailure, Denied, Missing
from cluster.key import Key
from cluster.resources import CLUSTER_ROLES
from rules.api import ConditionStatus

MANAGER: Final = "evictionrequest-controller"
"""The other one's field manager."""
ROLE: Final = f"system:controller:{MANAGER}"
LOOK_SECONDS: Final = 30.0
"""Between two looks at the role. Our own choice."""
TRACE_SECONDS: Final = 600.0
"""For how long a trace of the other one counts: Evictions outlive controllers that were turned off.
Our own choice."""

_log = structlog.get_logger()


class Rival:
    """Looks out for the other controller."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._has_role = False
        self._said = False
        self._trace: float | None = None
        self._appeared = asyncio.Event()

    def reason(self) -> str | None:
        """Why to stand down; None if there is nobody else."""
        if self._has_role:
            return f"standing down: the cluster runs its own controller (ClusterRole {ROLE})"
        if self._trace is not None and monotonic() - self._trace < TRACE_SECONDS:
            return f"standing down: '{MANAGER}' writes Evictions of this cluster"
        return None

    def saw(self, eviction: Mapping[str, Any]) -> None:
        """An Eviction as the API server sent it, from the watch."""
        conditions = (eviction.get("status") or {}).get("conditions") or ()
        if any(condition.get("status") == ConditionStatus.TRUE for condition in conditions):
            return
        fields = eviction["metadata"].get("managedFields") or ()
        if any(entry.get("manager") == MANAGER for entry in fields):
            self._trace = monotonic()
            self._appeared.set()

    async def look(self) -> None:
        """Look for the role."""
        try:
            await self._cluster.get(CLUSTER_ROLES, Key("", ROLE))
        except Missing:
            self._has_role = False
        except Denied as failure:
            if not self._said:
                _log.warning(failure.explanation, role=ROLE)
                self._said = True
        except ClusterFailure:
            pass  # as it was before
        else:
            self._has_role = True

    async def appear(self) -> None:
        """Return when there is a reason to stand down."""
        while self.reason() is None:
            self._appeared.clear()
            await self._pause()
            await self.look()

    async def leave(self) -> None:
        """Return when there is none (any more)."""
        await self.look()
        while self.reason() is not None:
            await asyncio.sleep(LOOK_SECONDS)
            await self.look()

    async def _pause(self) -> None:
        try:
            async with asyncio.timeout(LOOK_SECONDS):
                await self._appeared.wait()
        except TimeoutError:
            pass
