"""Pytest fixture: one running oracle for the session.

A test module gets it by ``pytest_plugins = ("tests.oracle.fixtures",)``.
"""

from collections.abc import Iterator

import pytest

from tests.controlplane.availability import skip_or_fail
from tests.controlplane.build import NoToolchainError, binary_path
from tests.oracle.client import Oracle

pytest_plugins = ("tests.controlplane.availability",)


@pytest.fixture(scope="session")
def oracle() -> Iterator[Oracle]:
    """Answers as Kubernetes 1.37.2 does; built on the first use."""
    try:
        binary_path("oracle")
    except NoToolchainError as error:
        skip_or_fail(str(error))
    with Oracle() as running:
        yield running
