"""The resources that Usher reads and writes, by group, version and plural name."""

from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

from cluster.key import Key
from rules.api import GROUP, VERSION
from rules.policies import POLICY_GROUP, POLICY_VERSION


@dataclass(frozen=True, slots=True)
class Resource:
    """A resource, namespaced or not."""

    group: str
    """"" for the core group."""
    version: str
    name: str
    """The plural, in lower case."""

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """The URL path of an object, of its subresource, or of all objects.

        Whatever the names hold, it leads nowhere else.
        """
        prefix = f"/apis/{self.group}" if self.group else "/api"
        scope = ("namespaces", _segment(namespace)) if namespace else ()
        parts = (self.version, *scope, self.name, _segment(name), subresource)
        return "/".join((prefix, *filter(None, parts)))

    def path_of(self, key: Key, subresource: str = "") -> str:
        """The URL path of the object ``key``, or of its subresource."""
        return self.path(key.namespace, key.name, subresource)

    def __str__(self) -> str:
        return f"{self.name}.{self.group}" if self.group else self.name


PODS: Final = Resource("", "v1", "pods")


def _segment(name: str) -> str:
    """``name`` as one segment of a path; dots alone would be steps in it."""
    return quote(name, safe="") if name.strip(".") else name.replace(".", "%2E")


NAMESPACES: Final = Resource("", "v1", "namespaces")
NODES: Final = Resource("", "v1", "nodes")
DISRUPTION_BUDGETS: Final = Resource("policy", "v1", "poddisruptionbudgets")
SECRETS: Final = Resource("", "v1", "secrets")
EVENTS: Final = Resource("", "v1", "events")
CLUSTER_ROLES: Final = Resource("rbac.authorization.k8s.io", "v1", "clusterroles")
LEASES: Final = Resource("coordination.k8s.io", "v1", "leases")
_ADMISSION: Final = "admissionregistration.k8s.io"
VALIDATING_CONFIGURATIONS: Final = Resource(_ADMISSION, "v1", "validatingwebhookconfigurations")
MUTATING_CONFIGURATIONS: Final = Resource(_ADMISSION, "v1", "mutatingwebhookconfigurations")
POLICIES: Final = Resource(POLICY_GROUP, POLICY_VERSION, "responderpolicies")
CLUSTER_POLICIES: Final = Resource(POLICY_GROUP, POLICY_VERSION, "clusterresponderpolicies")
EVICTIONS: Final = Resource(GROUP, VERSION, "evictions")
EVICTION_REQUESTS: Final = Resource(GROUP, VERSION, "evictionrequests")
BY_NAME: Final = {resource.name: resource for resource in (EVICTIONS, EVICTION_REQUESTS)}
"""The resources of planned writes (:attr:`controller.eviction.planning.writes.Write.resource`)."""
