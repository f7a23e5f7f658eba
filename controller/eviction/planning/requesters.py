"""Who asked for an eviction, as ``status.requesters`` records it.

Source: pkg/controller/evictionrequest of Kubernetes 1.38.0-beta.0.
"""

from collections.abc import Iterable
from datetime import datetime

from rules.api import MAX_REQUESTERS, EvictionRequest, Intent, Requester
from rules.times import ZERO


def wants_eviction(request: EvictionRequest) -> bool:
    """Whether the request stands; one that is being deleted counts as withdrawn."""
    return request.metadata.deletion_timestamp is None and request.spec.intent == Intent.EVICTION


def planned_requesters(
    stored: Iterable[Requester], requests: Iterable[EvictionRequest]
) -> tuple[Requester, ...]:
    """Everybody who asks or has asked, each once; where room is short the first ones stay.

    First those whose request exists, the most insistent and then the oldest ones first; then those
    ``stored`` whose request has gone, as withdrawn.
    """
    intents: dict[str, str] = {}
    for request in sorted(requests, key=_rank):
        deleting = request.metadata.deletion_timestamp is not None
        intent = Intent.WITHDRAWN if deleting else request.spec.intent
        intents.setdefault(request.spec.requester, intent)
    for name in sorted(requester.name for requester in stored):
        intents.setdefault(name, Intent.WITHDRAWN)
    listed = [Requester(name=name, intent=intent) for name, intent in intents.items()]
    return tuple(listed[:MAX_REQUESTERS])


def _rank(request: EvictionRequest) -> tuple[bool, bool, datetime, str]:
    return (
        request.metadata.deletion_timestamp is not None,
        not wants_eviction(request),
        request.metadata.creation_timestamp or ZERO,
        request.spec.requester,
    )
