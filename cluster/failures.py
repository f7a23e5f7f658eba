"""What can go wrong between the controller and the API server; each kind is handled in its own way.

Messages are the API server's own, as far as it sent one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum, auto


@dataclass
class ClusterFailure(Exception):  # noqa: N818 - each kind below says what failed
    """A request to the API server did not succeed."""

    message: str
    """What the API server, or the network, said."""

    def __str__(self) -> str:
        return self.message


class Conflict(ClusterFailure):
    """409: the object is not, or no longer, what the request took it for."""


class Missing(ClusterFailure):
    """404: there is no such object, or the API server does not serve the resource."""


class Gone(ClusterFailure):
    """410: the version to go on from is too old; list again."""


@dataclass
class Denied(ClusterFailure):
    """403 by the API server's authorizer: who asks may not do this."""

    permission: str
    """What was asked for: verb, resource and API group, as a Role would grant it."""
    is_terminating: bool = False
    """The namespace is being deleted: nothing new may be made there. No permission is missing."""

    @property
    def explanation(self) -> str:
        """What is wrong, and who can mend it where; without the API server's own words."""
        return f"the permission to {self.permission} is missing; a Role has to grant it"


class Unauthenticated(Denied):
    """401: the API server does not know who asks, even after credentials were read again."""

    @property
    def explanation(self) -> str:
        """What is wrong, and who can mend it where; without the API server's own words."""
        return (
            f"the API server does not accept the credentials (401) for {self.permission}; "
            "the token or certificate has expired, was revoked, or is another cluster's"
        )


class BusySource(StrEnum):
    """Who says that it is too early."""

    BUDGET = auto()
    """A PodDisruptionBudget refuses an eviction."""
    ADMISSION = auto()
    """A webhook or a policy refuses: an operator that moves the pod by itself, perhaps."""
    SERVER = auto()
    """The API server has too much to do. It has not looked at the request."""


@dataclass
class Busy(ClusterFailure):
    """429: later."""

    retry_after: float | None = None
    """In seconds, where the API server said so."""
    causes: Sequence[str] = ()
    """Why, one message each: the disruption budgets that refuse an eviction."""
    source: BusySource = BusySource.SERVER


class Refused(ClusterFailure):
    """Another 4xx: the request as it is will hardly ever succeed.

    403 by a webhook, a policy or a quota is one: no Role helps against it.
    """


@dataclass
class ServerFailure(ClusterFailure):
    """5xx: the API server, or something behind it, has failed."""

    retry_after: float | None = None
    """In seconds, where the API server said so."""


class Unreachable(ClusterFailure):
    """There was no answer: the connection failed, or time ran out."""


class Untrusted(Unreachable):
    """No CA that is known has signed the API server's certificate, or it is another server's."""


class Silent(Unreachable):
    """A watch told nothing at all, not even its end: something on the way swallows it."""
