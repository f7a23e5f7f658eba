"""Tells in each policy's status how many pods it fits, for those who wrote it.

Not on the way of any eviction: once a minute, and only where the cluster knows the kinds. Which
pods fit is left to the API server, so that no labels need to be kept here.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any, Final

import structlog

from cluster.client import Cluster, Document
from cluster.failures import ClusterFailure, Denied, Missing
from cluster.key import Key
from cluster.resources import CLUSTER_POLICIES, NAMESPACES, PODS, POLICIES, Resource
from controller.ownership import MANAGER

COUNT_SECONDS: Final = 60.0
"""Between two counts. Our own choice: it informs, and nothing waits for it."""

_log = structlog.get_logger()


class PolicyKeeper:
    """Keeps the statuses of policies."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._complaints: list[str] = []

    async def run(self) -> None:
        """Count again and again, until cancelled."""
        while True:
            await self.count()
            await asyncio.sleep(COUNT_SECONDS)

    async def count(self) -> None:
        """Bring every policy's status up to date, as far as that is possible."""
        complaints: list[str] = []
        for resource in (POLICIES, CLUSTER_POLICIES):
            with _noting(complaints):
                async for policy in self._list(resource):
                    with _noting(complaints):
                        await self._keep(resource, policy)
        if complaints and complaints != self._complaints:
            _log.warning("policies are not counted", errors=complaints)
        self._complaints = complaints

    async def _keep(self, resource: Resource, policy: Document) -> None:
        metadata = policy["metadata"]
        status = {
            "observedGeneration": metadata["generation"],
            "matchedPods": await self._matched(policy),
        }
        if policy.get("status") == status:
            return
        key = Key(metadata.get("namespace", ""), metadata["name"])
        document = {
            "apiVersion": policy["apiVersion"],
            "kind": policy["kind"],
            "metadata": {"name": key.name},
            "status": status,
        }
        await self._cluster.apply(resource, key, document, subresource="status", manager=MANAGER)

    async def _matched(self, policy: Document) -> int:
        spec, namespace = policy["spec"], policy["metadata"].get("namespace", "")
        pods = self._list(PODS, namespace, as_text(spec.get("podSelector") or {}))
        places = [pod["metadata"]["namespace"] async for pod in pods]
        namespaces = as_text(spec.get("namespaceSelector") or {})
        if not namespaces:
            return len(places)
        fitting = {
            each["metadata"]["name"] async for each in self._list(NAMESPACES, "", namespaces)
        }
        return sum(place in fitting for place in places)

    async def _list(
        self, resource: Resource, namespace: str = "", selector: str = ""
    ) -> AsyncIterator[Document]:
        async for page in self._cluster.pages(resource, namespace, selector):
            for item in page.items:
                yield item


@contextmanager
def _noting(complaints: list[str]) -> Iterator[None]:
    """Go on after a failure; what is missing is no failure."""
    try:
        yield
    except Missing:
        pass  # the kind is not installed, or the policy has just been deleted
    except Denied as failure:
        complaints.append(f"{failure} ({failure.explanation})")
    except ClusterFailure as failure:
        complaints.append(str(failure))


def as_text(selector: Document) -> str:
    """A label selector as a list request has it (apimachinery, ``labels.Parse``)."""
    equal = [f"{key}={value}" for key, value in (selector.get("matchLabels") or {}).items()]
    return ",".join([*equal, *map(_requirement, selector.get("matchExpressions") or ())])


def _requirement(requirement: dict[str, Any]) -> str:
    key, values = requirement["key"], ",".join(requirement.get("values") or ())
    match requirement["operator"]:
        case "In":
            return f"{key} in ({values})"
        case "NotIn":
            return f"{key} notin ({values})"
        case "Exists":
            return str(key)
        case _:
            return f"!{key}"
