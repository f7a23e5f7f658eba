"""A cluster in each mode, and one webhook for all of them."""

from collections.abc import Iterator

import pytest

from tests.controlplane import Mode, NoToolchainError
from tests.controlplane.availability import skip_or_fail
from tests.e2e.cluster import Cluster, running_cluster
from tests.e2e.usher import Registration, Usher, registered, running_usher


# Not for the session: the next file begins with another mode, and an API server that nobody uses
# takes a tenth of a core.
@pytest.fixture(scope="module", params=list(Mode), ids=str)
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """Each mode in turn; its audit log is kept. Shared: use namespaces of your own."""
    try:
        with running_cluster(request.param, audit=True) as running:
            yield running
    except NoToolchainError as error:
        skip_or_fail(str(error))


@pytest.fixture(scope="session")
def usher(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Usher]:
    """The webhook as it is by default."""
    with running_usher(tmp_path_factory.mktemp("usher")) as running:
        yield running


@pytest.fixture(scope="module")
def registration(cluster: Cluster, usher: Usher) -> Iterator[Registration]:
    """The webhook's registration with failurePolicy Fail."""
    with registered(cluster, "usher", usher.authority, usher.port) as registration:
        yield registration


@pytest.fixture
def namespace(registration: Registration) -> str:
    """A new namespace whose writes the webhook judges."""
    return registration.new_namespace()
