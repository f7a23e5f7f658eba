"""Pytest fixtures: one running control plane for each mode and session, started when first asked.

A test module gets them by ``pytest_plugins = ("tests.controlplane.fixtures",)``, a whole project by
``-p tests.controlplane.fixtures``.
"""

from collections.abc import Iterator

import pytest

from tests.controlplane.availability import skip_or_fail
from tests.controlplane.build import NoToolchainError
from tests.controlplane.mode import Mode
from tests.controlplane.plane import ControlPlane

pytest_plugins = ("tests.controlplane.availability",)

_FIXTURES = {
    Mode.NATIVE: "controlplane_native",
    Mode.CRD: "controlplane_crd",
    Mode.CRD_1_34: "controlplane_crd_134",
}


def _running(mode: Mode) -> Iterator[ControlPlane]:
    plane = ControlPlane(mode, audit=True)
    try:
        plane.start()
    except NoToolchainError as error:
        skip_or_fail(str(error))
    yield plane
    plane.stop()


@pytest.fixture(scope="session")
def controlplane_native() -> Iterator[ControlPlane]:
    """Kubernetes 1.37.2 with the built-in API."""
    yield from _running(Mode.NATIVE)


@pytest.fixture(scope="session")
def controlplane_crd() -> Iterator[ControlPlane]:
    """Kubernetes 1.37.2 without the built-in API."""
    yield from _running(Mode.CRD)


@pytest.fixture(scope="session")
def controlplane_crd_134() -> Iterator[ControlPlane]:
    """Kubernetes 1.34.4, the oldest supported release."""
    yield from _running(Mode.CRD_1_34)


@pytest.fixture(scope="session", params=list(Mode), ids=str)
def controlplane(request: pytest.FixtureRequest) -> ControlPlane:
    """Each mode in turn."""
    plane: ControlPlane = request.getfixturevalue(_FIXTURES[request.param])
    return plane
