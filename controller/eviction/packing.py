"""Objects that have come to their end, kept small: most of them nobody ever looks at again.

An Eviction and its request take 5.6 kB, and a cluster has thousands that have ended. Compressed
they take 0.6 kB, and are unpacked in some 15 µs when something about them is to be planned. See
ADR 49.
"""

import zlib
from functools import lru_cache
from typing import Any, Final, NamedTuple, TypeVar

import msgspec
from msgspec.structs import replace

from cluster.store import Packed
from controller.eviction.planning import conditions
from controller.eviction.planning.request import is_done
from controller.eviction.planning.requesters import wants_eviction
from controller.eviction.planning.writes import request_reference
from rules.api import EVICTOR, Eviction, EvictionRequest, EvictionStatus
from rules.decode import read
from rules.states import FINAL_CONDITIONS, is_true

ModelT = TypeVar("ModelT", Eviction, EvictionRequest)

_FAILURES: Final = (
    conditions.invalid("Target pod not found.").failed,
    conditions.CANCELED.failed,
    conditions.NO_FURTHER_RESPONDER.failed,
)
_CONDITION: Final = {"lastTransitionTime": "2026-01-01T00:00:00Z"}
_COMMON: Final = msgspec.json.encode(
    [
        {"deletionTimestamp": "2026-", "finalizers": []},
        [{"reason": f.reason, "message": f.message} for f in _FAILURES],
        {"labels": {EVICTOR: "responder", "/drain": "requester", "/x": "requester-responder"}},
        {
            "metadata": {
                "name": "pod-1-",
                "namespace": "default",
                "uid": "",
                "resourceVersion": "",
                "generation": 1,
                "creationTimestamp": "2026-01-01T00:00:00Z",
                "ownerReferences": [request_reference("", "")],
            },
            "spec": {"target": {"pod": {"name": "", "uid": ""}}, "requester": "", "intent": ""},
            "status": {
                "conditions": [
                    {"type": "Failed", "status": "False", **_CONDITION, "reason": "Succeeded"},
                    {
                        "type": "TargetEvicted",
                        "status": "True",
                        **_CONDITION,
                        "reason": conditions.POD_DELETED.target_evicted.reason,
                        "message": conditions.POD_DELETED.target_evicted.message,
                    },
                ],
                "observedGeneration": 1,
            },
        },
    ]
)
"""What nearly every object has, as a preset dictionary (RFC 1950, 2.2), the common at its end."""
_WINDOW: Final = 12
"""Bits: as much as the dictionary and an object take, so that a compressor is small."""


class Summary(NamedTuple):
    """What is counted of an object without unpacking it."""

    wants: bool = False
    """Of an EvictionRequest: whether it wants its pod gone."""
    intent: str = ""
    """Of an EvictionRequest."""
    outcome: str = ""
    """Of an Eviction: the type of the condition that has turned True."""
    states: tuple[str, ...] = ()
    """Of an Eviction: those of its target responders."""


_summary: Final = lru_cache(maxsize=1024)(Summary)
"""There are few different ones, which all objects share."""


class Compressed(Packed[ModelT]):
    """An object that has come to its end."""

    __slots__ = ("_data", "_model", "summary")

    def __init__(self, model: ModelT, summary: Summary) -> None:
        """``model`` is what is left of the object."""
        compressor = zlib.compressobj(wbits=-_WINDOW, zdict=_COMMON)
        self._data = compressor.compress(msgspec.json.encode(model)) + compressor.flush()
        self._model: type[ModelT] = type(model)
        self.summary = summary

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Compressed) and self._data == other._data

    def __hash__(self) -> int:
        return hash(self._data)

    def unpack(self) -> ModelT:
        """The object, as far as anybody looks at it after its end."""
        text = zlib.decompressobj(-_WINDOW, zdict=_COMMON).decompress(self._data)
        return read(self._model, text)


def summary_of(kept: Eviction | EvictionRequest | Compressed[Any]) -> Summary:
    """What is counted of an object, packed or not."""
    if isinstance(kept, Compressed):
        return kept.summary
    if isinstance(kept, EvictionRequest):
        return _summary(wants=wants_eviction(kept), intent=str(kept.spec.intent))
    ended = (str(type_) for type_ in FINAL_CONDITIONS if is_true(kept.status.conditions, type_))
    states = tuple(sorted(str(responder.state) for responder in kept.status.target_responders))
    return _summary(outcome=next(ended, ""), states=states)


def pack_eviction(eviction: Eviction) -> Eviction | Compressed[Eviction]:
    """``eviction``, packed if it has ended: then nobody asks for its responders and requesters."""
    summary = summary_of(eviction)
    if not summary.outcome:
        return eviction
    kept = EvictionStatus(
        conditions=eviction.status.conditions,
        observed_generation=eviction.status.observed_generation,
    )
    return Compressed(replace(eviction, status=kept), summary)


def pack_request(request: EvictionRequest) -> EvictionRequest | Compressed[EvictionRequest]:
    """``request``, packed if it has been told the end of its eviction."""
    return Compressed(request, summary_of(request)) if is_done(request) else request
