"""What of exported objects is made again in a cluster that has lost them, what is not, and why.

EvictionRequests are what people want: they are made again unless they have come to their end.
Evictions are what a controller has made of them. No rule lets anybody make one that is half done:
a status can't be created, the first status may report nothing on behalf of responders (the guard
``first-sync``), and only a responder itself may say that it has completed. So the controller makes
new ones from the requests, and their responders begin again.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from cluster.key import Key
from controller.eviction.planning.relevance import has_ended
from controller.eviction.planning.request import is_done
from rules.api import API_VERSION, Eviction, EvictionRequest, Intent, ResponderState
from rules.decode import DecodeError, decode_model

_KEPT: Final = ("name", "namespace", "labels", "annotations", "ownerReferences", "finalizers")
"""What of the metadata is a writer's own; all the rest is set by API servers."""
_MODELS: Final[Mapping[str, type[EvictionRequest] | type[Eviction]]] = {
    "EvictionRequest": EvictionRequest,
    "Eviction": Eviction,
}
_Target = tuple[str, str]


class Restoration(NamedTuple):
    """What becomes of one exported object."""

    kind: str
    key: Key
    create: Mapping[str, Any] | None
    """The EvictionRequest to create; None: nothing is to be made."""
    reason: str
    """Why nothing is to be made; "" where something is."""


def read_exported(document: Any) -> EvictionRequest | Eviction:
    """The exported object ``document``. Raises DecodeError for anything else."""
    known = isinstance(document, dict) and document.get("apiVersion") == API_VERSION
    model = _MODELS.get(str(document.get("kind"))) if known else None
    if model is None:
        raise DecodeError(f"must be an EvictionRequest or an Eviction of {API_VERSION}")
    found = decode_model(model, document)
    if not (found.metadata.name and found.metadata.namespace):
        raise DecodeError("must have a name and a namespace")
    return found


def plan_restoration(documents: Sequence[Mapping[str, Any]]) -> Iterator[Restoration]:
    """What becomes of each of ``documents``, in order. Raises DecodeError."""
    objects = [read_exported(document) for document in documents]
    wanted = {
        target
        for each in objects
        if isinstance(each, EvictionRequest)
        and not _request_ended(each)
        and each.spec.intent == Intent.EVICTION
        and (target := _target(each)) is not None
    }
    for document, each in zip(documents, objects, strict=True):
        key = Key(each.metadata.namespace, each.metadata.name)
        if isinstance(each, Eviction):
            yield Restoration("Eviction", key, None, _eviction_reason(each, wanted))
        elif reason := _request_ended(each):
            yield Restoration("EvictionRequest", key, None, reason)
        else:
            yield Restoration("EvictionRequest", key, _anew(document), "")


def _request_ended(request: EvictionRequest) -> str:
    """Why a request needs no more; "" if it does."""
    if request.metadata.deletion_timestamp is not None:
        return "was being deleted"
    return "has ended" if is_done(request) else ""


def _eviction_reason(eviction: Eviction, wanted: set[_Target]) -> str:
    if has_ended(eviction):
        return "has ended"
    if _target(eviction) not in wanted:
        return "nobody asks for it any more"
    completed = [
        responder.name
        for responder in eviction.status.target_responders
        if responder.state == ResponderState.COMPLETED
    ]
    reason = "the controller makes a new one from its requests, and all responders begin again"
    return f"{reason}; completed before: {', '.join(completed)}" if completed else reason


def _target(each: EvictionRequest | Eviction) -> _Target | None:
    pod = each.spec.target.pod
    return (each.metadata.namespace, pod.uid) if pod else None


def _anew(document: Mapping[str, Any]) -> dict[str, Any]:
    metadata = {name: value for name, value in document["metadata"].items() if name in _KEPT}
    return {
        "apiVersion": API_VERSION,
        "kind": "EvictionRequest",
        "metadata": metadata,
        "spec": document["spec"],
    }
