"""Pytest fixtures of the test bed.

A test module gets them by ``pytest_plugins = ("tests.controlplane.fixtures",)``, a whole project by
``-p tests.controlplane.fixtures``.
"""

from collections.abc import Iterator

import pytest

from tests.controlplane.availability import skip_or_fail
from tests.controlplane.build import NoToolchainError, binary_path
from tests.controlplane.mode import Mode
from tests.controlplane.plane import ControlPlane

pytest_plugins = ("tests.controlplane.availability",)


# Not for the session: an API server that nobody uses takes a tenth of a core.
@pytest.fixture(scope="module", params=list(Mode), ids=str)
def controlplane(request: pytest.FixtureRequest) -> Iterator[ControlPlane]:
    """A running plane with an audit log, in each mode in turn; shared by a module."""
    plane = ControlPlane(request.param, audit=True)
    try:
        plane.start()
    except NoToolchainError as error:
        skip_or_fail(str(error))
    yield plane
    plane.stop()


only_native = pytest.mark.parametrize("controlplane", [Mode.NATIVE], indirect=True, ids=str)
"""For a test of ``controlplane``: the built-in API alone."""
only_crd = pytest.mark.parametrize(
    "controlplane", [Mode.CRD, Mode.CRD_1_34], indirect=True, ids=str
)
"""For a test of ``controlplane``: both modes without the built-in API."""


@pytest.fixture
def programs() -> None:
    """What a test needs that starts a plane of its own; without Go it is skipped."""
    try:
        binary_path("kube-apiserver")
    except NoToolchainError as error:
        skip_or_fail(str(error))
