"""Sends planned writes: only while this process leads, and only what the rules admit."""

from collections.abc import Callable, Mapping
from typing import Any

import structlog

from cluster.client import Cluster
from cluster.failures import ClusterFailure, Conflict, Refused
from cluster.key import Key
from cluster.resources import BY_NAME, PODS
from controller.eviction.planning.writes import EVICTIONS, Write
from controller.metrics import Metrics
from rules.api import ObjectMeta
from rules.decode import Encoded
from rules.evaluate import evaluate
from rules.request import STATUS, Judged, Request

Learn = Callable[[Encoded], None]

_log = structlog.get_logger()


class NotLeadingError(Exception):
    """This process may not write (any more)."""


class RefusedPlanError(Exception):
    """The rules refuse a planned write: a bug. It was logged; sending it would only repeat."""


class Writer:
    """The one way by which the controller changes the cluster."""

    def __init__(
        self,
        cluster: Cluster,
        metrics: Metrics,
        learn: Mapping[str, Learn],
        may_write: Callable[[], bool],
    ) -> None:
        """``learn``: resource name → whom to tell the answers; ``may_write``: whether we lead."""
        self._cluster = cluster
        self._metrics = metrics
        self._learn = learn
        self._may_write = may_write

    async def apply(self, write: Write, judged: Request | None, manager: str) -> None:
        """Send ``write``, which admission will see as ``judged``.

        Raises ClusterFailure, NotLeadingError and RefusedPlanError.
        """
        self._judge(write, judged)
        document = _identified(write, judged)
        jumps = self._cluster.time.jumps
        try:
            answer = await self._apply(write, document, manager)
        except Refused:
            if self._cluster.time.jumps != jumps:
                # The refusal has told so. What was planned bears times that are wrong now.
                raise Conflict("the API server's time has jumped") from None
            # To our rules it was lawful, but for a version that may be past: that of before a write
            # whose answer was lost. An API server compares versions before it judges, and so tells
            # a conflict from a refusal.
            stored = judged.old_object if judged else None
            if stored is None and await self._look_again(write):
                # Somebody has taken the name meanwhile, for another pod: a new name is to be found.
                raise Conflict(f"{write.key.name} exists already") from None
            if stored is None or _relies_on_version(write):
                raise
            answer = await self._apply(write, _of_version(document, stored), manager)
        except Conflict:
            if _relies_on_version(write):
                await self._look_again(write)
            raise
        self._learn[write.resource](answer)

    async def _look_again(self, write: Write) -> bool:
        """Learn what has come between: the watch may be silent, and would go on to be so.

        Returns whether there is something.
        """
        try:
            document = await self._cluster.get(BY_NAME[write.resource], write.key)
        except ClusterFailure as failure:
            _log.debug("not read after a conflict", name=write.key.name, error=str(failure))
            return False
        self._learn[write.resource](document)
        return True

    async def _apply(self, write: Write, document: Mapping[str, Any], manager: str) -> Encoded:
        self._check_lead()
        try:
            answer = await self._cluster.apply(
                BY_NAME[write.resource],
                write.key,
                document,
                subresource=write.subresource,
                manager=manager,
            )
        except ClusterFailure as failure:
            self._count(write.resource, write.subresource, type(failure).__name__)
            raise
        self._count(write.resource, write.subresource, "ok")
        return answer

    async def evict(self, pod: Key, uid: str) -> None:
        """Call the eviction subresource. Raises ClusterFailure and NotLeadingError."""
        self._check_lead()
        try:
            await self._cluster.evict(pod, uid)
        except ClusterFailure as failure:
            self._count("pods", "eviction", type(failure).__name__)
            raise
        self._count("pods", "eviction", "ok")

    async def delete(self, resource: str, key: Key, metadata: ObjectMeta) -> None:
        """Delete an object, unless it has changed. Raises ClusterFailure and NotLeadingError."""
        self._check_lead()
        version = metadata.resource_version
        try:
            await self._cluster.delete(BY_NAME[resource], key, metadata.uid, version)
        except ClusterFailure as failure:
            self._count(resource, "", type(failure).__name__)
            raise
        self._count(resource, "", "ok")
        _log.info("deleted", resource=resource, namespace=key.namespace, name=key.name)

    async def delete_pod(self, pod: Key, uid: str) -> None:
        """Delete the pod with that UID, with its own grace period.

        Raises ClusterFailure and NotLeadingError.
        """
        self._check_lead()
        try:
            await self._cluster.delete(PODS, pod, uid)
        except ClusterFailure as failure:
            self._count("pods", "", type(failure).__name__)
            raise
        self._count("pods", "", "ok")

    def _check_lead(self) -> None:
        if not self._may_write():
            raise NotLeadingError

    def _judge(self, write: Write, judged: Request | None) -> None:
        verdict = evaluate(judged) if judged else None
        if verdict is None or verdict.allowed:
            return
        self._metrics.refused_writes.inc()
        _log.error(
            "a planned write breaks the rules and is not sent; please report this",
            resource=write.resource,
            namespace=write.key.namespace,
            name=write.key.name,
            violations=[f"{violation.rule}: {violation.error}" for violation in verdict.denied],
        )
        raise RefusedPlanError

    def _count(self, resource: str, subresource: str, result: str) -> None:
        self._metrics.writes.labels(resource, subresource, result).inc()


def _relies_on_version(write: Write) -> bool:
    """Whether ``write`` is void where the object has changed since it was planned.

    That is the status of an Eviction: it says whose turn is over, and a responder may have reported
    what the view has not been told yet.
    """
    return write.resource == EVICTIONS and write.subresource == STATUS


def _identified(write: Write, judged: Request | None) -> Mapping[str, Any]:
    """The document of ``write``, which is only for the object that was judged.

    An apply creates what does not exist; one that names a UID is refused as a conflict then. An
    Eviction may be deleted at any time, or vanish with all others when the cluster begins to serve
    the API itself.
    """
    stored = judged.old_object if judged else None
    if stored is None:
        return write.apply
    if _relies_on_version(write):
        return _of_version(write.apply, stored)
    if write.subresource:
        return write.apply
    return _with_metadata(write.apply, uid=stored.metadata.uid)


def _of_version(document: Mapping[str, Any], stored: Judged) -> Mapping[str, Any]:
    return _with_metadata(document, resourceVersion=stored.metadata.resource_version)


def _with_metadata(document: Mapping[str, Any], **more: str) -> Mapping[str, Any]:
    return {**document, "metadata": {**document["metadata"], **more}}
