"""The sync ``metadata``: labels by which everybody finds their Evictions, and owner references.

Other people's labels and references are not touched: an apply takes away only what its own field
manager stated before.
Source: pkg/controller/evictionrequest of Kubernetes 1.38.0-beta.0, ``syncEvictionMetaRefresh``.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any, Final

from msgspec.structs import replace

from cluster.key import Key
from controller.eviction.planning.snapshot import Snapshot
from controller.eviction.planning.target import Target
from controller.eviction.planning.writes import (
    EVICTION_REQUEST_KIND,
    Plan,
    Write,
    eviction_write,
    owner_reference,
    request_reference,
)
from rules.api import API_VERSION, Eviction, EvictionRequest
from rules.decode import decode_model


class Role(StrEnum):
    """What somebody has to do with an Eviction: the value of the label that bears their name.

    Source: ``EvictionParticipantRole`` in v1alpha1/types.go.
    """

    REQUESTER = "requester"
    RESPONDER = "responder"
    REQUESTER_RESPONDER = "requester-responder"


def plan_metadata(key: Key, snapshot: Snapshot, _now: datetime) -> Plan:
    """Labels and owner references of the Eviction ``key``; they do not depend on the instant."""
    eviction = snapshot.eviction(key)
    if eviction is None or eviction.spec.target.pod is None:
        return Plan()
    pod = eviction.spec.target.pod
    requests = snapshot.requests_of(key.namespace, pod)
    labels = _labels(eviction, Target.find(snapshot, key.namespace, pod), requests)
    kept, added = stored_owners(eviction), _added_owners(eviction, requests)
    if not added and not labels_are_changed(labels, eviction.metadata.labels):
        return Plan()
    return Plan((eviction_write(key, pod, labels, [*kept, *added]),))


def complete_creation(write: Write, snapshot: Snapshot, now: datetime) -> Write:
    """``write``, which creates an Eviction, with all that this sync would add to it next.

    It saves that second write. ``snapshot`` is the one that ``write`` was planned from.
    """
    created = decode_model(Eviction, write.apply)
    seen = replace(snapshot, evictions=(*snapshot.evictions, created))
    return next(iter(plan_metadata(write.key, seen, now).writes), write)


def _labels(
    eviction: Eviction, target: Target, requests: Iterable[EvictionRequest]
) -> dict[str, str]:
    requesters = {request.spec.requester for request in requests}
    if target.pod is not None:
        responders = {responder.name for responder in target.responders}
    else:
        # The pod's list has gone with it; the labels that it led to stay.
        responders = {
            name for name, role in eviction.metadata.labels.items() if role in _RESPONDING
        }
    return {
        name: _role(is_requester=name in requesters, is_responder=name in responders)
        for name in sorted(requesters | responders)
    }


_RESPONDING: Final = (Role.RESPONDER, Role.REQUESTER_RESPONDER)


def _role(*, is_requester: bool, is_responder: bool) -> Role:
    if is_requester and is_responder:
        return Role.REQUESTER_RESPONDER
    return Role.REQUESTER if is_requester else Role.RESPONDER


def labels_are_changed(planned: dict[str, str], stored: dict[str, str]) -> bool:
    """Whether a label is new or different, or a requester has gone."""
    return any(stored.get(name) != role for name, role in planned.items()) or any(
        role == Role.REQUESTER and name not in planned for name, role in stored.items()
    )


def stored_owners(eviction: Eviction) -> list[dict[str, Any]]:
    """References to requests, gone ones included: removing them is the garbage collector's job."""
    return [
        request_reference(owner.name, owner.uid)
        for owner in eviction.metadata.owner_references
        if owner.kind == EVICTION_REQUEST_KIND and owner.api_version == API_VERSION
    ]


def _added_owners(eviction: Eviction, requests: Sequence[EvictionRequest]) -> list[dict[str, Any]]:
    """References to requests that have none; those being deleted may be leaving orphans behind."""
    known = {owner.uid for owner in eviction.metadata.owner_references}
    return [
        owner_reference(request)
        for request in requests
        if request.metadata.deletion_timestamp is None and request.metadata.uid not in known
    ]
