"""A status with too many requesters loses Withdrawn ones, the first in the list first.

If too many are left that want the eviction, validation refuses the write. A list that the write
does not change stays as it is, as validation leaves it alone too.

Why: the API asks whoever writes the list to drop Withdrawn requesters when there is no room; a
client that does not would have its whole report refused.
Source: ``requesters`` in v1alpha1/types.go, which asks for it.
Before: 101 requesters, 2 of them Withdrawn
After: 100 requesters, the later one of the 2 among them
"""

from typing import Final

from rules.api import MAX_REQUESTERS, Eviction, Intent
from rules.mutation import Change, Mutation, Setting
from rules.patch import Document
from rules.request import STATUS, Operation

_WAY: Final = ("status", "requesters")


def _amend(new: Eviction, document: Document, *, old: Eviction, setting: Setting) -> Change | None:
    requesters = new.status.requesters
    excess = len(requesters) - MAX_REQUESTERS
    if excess <= 0 or requesters == old.status.requesters:
        return None
    withdrawn = [
        position
        for position, requester in enumerate(requesters)
        if requester.intent == Intent.WITHDRAWN
    ]
    dropped = withdrawn[:excess]
    if not dropped:
        return None
    written = document["status"]["requesters"]
    kept = [entry for position, entry in enumerate(written) if position not in set(dropped)]
    names = ", ".join(requesters[position].name for position in dropped)
    return Change(_WAY, kept, f"{'.'.join(_WAY)}: dropped {names}")


MUTATION: Mutation[Eviction] = Mutation(
    name="trim-requesters",
    doc=__doc__,
    kind=Eviction,
    operation=Operation.UPDATE,
    subresource=STATUS,
    amend=_amend,
)
