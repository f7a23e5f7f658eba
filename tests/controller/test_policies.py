"""How many pods a policy fits, told in its status."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest
import structlog
from structlog.testing import capture_logs

from cluster.client import Page
from cluster.failures import Denied, Missing
from cluster.key import Key
from cluster.resources import CLUSTER_POLICIES, NAMESPACES, POLICIES, Resource
from cluster.store import Store, entry_of
from controller.eviction.view import read_pod
from controller.policies import PolicyReconciler
from tests.controller import objects

NARROW = {"matchLabels": {"app": "db"}}


class FakeCluster:
    """Lists of objects by resource; notes what is applied."""

    def __init__(self) -> None:
        self.lists: dict[Resource, list[dict[str, Any]] | Exception] = {
            POLICIES: [],
            CLUSTER_POLICIES: [],
        }
        self.applied: dict[Key, Mapping[str, Any]] = {}

    async def pages(self, resource: Resource) -> AsyncIterator[Page]:
        found = self.lists[resource]
        if isinstance(found, Exception):
            raise found
        for item in found:  # a page each
            yield Page([item], "1")

    async def apply(
        self,
        resource: Resource,
        key: Key,
        document: Mapping[str, Any],
        *,
        subresource: str,
        manager: str,
    ) -> None:
        assert (subresource, manager) == ("status", "usher-controller")
        assert document["kind"].lower() in resource.name.replace("policies", "policy")
        self.applied[key] = document["status"]


@pytest.fixture
def cluster() -> FakeCluster:
    return FakeCluster()


@pytest.fixture
def reconciler(cluster: FakeCluster) -> PolicyReconciler:
    return PolicyReconciler(cluster, Store())  # type: ignore[arg-type]


def add_pods(reconciler: PolicyReconciler, *namespaces: str, app: str = "db") -> None:
    """A pod in each of ``namespaces``."""
    for namespace in namespaces:
        number = len(reconciler._pods)
        document = objects.pod(f"pod-{number}", number)
        document["metadata"] |= {"namespace": namespace, "labels": {"app": app}}
        reconciler._pods.put(entry_of(document, read_pod(document)))


def policy(name: str, namespace: str = "", **spec: Any) -> dict[str, Any]:
    metadata = {"name": name, "generation": 3} | ({"namespace": namespace} if namespace else {})
    return {
        "apiVersion": "usher.dev/v1alpha1",
        "kind": "ResponderPolicy" if namespace else "ClusterResponderPolicy",
        "metadata": metadata,
        "spec": {"podSelector": NARROW, **spec},
    }


async def test_pods_are_counted(cluster: FakeCluster, reconciler: PolicyReconciler) -> None:
    selector = {"matchLabels": {"team": "data"}}
    cluster.lists = {
        POLICIES: [policy("own", "shop")],
        CLUSTER_POLICIES: [policy("all"), policy("some", namespaceSelector=selector)],
        NAMESPACES: [
            {"metadata": {"name": "data", "labels": {"team": "data"}}},
            {"metadata": {"name": "shop"}},
        ],
    }
    add_pods(reconciler, "shop", "shop", "data", "other")
    add_pods(reconciler, "shop", "data", app="web")
    await reconciler.count()
    assert cluster.applied == {
        Key("shop", "own"): {"observedGeneration": 3, "matchedPods": 2},
        Key("", "all"): {"observedGeneration": 3, "matchedPods": 4},
        Key("", "some"): {"observedGeneration": 3, "matchedPods": 1},
    }


async def test_nothing_is_written_where_nothing_changed(
    cluster: FakeCluster, reconciler: PolicyReconciler
) -> None:
    known = policy("own", "shop") | {"status": {"observedGeneration": 3, "matchedPods": 1}}
    cluster.lists[POLICIES] = [known]
    add_pods(reconciler, "shop")
    await reconciler.count()
    assert cluster.applied == {}


async def test_nothing_ends_the_count(
    cluster: FakeCluster, reconciler: PolicyReconciler, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.lists[POLICIES] = RuntimeError("a bug")
    pauses = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) > 2:
            raise asyncio.CancelledError

    monkeypatch.setattr(asyncio, "sleep", sleep)
    with pytest.raises(asyncio.CancelledError):
        await reconciler.run()
    assert len(pauses) == 3


async def test_a_cluster_without_the_kinds_is_no_failure(
    cluster: FakeCluster, reconciler: PolicyReconciler
) -> None:
    for resource in (POLICIES, CLUSTER_POLICIES):
        cluster.lists[resource] = Missing("not found")
    structlog.reset_defaults()
    with capture_logs() as lines:
        await reconciler.count()
    assert lines == []


async def test_one_failure_does_not_keep_others_from_their_count(
    cluster: FakeCluster, reconciler: PolicyReconciler
) -> None:
    odd = policy("odd", "shop", podSelector={"matchLabels": {"app": 7}})
    without = {name: value for name, value in policy("none", "shop").items() if name != "spec"}
    cluster.lists = {
        POLICIES: [odd, policy("own", "shop"), without],
        CLUSTER_POLICIES: Denied("forbidden", "list clusterresponderpolicies"),
    }
    add_pods(reconciler, "shop")
    structlog.reset_defaults()
    with capture_logs() as lines:
        await reconciler.count()
        await reconciler.count()
    assert list(cluster.applied) == [Key("shop", "own"), Key("shop", "none")]
    (line,) = lines
    assert line["errors"] == [
        (
            "forbidden (the permission to list clusterresponderpolicies is missing; "
            "a Role has to grant it)"
        ),
        "matchLabels.app: must be a string",
    ]
