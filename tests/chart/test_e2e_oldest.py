"""The chart on the oldest release of Kubernetes that is supported."""

from collections.abc import Iterator

import pytest

from tests.chart.cluster import Cluster, running_cluster
from tests.chart.release import Release
from tests.chart.scene import ROLES, Scene
from tests.controlplane import Mode
from tests.e2e.waiting import eventually

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running_cluster(Mode.CRD_1_34, tmp_path_factory.mktemp("oldest")) as cluster:
        yield cluster


def test_it_evicts_and_judges(cluster: Cluster) -> None:
    release = Release(cluster)
    release.install({**ROLES, "replicas": 2, "registration.pods.policies": True}, "--wait")
    release.await_verdicts()
    scene = Scene(cluster, "shop")
    (path,) = scene.begin("db-0")
    scene.finish(path)
    eventually(lambda: scene.is_evicted("db-0"), "the controller in a pod evicts")
    release.uninstall()
    eventually(release.is_gone, "nothing is left")
    assert release.is_free()
