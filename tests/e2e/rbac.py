"""Grants of permissions to the identities of a control plane."""

import json
from collections.abc import Sequence
from hashlib import sha256
from typing import Final

from tests.e2e.api import Object
from tests.e2e.cluster import Cluster
from tests.e2e.waiting import eventually

_RBAC: Final = "/apis/rbac.authorization.k8s.io/v1"
_REVIEWS: Final = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
WRITE_STATUS: Final[Object] = {
    "apiGroups": ["lifecycle.k8s.io"],
    "resources": ["evictions/status", "evictionrequests/status"],
    "verbs": ["get", "update", "patch"],
}
"""What Kubernetes itself asks of whoever reports on an eviction."""
EDIT: Final[Object] = {
    "apiGroups": ["lifecycle.k8s.io"],
    "resources": ["evictions", "evictionrequests"],
    "verbs": ["*"],
}
"""What an editor of a namespace has."""
EVICT: Final[Object] = {"apiGroups": [""], "resources": ["pods/eviction"], "verbs": ["create"]}


ASK: Final[list[Object]] = [
    {
        "apiGroups": ["authorization.k8s.io"],
        "resources": ["subjectaccessreviews"],
        "verbs": ["create"],
    },
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]},
]
"""All that a webhook needs for its guards."""


def respond(*names: str) -> Object:
    """The permission to respond under ``names``."""
    return _named("evictionresponders", "respond", names)


def request(*names: str) -> Object:
    """The permission to ask for evictions as ``names``."""
    return _named("evictionrequesters", "request", names)


def _named(resource: str, verb: str, names: Sequence[str]) -> Object:
    return {
        "apiGroups": ["lifecycle.k8s.io"],
        "resources": [resource],
        "resourceNames": list(names),
        "verbs": [verb],
    }


def grant(cluster: Cluster, namespace: str, user: str, *rules: Object) -> None:
    """Give ``user`` a Role of its own in ``namespace``."""
    name = user.replace(":", "-")
    path = f"{_RBAC}/namespaces/{namespace}"
    role = {"metadata": {"name": name}, "rules": list(rules)}
    assert cluster.api("POST", f"{path}/roles", role).ok
    binding = {
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
    }
    assert cluster.api("POST", f"{path}/rolebindings", binding).ok
    _wait_for(cluster, namespace, user, rules)


def grant_everywhere(cluster: Cluster, user: str, *rules: Object) -> None:
    """Give ``user`` a ClusterRole of its own with these rules, unless it has that one."""
    digest = sha256(json.dumps(rules).encode()).hexdigest()[:8]
    name = f"{user.replace(':', '-')}-{digest}"
    role = {"metadata": {"name": name}, "rules": list(rules)}
    answer = cluster.api("POST", f"{_RBAC}/clusterroles", role)
    if answer.code == 409:
        return
    assert answer.ok, answer.message
    binding = {
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
    }
    assert cluster.api("POST", f"{_RBAC}/clusterrolebindings", binding).ok
    _wait_for(cluster, "", user, rules)


def _wait_for(cluster: Cluster, namespace: str, user: str, rules: Sequence[Object]) -> None:
    """Wait until the authorizer, which follows a watch, knows of it."""
    for rule in rules:
        what = f"{user} has {rule}"
        eventually(lambda rule=rule: _has(cluster, namespace, user, rule), what)


def _has(cluster: Cluster, namespace: str, user: str, rule: Object) -> bool:
    resource, _, subresource = rule["resources"][0].partition("/")
    attributes = {
        "namespace": namespace,
        "group": rule["apiGroups"][0],
        "resource": resource,
        "subresource": subresource,
        "verb": rule["verbs"][0],
        "name": rule.get("resourceNames", [""])[0],
    }
    review = {"spec": {"user": user, "resourceAttributes": attributes}}
    answer = cluster.api("POST", _REVIEWS, review)
    assert answer.ok, answer.message
    return bool(answer.body["status"]["allowed"])
