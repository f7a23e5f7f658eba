"""The webhook in front of each cluster, and namespaces for databases."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import usher
from tests.controller.program import Program, cluster, controller
from tests.e2e.cluster import Cluster
from tests.e2e.usher import Registration, registered, running_usher
from tests.examples.responding import Database

__all__ = ["cluster", "controller", "usher"]


@pytest.fixture(scope="module")
def registration(
    cluster: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Registration]:
    """A webhook of its own, which judges the namespaces of these tests and asks the cluster."""
    folder = tmp_path_factory.mktemp("usher")
    with (
        running_usher(folder, "--kubeconfig", str(cluster.plane.kubeconfig())) as running,
        registered(cluster, "examples", running.authority, running.port) as registration,
    ):
        yield registration


@pytest.fixture
def database(
    cluster: Cluster, registration: Registration, controller: Program, tmp_path: Path
) -> Iterator[Database]:
    """A new namespace; controller and webhook care for it."""
    database = Database(cluster, registration, tmp_path)
    yield database
    database.go_on()  # commands whose responder was killed wait for it
