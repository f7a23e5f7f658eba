"""The write that initialises the responders may not report anything on their behalf.

That is: no heartbeat and no completion, and a ``startTime`` for the Active one only.

Why: natively a first write may already carry them, which finishes a responder before it could
start (kubernetes#140804).
Source: Usher's own guard.
Admitted: responders [{name: a.io/x, startTime: now}], a.io/x Active
Refused: responders [{name: a.io/x, startTime: now, completionTime: now}]
"""

from collections.abc import Iterator

from rules.api import Eviction
from rules.field import FieldError, forbidden
from rules.rule import Context, Rule

_DETAIL = "may not be set in the write that initialises the responders"


def _check(new: Eviction, *, old: Eviction, context: Context) -> Iterator[FieldError]:
    if old.status.target_responders:
        return
    for report in context.reports:
        if report.new.heartbeat_time is not None:
            yield forbidden(report.path.child("heartbeatTime"), _DETAIL)
        if report.new.completion_time is not None:
            yield forbidden(report.path.child("completionTime"), _DETAIL)
        if report.new.start_time is not None and not report.active:
            detail = f"may not be set while '{report.new.name}' is not 'Active'"
            yield forbidden(report.path.child("startTime"), detail)


RULE: Rule[Eviction] = Rule(
    name="first-sync",
    doc=__doc__,
    reads=("status.targetResponders", "status.responders"),
    judges=("status.targetResponders",),
    update_status=_check,
    guard=True,
)
