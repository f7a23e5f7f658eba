"""A cluster in which the chart's registration is in effect: nobody judges what the controller says.

Match conditions leave its writes out, so that it alone keeps what it says true.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.chart.registration import WEBHOOK_USER, registered, wait_until_in_effect
from tests.controller.program import NODE, Users
from tests.controller.proxy import Proxy
from tests.controller.rights import CONTROLLER
from tests.controlplane import Mode, NoToolchainError
from tests.controlplane.availability import skip_or_fail
from tests.e2e import rbac
from tests.e2e.cluster import Cluster, running_cluster
from tests.e2e.usher import running_usher


@contextmanager
def charted(mode: Mode) -> Iterator[Cluster]:
    """A cluster with Kubernetes' own controllers, a node, and the webhook."""
    try:
        with running_cluster(mode, audit=True) as cluster:
            cluster.plane.start_controller_manager()
            cluster.plane.start_kubelet(NODE)
            rbac.grant_everywhere(cluster, WEBHOOK_USER, *rbac.ASK)
            kubeconfig = str(cluster.plane.kubeconfig(WEBHOOK_USER))
            flags = ("--kubeconfig", kubeconfig, "--controllers", CONTROLLER)
            folder = cluster.plane.folder / "usher"
            with running_usher(folder, *flags) as usher, registered(cluster, usher):
                wait_until_in_effect(Users(cluster))
                yield cluster
    except NoToolchainError as error:
        skip_or_fail(str(error))


@pytest.fixture(scope="module", params=[Mode.NATIVE, Mode.CRD], ids=str)
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """Each way to have the API, in 1.37.2."""
    with charted(request.param) as cluster:
        yield cluster


@pytest.fixture
def proxy(cluster: Cluster) -> Iterator[Proxy]:
    """Between the API server and whoever uses its kubeconfig."""
    with Proxy(cluster.plane) as proxy:
        yield proxy


@pytest.fixture
def users(cluster: Cluster) -> Users:
    """A new namespace."""
    return Users(cluster)
