"""Requesters should stay in ``status.requesters``; where room is short, Withdrawn ones go first.

Why: the list is the record of who asked. One who is dropped with intent Eviction while a Withdrawn
one stays can see the eviction canceled under their feet.
Source: ``requesters`` in v1alpha1/types.go, which asks for it; Usher's own guard.
Admitted: a requester turned from Eviction to Withdrawn
Refused: a requester removed from a list of three
"""

from collections.abc import Iterator

from rules.api import MAX_REQUESTERS, Eviction, Intent
from rules.field import FieldError, Path, forbidden
from rules.rule import Context, Enforcement, Rule

_FIELD = Path("status.requesters")


def _check(new: Eviction, *, old: Eviction, context: Context) -> Iterator[FieldError]:
    kept = {requester.name for requester in new.status.requesters}
    dropped = [requester for requester in old.status.requesters if requester.name not in kept]
    has_room = len(new.status.requesters) < MAX_REQUESTERS
    has_withdrawn = any(r.intent == Intent.WITHDRAWN for r in new.status.requesters)
    for requester in dropped:
        if has_room:
            detail = (
                f"should keep '{requester.name}': the list has room for {MAX_REQUESTERS}; "
                f"set its intent to '{Intent.WITHDRAWN}' instead"
            )
            yield forbidden(_FIELD, detail)
        elif requester.intent == Intent.EVICTION and has_withdrawn:
            detail = (
                f"should drop requesters with intent '{Intent.WITHDRAWN}' before '{requester.name}'"
            )
            yield forbidden(_FIELD, detail)


RULE: Rule[Eviction] = Rule(
    name="requesters-preserved",
    doc=__doc__,
    reads=("status.requesters",),
    update_status=_check,
    guard=True,
    enforcement=Enforcement.WARN,
)
