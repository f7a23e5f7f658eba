"""The API server's time, by a clock that does not jump.

Nodes, taints and the budgets of zones are stamped by others, so that ours counts for nothing. What
is known of the API server's clock comes in whole seconds, and would go to and fro.
"""

from datetime import datetime, timedelta
from time import monotonic

from cluster import clock
from cluster.client import Cluster
from controller.planning.budget import CLOCK_ERROR


class ServerTime:
    """Goes on steadily, and is set right where it is wrong by more than can be known."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._set(self._told())

    def now(self) -> datetime:
        """The present, to about two seconds."""
        told = self._told()
        steady = self._time + timedelta(seconds=monotonic() - self._since)
        if abs(told - steady) > CLOCK_ERROR:
            self._set(told)
            return told
        return steady

    def _told(self) -> datetime:
        return clock.now() - self._cluster.clock_ahead

    def _set(self, time: datetime) -> None:
        self._time, self._since = time, monotonic()
