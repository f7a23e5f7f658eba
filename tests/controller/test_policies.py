"""How many pods a policy fits, told in its status."""

from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest
import structlog
from structlog.testing import capture_logs

from cluster.client import Page
from cluster.failures import ClusterFailure, Denied, Missing, Refused
from cluster.key import Key
from cluster.resources import CLUSTER_POLICIES, NAMESPACES, PODS, POLICIES, Resource
from controller.policies import PolicyKeeper, as_text

NARROW = {"matchLabels": {"app": "db"}}


class FakeCluster:
    """Lists of objects by resource, namespace and selector; notes what is applied."""

    def __init__(self) -> None:
        self.lists: dict[tuple[Resource, str, str], list[dict[str, Any]] | ClusterFailure] = {
            (POLICIES, "", ""): [],
            (CLUSTER_POLICIES, "", ""): [],
        }
        self.applied: dict[Key, Mapping[str, Any]] = {}

    async def pages(
        self, resource: Resource, namespace: str = "", selector: str = ""
    ) -> AsyncIterator[Page]:
        found = self.lists[resource, namespace, selector]
        if isinstance(found, ClusterFailure):
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
def keeper(cluster: FakeCluster) -> PolicyKeeper:
    return PolicyKeeper(cluster)  # type: ignore[arg-type]


def policy(name: str, namespace: str = "", **spec: Any) -> dict[str, Any]:
    metadata = {"name": name, "generation": 3} | ({"namespace": namespace} if namespace else {})
    return {
        "apiVersion": "usher.dev/v1alpha1",
        "kind": "ResponderPolicy" if namespace else "ClusterResponderPolicy",
        "metadata": metadata,
        "spec": {"podSelector": NARROW, **spec},
    }


def pods(*namespaces: str) -> list[dict[str, Any]]:
    return [{"metadata": {"namespace": namespace}} for namespace in namespaces]


async def test_pods_are_counted(cluster: FakeCluster, keeper: PolicyKeeper) -> None:
    selector = {"matchLabels": {"team": "data"}}
    cluster.lists = {
        (POLICIES, "", ""): [policy("own", "shop")],
        (PODS, "shop", "app=db"): pods("shop", "shop"),
        (CLUSTER_POLICIES, "", ""): [policy("all"), policy("some", namespaceSelector=selector)],
        (PODS, "", "app=db"): pods("shop", "shop", "data", "other"),
        (NAMESPACES, "", "team=data"): [{"metadata": {"name": "data"}}],
    }
    await keeper.count()
    assert cluster.applied == {
        Key("shop", "own"): {"observedGeneration": 3, "matchedPods": 2},
        Key("", "all"): {"observedGeneration": 3, "matchedPods": 4},
        Key("", "some"): {"observedGeneration": 3, "matchedPods": 1},
    }


async def test_nothing_is_written_where_nothing_changed(
    cluster: FakeCluster, keeper: PolicyKeeper
) -> None:
    known = policy("own", "shop") | {"status": {"observedGeneration": 3, "matchedPods": 1}}
    cluster.lists[POLICIES, "", ""] = [known]
    cluster.lists[PODS, "shop", "app=db"] = pods("shop")
    await keeper.count()
    assert cluster.applied == {}


async def test_a_cluster_without_the_kinds_is_no_failure(
    cluster: FakeCluster, keeper: PolicyKeeper
) -> None:
    for resource in (POLICIES, CLUSTER_POLICIES):
        cluster.lists[resource, "", ""] = Missing("not found")
    structlog.reset_defaults()
    with capture_logs() as lines:
        await keeper.count()
    assert lines == []


async def test_one_failure_does_not_keep_others_from_their_count(
    cluster: FakeCluster, keeper: PolicyKeeper
) -> None:
    odd = policy("odd", "shop", podSelector={"matchLabels": {"app": "?"}})
    cluster.lists = {
        (POLICIES, "", ""): [odd, policy("own", "shop")],
        (PODS, "shop", "app=?"): Refused("unable to parse requirement"),
        (PODS, "shop", "app=db"): pods("shop"),
        (CLUSTER_POLICIES, "", ""): Denied("forbidden", "list clusterresponderpolicies"),
    }
    structlog.reset_defaults()
    with capture_logs() as lines:
        await keeper.count()
        await keeper.count()
    assert list(cluster.applied) == [Key("shop", "own")]
    (line,) = lines
    assert line["errors"] == [
        "unable to parse requirement",
        (
            "forbidden (the permission to list clusterresponderpolicies is missing; "
            "a Role has to grant it)"
        ),
    ]


@pytest.mark.parametrize(
    ("selector", "text"),
    [
        ({}, ""),
        ({"matchLabels": {"a": "b", "c.io/d": ""}}, "a=b,c.io/d="),
        (
            {
                "matchLabels": {"a": "b"},
                "matchExpressions": [
                    {"key": "c", "operator": "In", "values": ["x", "y"]},
                    {"key": "d", "operator": "NotIn", "values": ["z"]},
                    {"key": "e", "operator": "Exists"},
                    {"key": "f", "operator": "DoesNotExist"},
                ],
            },
            "a=b,c in (x,y),d notin (z),e,!f",
        ),
    ],
)
def test_selectors_as_text(selector: dict[str, Any], text: str) -> None:
    assert as_text(selector) == text
