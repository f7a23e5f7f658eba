"""An EvictionRequest that names a pod without a UID gets the UID of the pod that lives now.

Where there is no such pod nothing is filled in, and validation refuses the request.

Why: the UID keeps a pod that was recreated under the same name safe, but people who write a request
by hand know the name only.
Source: docs/mutations.md (Usher's own).
Before: {target: {pod: {name: web-0}}}
After: {target: {pod: {name: web-0, uid: 9b0a7a5e-5f0c-4b52-9f0c-6f2a1f0e7d11}}}
"""

from collections.abc import Iterator
from typing import Final

from rules import formats
from rules.api import EvictionRequest
from rules.facts import PodLookup, Question
from rules.mutation import Change, Mutation, Setting
from rules.patch import Document
from rules.request import Operation

_WAY: Final = ("spec", "target", "pod", "uid")


def _asks(new: EvictionRequest, *, setting: Setting) -> Iterator[Question]:
    if (lookup := _lookup(new, setting)) is not None:
        yield lookup


def _amend(
    new: EvictionRequest, document: Document, *, old: None, setting: Setting
) -> Change | None:
    lookup = _lookup(new, setting)
    live = setting.facts.pod(lookup) if lookup is not None else None
    if live is None:
        return None
    return Change(_WAY, live.uid, f"{'.'.join(_WAY)}: {live.uid}")


def _lookup(new: EvictionRequest, setting: Setting) -> PodLookup | None:
    """The pod to look for; None where no UID is missing, or no pod can have that name."""
    pod = new.spec.target.pod
    if pod is None or pod.uid or not formats.is_long_name(pod.name):
        return None
    return PodLookup(setting.namespace, pod.name)


MUTATION: Mutation[EvictionRequest] = Mutation(
    name="fill-target-uid",
    doc=__doc__,
    kind=EvictionRequest,
    operation=Operation.CREATE,
    amend=_amend,
    asks=_asks,
)
