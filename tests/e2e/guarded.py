"""A webhook that asks the cluster and denies whatever any guard objects to."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from rules.catalog import GUARDS
from tests.e2e import rbac
from tests.e2e.cluster import Cluster
from tests.e2e.usher import Registration, registered, running_usher

WEBHOOK_USER: Final = "viewer"
NAME: Final = "guarded"
ONCALL: Final = "oncall"
"""A user whose group no guard stops, for what cannot come about while all of them deny."""


@contextmanager
def guarded(cluster: Cluster, folder: Path, *controllers: str) -> Iterator[Registration]:
    """Register it with failurePolicy Fail; ``controllers`` are those that it knows by name.

    These must not have tried anything that was denied: tried again later, it would go unnoticed.
    """
    rbac.grant_everywhere(cluster, WEBHOOK_USER, *rbac.ASK)
    flags = ["--kubeconfig", str(cluster.plane.kubeconfig(WEBHOOK_USER)), "--break-glass", ONCALL]
    flags += (f"--enforce={guard}=deny" for guard in GUARDS)
    flags += (f"--controllers={user}" for user in controllers)
    with (
        running_usher(folder, *flags) as usher,
        registered(cluster, NAME, usher.authority, usher.port) as registration,
    ):
        registration.new_namespace()  # from then on it is in effect
        yield registration
        denied = [line for line in usher.log() if line["event"] == "denied"]
        assert [line for line in denied if line["user"] in controllers] == []
