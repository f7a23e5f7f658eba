"""Namespaces for databases, on clusters whose webhook has every guard set to deny."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import usher
from tests.controller.program import Program, cluster, controller
from tests.e2e.cluster import Cluster
from tests.examples.responding import Database

__all__ = ["cluster", "controller", "usher"]


@pytest.fixture
def database(cluster: Cluster, controller: Program, tmp_path: Path) -> Iterator[Database]:
    """A new namespace; controller and webhook care for it."""
    database = Database(cluster, tmp_path)
    yield database
    database.go_on()  # commands whose responder was killed wait for it
