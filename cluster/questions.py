"""Asks an API server what guards want to know."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from cluster.client import Cluster, Document
from cluster.failures import Missing, ServerFailure
from cluster.key import Key
from cluster.resources import (
    CLUSTER_POLICIES,
    EVICTIONS,
    NAMESPACES,
    PODS,
    POLICIES,
    Resource,
)
from cluster.server_time import ServerTime
from rules.api import MIRROR_ANNOTATION
from rules.facts import LivePod, Permission, PodLookup
from rules.request import User

_REVIEWS: Final = Resource("authorization.k8s.io", "v1", "subjectaccessreviews")
_REVIEW: Final = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview"}
_TERMINAL: Final = ("Succeeded", "Failed")
"""Phases that a pod does not leave (core/v1 types.go, ``PodPhase``)."""


class ClusterFacts:
    """The answers of one API server. Any exception but a cancellation means: no answer."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    @property
    def time(self) -> ServerTime:
        """What is known of the API server's time."""
        return self._cluster.time

    @property
    def clock_ahead(self) -> timedelta:
        """How far the machine's clock is ahead of it."""
        return self._cluster.clock_ahead

    async def ask_time(self) -> None:
        """Have it told anew."""
        await self._cluster.ask_time()

    async def has_permission(self, user: User, permission: Permission, name: str) -> bool:
        """Whether ``user`` has ``permission`` under ``name``.

        A SubjectAccessReview leaves nothing behind: dry runs may ask, too.
        """
        if not user.name:
            return False  # nobody has permissions, and API servers refuse to review one
        spec = {
            "user": user.name,
            "groups": user.groups,
            "uid": user.uid,
            "extra": dict(user.extra),
            "resourceAttributes": {
                "group": permission.group,
                "resource": permission.resource,
                "subresource": permission.subresource,
                "namespace": permission.namespace,
                "verb": permission.verb,
                "name": name,
            },
        }
        answer = await self._cluster.create(_REVIEWS, "", {**_REVIEW, "spec": spec})
        status = answer["status"]
        if status["allowed"] is True:
            return True
        if error := status.get("evaluationError"):
            # An authorizer has failed that might have granted it: that is no refusal.
            raise ServerFailure(f"no authorizer could tell: {error}")
        return False

    async def find_pod(self, lookup: PodLookup) -> LivePod | None:
        """Get the pod from the API server's storage, not from a cache of its."""
        try:
            pod = await self._cluster.get(PODS, Key(lookup.namespace, lookup.name))
        except Missing:
            return None
        return live_pod(pod)

    async def list_pods(self, namespace: str) -> Mapping[str, str]:
        """UID → name of every pod of ``namespace``, from the API server's storage as well."""
        pages = self._cluster.pages(PODS, namespace, is_metadata_enough=True)
        return {
            pod["metadata"]["uid"]: pod["metadata"]["name"]
            async for page in pages
            for pod in page.items
        }

    async def list_policies(self, namespace: str) -> list[Document]:
        """The ResponderPolicies of ``namespace``; where it is "", the ClusterResponderPolicies.

        A cluster that does not know the kind has none.
        """
        resource = POLICIES if namespace else CLUSTER_POLICIES
        try:
            pages = self._cluster.pages(resource, namespace)
            return [policy async for page in pages for policy in page.items]
        except Missing:
            return []

    async def find_labels(self, namespace: str) -> Mapping[str, str]:
        """Get the namespace; one that has just been deleted has no labels."""
        try:
            document = await self._cluster.get(NAMESPACES, Key("", namespace))
        except Missing:
            return {}
        labels: Mapping[str, str] = document["metadata"].get("labels", {})
        return labels

    async def has_native_responders(self) -> bool:
        """Ask who serves the API: pods have the field where the API server itself does."""
        return await self._cluster.is_built_in(EVICTIONS)


def live_pod(pod: Mapping[str, Any]) -> LivePod:
    """What guards want to know of a pod, from its document."""
    metadata, spec = pod["metadata"], pod.get("spec", {})
    owners = metadata.get("ownerReferences", ())
    return LivePod(
        uid=metadata["uid"],
        is_terminal=pod.get("status", {}).get("phase") in _TERMINAL,
        is_grouped=spec.get("schedulingGroup") is not None,
        is_mirror=MIRROR_ANNOTATION in metadata.get("annotations", {}),
        is_daemon=any(each.get("controller") and each["kind"] == "DaemonSet" for each in owners),
    )


@asynccontextmanager
async def connected(kubeconfig: Path | None) -> AsyncIterator[ClusterFacts]:
    """The API server that ``kubeconfig`` names; None: the one of the cluster that we run in.

    Raises ConfigurationError where there is no usable configuration.
    """
    async with Cluster(kubeconfig, "usher-webhook") as cluster:
        yield ClusterFacts(cluster)
