"""Policies tell in their status how many pods they fit, on real API servers in both modes."""

from pathlib import Path
from typing import Final

import pytest

from rules.policies import POLICY_API_VERSION
from tests.controller.program import Users, cluster, running
from tests.e2e.api import Object
from tests.e2e.cluster import Cluster, path_of
from tests.e2e.waiting import eventually

__all__ = ["cluster"]
pytestmark = pytest.mark.e2e

ALONE: Final = "--no-leader-elect"
DATABASE: Final = {"app": "db"}


def policy(kind: str, name: str, **spec: Object) -> Object:
    return {
        "apiVersion": POLICY_API_VERSION,
        "kind": kind,
        "metadata": {"name": name},
        "spec": {
            "podSelector": {"matchLabels": DATABASE},
            "responders": [{"name": "db.acme.io/failover", "priority": 10000}],
            **spec,
        },
    }


def wait_for_status(users: Users, document: Object, *, generation: int, pods: int) -> Object:
    """The policy, as soon as its status says so."""
    path = path_of(document, users.namespace, document["metadata"]["name"])
    wanted = {"observedGeneration": generation, "matchedPods": pods}

    def look() -> Object | None:
        found: Object = users.cluster.api("GET", path).body
        return found if found.get("status") == wanted else None

    return eventually(look, f"{document['metadata']['name']} fits {pods} pods")


def in_namespaces(*members: Users) -> Object:
    """A selector of their namespaces."""
    values = [each.namespace for each in members]
    key = "kubernetes.io/metadata.name"
    return {"matchExpressions": [{"key": key, "operator": "In", "values": values}]}


def test_each_policy_tells_how_many_pods_it_fits(cluster: Cluster, tmp_path: Path) -> None:
    users, others = Users(cluster), Users(cluster)
    for name in ("db-0", "db-1"):
        users.create_pod(name, labels=DATABASE)
    users.create_pod("web-0", labels={"app": "web"})
    others.create_pod("db-0", labels=DATABASE)
    kind = "ClusterResponderPolicy"
    narrow = policy("ResponderPolicy", "narrow")
    both = policy(kind, "both", namespaceSelector=in_namespaces(users, others))
    wide = policy(kind, "wide")
    none = policy(kind, "none", podSelector={"matchLabels": {"app": "cache"}})
    for document in (narrow, both, wide, none):
        users.call("POST", path_of(document, users.namespace), document)
    with running(cluster, tmp_path, ALONE) as program:
        first = wait_for_status(users, narrow, generation=1, pods=2)
        wait_for_status(users, both, generation=1, pods=3)
        wait_for_status(users, wide, generation=1, pods=3)
        wait_for_status(users, none, generation=1, pods=0)
        assert program.line("policies are not counted") is None
    written = first["metadata"]["managedFields"]
    assert [each["subresource"] for each in written if each["operation"] == "Apply"] == ["status"]

    others.create_pod("db-1", labels=DATABASE)
    any_app = {"matchLabels": None, "matchExpressions": [{"key": "app", "operator": "Exists"}]}
    users.patch(path_of(none, users.namespace, "none"), {"spec": {"podSelector": any_app}})
    with running(cluster, tmp_path, ALONE):
        wait_for_status(users, none, generation=2, pods=5)
        wait_for_status(users, both, generation=1, pods=4)
        again = wait_for_status(users, narrow, generation=1, pods=2)
    # What has not changed is not written again.
    assert again["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]
