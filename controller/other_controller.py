"""Whether the cluster runs the controller of Kubernetes itself, which 1.38 brings.

Two controllers with two field managers would take turns at the same statuses for ever, so that ours
stands down. There are two signs: the role that the other one works with, where the API server
serves the API itself, and a fresh entry of its field manager on an Eviction that has not ended. API
servers never remove a role that they have made, so that the role alone says nothing where the API
comes from definitions. Source: lifecycle of Kubernetes 1.38.0-beta.0. See ADR 82.
"""

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final

import structlog

from cluster.client import Cluster
from cluster.failures import ClusterFailure, Denied, Missing
from cluster.key import Key
from cluster.pauses import jittered
from cluster.resources import CLUSTER_ROLES, EVICTIONS
from controller.eviction.ownership import ManagedFields
from rules.api import ApiType, Condition, ConditionStatus
from rules.decode import DecodeError, Encoded, decode

MANAGER: Final = "evictionrequest-controller"
"""The other one's field manager."""
ROLE: Final = f"system:controller:{MANAGER}"
LOOK_SECONDS: Final = 30.0
"""Between two looks at the role. Our own choice."""
TRACE_AGE: Final = timedelta(minutes=10)
"""For how long what the other one has written counts, by the time of that write: Evictions outlive
controllers that were turned off. Our own choice."""

_log = structlog.get_logger()


class _SeenMeta(ApiType):
    managed_fields: tuple[ManagedFields, ...] = ()


class _SeenStatus(ApiType):
    conditions: tuple[Condition, ...] = ()


class _Seen(ApiType):
    """What an Eviction tells of who writes it."""

    metadata: _SeenMeta = _SeenMeta()
    status: _SeenStatus = _SeenStatus()


class OtherController:
    """Looks out for the other controller."""

    def __init__(self, cluster: Cluster, now: Callable[[], datetime]) -> None:
        """``now`` is the API server's time, which stamps what the other one writes."""
        self._cluster = cluster
        self._now = now
        self._has_role = False
        self._said = False
        self._trace: datetime | None = None
        self._appeared = asyncio.Event()

    def reason(self) -> str | None:
        """Why to stand down; None if there is nobody else."""
        if self._has_role:
            return (
                "standing down: the API server serves the API itself, and has made a role for its "
                f"own controller (ClusterRole {ROLE}); where that controller is turned off, use "
                "--no-stand-down"
            )
        if self._trace is not None and self._now() - self._trace < TRACE_AGE:
            return f"standing down: '{MANAGER}' writes Evictions of this cluster"
        return None

    def saw(self, eviction: Encoded) -> None:
        """An Eviction as a list or a watch tells it; answers to own writes tell nothing new."""
        try:
            seen = decode(_Seen, eviction)
        except DecodeError:
            return  # who keeps it says so
        if any(each.status == ConditionStatus.TRUE for each in seen.status.conditions):
            return
        entries = seen.metadata.managed_fields
        times = [entry.time for entry in entries if entry.manager == MANAGER and entry.time]
        self._trace = max((*times, *filter(None, [self._trace])), default=None)
        if self.reason() is not None:
            self._appeared.set()

    async def look(self) -> None:
        """Look for the role, and where it is found for who serves the API."""
        try:
            await self._cluster.get(CLUSTER_ROLES, Key("", ROLE))
            self._has_role = await self._cluster.is_built_in(EVICTIONS)
        except Missing:
            self._has_role = False
        except Denied as failure:
            if not self._said:
                _log.warning(failure.explanation, role=ROLE)
                self._said = True
        except ClusterFailure:
            pass  # as it was before

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
            await asyncio.sleep(jittered(LOOK_SECONDS))
            await self.look()

    async def _pause(self) -> None:
        try:
            async with asyncio.timeout(LOOK_SECONDS):
                await self._appeared.wait()
        except TimeoutError:
            pass
