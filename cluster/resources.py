"""The resources that the controller reads and writes, by group, version and plural name."""

from dataclasses import dataclass
from typing import Final

from cluster.key import Key
from rules.api import GROUP, VERSION


@dataclass(frozen=True, slots=True)
class Resource:
    """A resource, namespaced or not."""

    group: str
    """"" for the core group."""
    version: str
    name: str
    """The plural, in lower case."""

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """The URL path of an object, of its subresource, or of all objects."""
        prefix = f"/apis/{self.group}" if self.group else "/api"
        scope = ("namespaces", namespace) if namespace else ()
        parts = (self.version, *scope, self.name, name, subresource)
        return "/".join((prefix, *filter(None, parts)))

    def path_of(self, key: Key, subresource: str = "") -> str:
        """The URL path of the object ``key``, or of its subresource."""
        return self.path(key.namespace, key.name, subresource)

    def __str__(self) -> str:
        return f"{self.name}.{self.group}" if self.group else self.name


PODS: Final = Resource("", "v1", "pods")
EVENTS: Final = Resource("", "v1", "events")
CLUSTER_ROLES: Final = Resource("rbac.authorization.k8s.io", "v1", "clusterroles")
LEASES: Final = Resource("coordination.k8s.io", "v1", "leases")
EVICTIONS: Final = Resource(GROUP, VERSION, "evictions")
EVICTION_REQUESTS: Final = Resource(GROUP, VERSION, "evictionrequests")
BY_NAME: Final = {resource.name: resource for resource in (EVICTIONS, EVICTION_REQUESTS)}
"""The resources of planned writes (:attr:`controller.planning.writes.Write.resource`)."""
