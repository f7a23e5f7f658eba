"""Reads once more what a final write rests on, unless it was seen with certainty."""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from cluster.client import Cluster
from cluster.failures import Missing
from cluster.key import Key
from cluster.resources import EVICTION_REQUESTS, PODS
from controller.eviction.planning.claims import Claim, NobodyAsks, PodIsGone, RequestIsVoid
from controller.eviction.planning.requesters import wants_eviction
from controller.eviction.view import View, read_request
from rules.api import PodReference
from rules.decode import DecodeError, Encoded

Learn = Callable[[Encoded], None]

UNPROVED_SECONDS: Final = 2.0
"""Until a final write is looked at again that could not be proved. Our own choice: a watch that is
late has mostly caught up by then."""


class LateViewError(Exception):
    """What a write would say for good is not known for certain: the view is late."""


class Verifier:
    """Compares claims with the cluster; what it reads on the way the view learns."""

    def __init__(
        self,
        cluster: Cluster,
        view: View,
        learn: Mapping[str, Learn],
        lateness: Callable[[], str | None],
    ) -> None:
        """``learn``: resource name → whom to tell what was read.

        ``lateness`` says why the view may be late; None: nothing is known to be wrong.
        """
        self._cluster = cluster
        self._view = view
        self._learn = learn
        self._lateness = lateness

    async def prove(self, namespace: str, claims: Iterable[Claim]) -> None:
        """Return if all ``claims`` are true now. Raises LateViewError, and ClusterFailure."""
        if (hindrance := self._lateness()) is not None:
            raise LateViewError(hindrance)
        for claim in claims:
            if not await self._holds(namespace, claim):
                raise LateViewError(f"not true: {claim}")

    async def _holds(self, namespace: str, claim: Claim) -> bool:
        match claim:
            case PodIsGone(pod):
                return await self._is_gone(namespace, pod)
            case RequestIsVoid():
                return await self._is_void(namespace, claim)
            case NobodyAsks(pod):
                return await self._nobody_asks(namespace, pod)

    async def _is_gone(self, namespace: str, pod: PodReference) -> bool:
        if self._view.pods.was_deleted(pod.uid):
            return True
        try:
            document = await self._cluster.get(PODS, Key(namespace, pod.name))
        except Missing:
            return True
        self._learn[PODS.name](document)
        return bool(document["metadata"]["uid"] != pod.uid)

    async def _is_void(self, namespace: str, claim: RequestIsVoid) -> bool:
        if self._view.requests.was_deleted(claim.uid):
            return True
        key = Key(namespace, claim.name)
        was_told = self._was_told(key, claim.uid)
        try:
            document = await self._cluster.get(EVICTION_REQUESTS, key)
        except Missing:
            pass
        else:
            self._learn[EVICTION_REQUESTS.name](document)
            if document["metadata"]["uid"] == claim.uid and _stands(document):
                return False
        return was_told or await self._nobody_asks(namespace, claim.pod)

    def _was_told(self, key: Key, uid: str) -> bool:
        """Whether the watch has told that a request is void, and so of all that came before.

        The answer to an own write is ahead of the watch: others may have come in between.
        """
        requests = self._view.requests
        entry = requests.get(key)
        return (
            entry is not None
            and entry.uid == uid
            and -1 < entry.version <= requests.seen
            and not wants_eviction(entry.value)
        )

    async def _nobody_asks(self, namespace: str, pod: PodReference) -> bool:
        async for page in self._cluster.pages(EVICTION_REQUESTS, namespace):
            for document in page.items:
                if _stands(document, pod):
                    self._learn[EVICTION_REQUESTS.name](document)
                    return False
        return True


def _stands(document: Encoded, pod: PodReference | None = None) -> bool:
    """Whether a request, as it was just read, wants a pod gone: ``pod``, where one is named.

    One that can't be read is left alone, here as everywhere.
    """
    try:
        request = read_request(document)
    except DecodeError:
        return False
    return wants_eviction(request) and pod in (None, request.spec.target.pod)
