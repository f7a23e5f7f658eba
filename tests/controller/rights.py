"""Who writes in the controller's end-to-end tests, and what each of them may do.

Nobody but the admin, who sets the scene, has more rights than the work takes: the webhook of these
tests has every guard set to deny.
"""

from typing import Final

from tests.e2e import rbac
from tests.e2e.api import Object
from tests.e2e.cluster import Cluster
from tests.e2e.guarded import ONCALL
from tests.e2e.waiting import eventually

CONTROLLER: Final = "system:serviceaccount:usher-system:usher-controller"
"""The controller under test."""
STRANGER: Final = "controller"
"""Another one, to whom each test gives rights of its own."""
DRAINER: Final = "drainer"
"""Whoever asks for evictions."""
RESPONDERS: Final = {"db.acme.io/failover": "responder-a", "mesh.example.com/drain": "responder-b"}
"""Responder → who may respond under that name."""

PERMISSIONS: Final[list[Object]] = [
    {
        "apiGroups": ["lifecycle.k8s.io"],
        "resources": ["evictions", "evictionrequests"],
        "verbs": ["get", "list", "watch"],
    },
    {
        "apiGroups": ["lifecycle.k8s.io"],
        "resources": ["evictions", "evictions/status", "evictionrequests/status"],
        "verbs": ["create", "patch"],
    },
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]},
    {"apiGroups": [""], "resources": ["namespaces"], "verbs": ["list"]},
    {
        "apiGroups": ["usher.dev"],
        "resources": ["responderpolicies", "clusterresponderpolicies"],
        "verbs": ["list"],
    },
    {
        "apiGroups": ["usher.dev"],
        "resources": ["responderpolicies/status", "clusterresponderpolicies/status"],
        "verbs": ["patch"],
    },
    {"apiGroups": [""], "resources": ["pods/eviction"], "verbs": ["create"]},
    {"apiGroups": [""], "resources": ["events"], "verbs": ["create"]},
    {
        "apiGroups": ["coordination.k8s.io"],
        "resources": ["leases"],
        "verbs": ["get", "create", "update"],
    },
    {
        "apiGroups": ["rbac.authorization.k8s.io"],
        "resources": ["clusterroles"],
        "resourceNames": ["system:controller:evictionrequest-controller"],
        "verbs": ["get"],
    },
]
"""All that the controller needs with its default flags; a TTL needs :data:`DELETE` as well."""
DELETE: Final[Object] = {
    "apiGroups": ["lifecycle.k8s.io"],
    "resources": ["evictions", "evictionrequests"],
    "verbs": ["delete"],
}
NODE_HEALTH: Final[list[Object]] = [
    {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list", "watch"]},
    {
        "apiGroups": ["lifecycle.k8s.io"],
        "resources": ["evictionrequests"],
        "verbs": ["create", "patch", "delete"],
    },
    {
        "apiGroups": ["lifecycle.k8s.io"],
        "resources": ["evictionrequesters"],
        "resourceNames": ["node-health.usher.dev/controller"],
        "verbs": ["request"],
    },
]
"""What ``--node-health`` needs beside :data:`PERMISSIONS`."""
DELETE_PODS: Final[Object] = {"apiGroups": [""], "resources": ["pods"], "verbs": ["delete"]}
"""What ``--node-health-deadline`` needs beside that."""
_REQUEST: Final[Object] = {
    "apiGroups": ["lifecycle.k8s.io"],
    "resources": ["evictionrequesters"],
    "verbs": ["request"],
}
"""In every name: each request of these tests has a requester of its own."""
_REQUESTS: Final[Object] = {
    "apiGroups": ["lifecycle.k8s.io"],
    "resources": ["evictionrequests"],
    "verbs": ["*"],
}


def grant_controller(cluster: Cluster) -> None:
    """Give the controller under test its rights, as docs/controller.md has them."""
    rbac.grant_everywhere(cluster, CONTROLLER, *PERMISSIONS)


def grant_users(cluster: Cluster) -> None:
    """Give everybody else theirs; returns when they are in effect."""
    for name, user in RESPONDERS.items():
        rbac.grant_everywhere(cluster, user, rbac.WRITE_STATUS, rbac.respond(name))
    rbac.grant_everywhere(cluster, ONCALL, _REQUESTS)
    rbac.grant_everywhere(cluster, DRAINER, _REQUESTS, _REQUEST, rbac.EVICT)
    # What is granted last is known last.
    path = "/apis/lifecycle.k8s.io/v1alpha1/evictionrequests?limit=1"
    eventually(lambda: cluster.api("GET", path, identity=DRAINER).ok, "the rights are in effect")
