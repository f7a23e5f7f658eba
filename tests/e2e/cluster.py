"""One control plane with the API in it, natively or by CustomResourceDefinitions."""

import itertools
import json
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Final

from rules.api import API_VERSION
from rules.crd import definitions, policy_definitions
from rules.policies import POLICY_API_VERSION
from tests.controlplane import ControlPlane, Mode
from tests.e2e.api import Answer, Api, Object
from tests.e2e.etcd import Etcd
from tests.e2e.waiting import eventually

_CRDS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_RESOURCES: Final = {
    "Eviction": "evictions",
    "EvictionRequest": "evictionrequests",
    "Pod": "pods",
    "ResponderPolicy": "responderpolicies",
    "ClusterResponderPolicy": "clusterresponderpolicies",
}


_SERVED: Final = (
    (API_VERSION, "evictions"),
    (API_VERSION, "evictionrequests"),
    (POLICY_API_VERSION, "responderpolicies"),
    (POLICY_API_VERSION, "clusterresponderpolicies"),
)


_numbers = itertools.count(1)
"""Of namespaces: one webhook may judge for several clusters of a mode, one after the other."""


def resource_of(document: Object) -> str:
    """The resource under which objects of this kind are written."""
    return _RESOURCES[document["kind"]]


def is_namespaced(document: Object) -> bool:
    """Whether objects of this kind are in a namespace."""
    return bool(document["kind"] != "ClusterResponderPolicy")


class Cluster:
    """A running control plane. Namespaces are never reused, nor do clusters share their names."""

    def __init__(self, plane: ControlPlane) -> None:
        self.plane = plane
        self.api = Api(plane)
        self.etcd = Etcd(plane)

    @property
    def is_native(self) -> bool:
        """Whether the API server itself judges the built-in rules."""
        return self.plane.mode is Mode.NATIVE

    def install_definitions(self) -> None:
        """Create those that the API server lacks, and wait until objects can be written."""
        for definition in policy_definitions() if self.is_native else definitions():
            answer = self.api("POST", _CRDS, definition)
            assert answer.ok, answer.message
        for version, resource in _SERVED:
            # Just after its creation a resource answers 404, and then 429 for a moment.
            eventually(partial(self._is_served, version, resource), f"{resource} are served")

    def _is_served(self, version: str, resource: str) -> bool:
        return self.api("GET", f"/apis/{version}/{resource}").ok

    def new_namespace(self, labels: Mapping[str, str] | None = None) -> str:
        """Create a namespace that nobody else uses; return its name."""
        mode = self.plane.mode.replace(".", "-")
        name = f"{mode}-{next(_numbers)}"
        body = {"metadata": {"name": name, "labels": dict(labels or {})}}
        answer = self.api("POST", "/api/v1/namespaces", body)
        assert answer.ok, answer.message
        return name

    def create(
        self, namespace: str, document: Object, query: str = "", *, identity: str = "admin"
    ) -> Answer:
        """POST an object."""
        path = f"{path_of(document, namespace)}{query}"
        return self.api("POST", path, document, identity=identity)

    def replace(
        self,
        namespace: str,
        document: Object,
        subresource: str = "",
        query: str = "",
        *,
        identity: str = "admin",
    ) -> Answer:
        """PUT an object, or one of its subresources."""
        path = path_of(document, namespace, document["metadata"]["name"], subresource)
        return self.api("PUT", f"{path}{query}", document, identity=identity)

    def kubectl(
        self, namespace: str, *arguments: str, document: Object | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run kubectl as admin in a namespace; ``document`` is its standard input."""
        stdin = json.dumps(document) if document is not None else None
        return self.plane.kubectl("-n", namespace, *arguments, stdin=stdin)

    def close(self) -> None:
        """Close all connections."""
        self.api.close()
        self.etcd.close()


def path_of(document: Object, namespace: str, name: str = "", subresource: str = "") -> str:
    """The URL path of an object, of its subresource, or (without a name) of its resource."""
    version = document["apiVersion"]
    prefix = f"/apis/{version}" if "/" in version else f"/api/{version}"
    scope = ("namespaces", namespace) if is_namespaced(document) else ()
    parts = (*scope, resource_of(document), name, subresource)
    return "/".join((prefix, *filter(None, parts)))


# Without it native pods have no `spec.schedulingGroup`.
_NATIVE_GATES: Final = {"GenericWorkload": True}


@contextmanager
def running_cluster(mode: Mode, *, audit: bool = False) -> Iterator[Cluster]:
    """A control plane of its own, with the API in it."""
    gates = _NATIVE_GATES if mode is Mode.NATIVE else {}
    with ControlPlane(mode, audit=audit, feature_gates=gates) as plane:
        cluster = Cluster(plane)
        try:
            cluster.install_definitions()
            yield cluster
        finally:
            cluster.close()
