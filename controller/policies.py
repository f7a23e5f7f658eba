"""Tells in each policy's status how many pods it fits, for those who wrote it.

Not on the way of any eviction: the pods are those that the controller knows anyway, and whatever
goes wrong here is logged and left. See ADR 83.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager
from typing import Final, TypeAlias

import structlog

from cluster.client import Cluster, Document
from cluster.failures import ClusterFailure, Denied, Missing
from cluster.key import Key
from cluster.pauses import jittered
from cluster.resources import CLUSTER_POLICIES, NAMESPACES, POLICIES, Resource
from cluster.store import Store
from controller.eviction.ownership import MANAGER
from controller.eviction.view import KnownPod
from rules.decode import DecodeError, decode_model
from rules.policies import LabelSelector, selects

COUNT_SECONDS: Final = 60.0
"""Between two counts. Our own choice: it informs, and nothing waits for it."""

_AT_ONCE: Final = 5000
"""Pods that are counted before the event loop goes on: some milliseconds. Our own choice."""
_EVERYTHING: Final = LabelSelector()
Labels: TypeAlias = Mapping[str, str]

_log = structlog.get_logger()


class PolicyReconciler:
    """Keeps the statuses of policies."""

    def __init__(self, cluster: Cluster, pods: Store[KnownPod]) -> None:
        self._cluster = cluster
        self._pods = pods
        self._complaints: list[str] = []

    async def run(self) -> None:
        """Count again and again, until cancelled."""
        while True:
            try:
                await self.count()
            except Exception:  # noqa: BLE001 - a figure for people must not end the lead
                _log.exception("policies are not counted")
            await asyncio.sleep(jittered(COUNT_SECONDS))

    async def count(self) -> None:
        """Bring every policy's status up to date, as far as that is possible."""
        complaints: list[str] = []
        policies: list[tuple[Resource, Document]] = []
        for resource in (POLICIES, CLUSTER_POLICIES):
            with _noting(complaints):
                policies += [(resource, each) async for each in self._list(resource)]
        if policies:
            await self._count(policies, complaints)
        if complaints and complaints != self._complaints:
            _log.warning("policies are not counted", errors=complaints)
        self._complaints = complaints

    async def _count(
        self, policies: list[tuple[Resource, Document]], complaints: list[str]
    ) -> None:
        alike = await self._alike()
        namespaces: dict[str, Labels] = {}
        with _noting(complaints):
            if any(map(_chooses_namespaces, (policy for _, policy in policies))):
                async for each in self._list(NAMESPACES):
                    namespaces[each["metadata"]["name"]] = each["metadata"].get("labels") or {}
        for resource, policy in policies:
            if _chooses_namespaces(policy) and not namespaces:
                continue  # there is always one: they could not be listed
            with _noting(complaints):
                await self._keep(resource, policy, _matched(policy, alike, namespaces))

    async def _alike(self) -> Counter[tuple[str, tuple[tuple[str, str], ...]]]:
        """How many pods there are of each namespace and set of labels."""
        alike: Counter[tuple[str, tuple[tuple[str, str], ...]]] = Counter()
        for number, entry in enumerate(self._pods):
            alike[entry.key.namespace, entry.value.labels] += 1
            if number % _AT_ONCE == 0:
                await asyncio.sleep(0)
        return alike

    async def _keep(self, resource: Resource, policy: Document, matched: int) -> None:
        metadata = policy["metadata"]
        status = {"observedGeneration": metadata["generation"], "matchedPods": matched}
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

    async def _list(self, resource: Resource) -> AsyncIterator[Document]:
        async for page in self._cluster.pages(resource):
            for item in page.items:
                yield item


def _matched(
    policy: Document,
    alike: Mapping[tuple[str, tuple[tuple[str, str], ...]], int],
    namespaces: Mapping[str, Labels],
) -> int:
    own = policy["metadata"].get("namespace", "")
    wanted, places = _selector(policy, "podSelector"), _selector(policy, "namespaceSelector")
    return sum(
        count
        for (namespace, labels), count in alike.items()
        if own in ("", namespace)
        and (places == _EVERYTHING or selects(places, namespaces.get(namespace, {})))
        and selects(wanted, dict(labels))
    )


def _chooses_namespaces(policy: Document) -> bool:
    return bool((policy.get("spec") or {}).get("namespaceSelector"))


def _selector(policy: Document, name: str) -> LabelSelector:
    return decode_model(LabelSelector, (policy.get("spec") or {}).get(name) or {})


@contextmanager
def _noting(complaints: list[str]) -> Iterator[None]:
    """Go on after a failure; what is missing is no failure."""
    try:
        yield
    except Missing:
        pass  # the kind is not installed, or the policy has just been deleted
    except Denied as failure:
        complaints.append(f"{failure} ({failure.explanation})")
    except (ClusterFailure, DecodeError) as failure:
        complaints.append(str(failure))
