"""A responder should leave at least 20 seconds between two heartbeats.

Why: every heartbeat is a write that all watchers receive; the deadline is 20 minutes.
Source: ``heartbeatTime`` in v1alpha1/types.go, which recommends it; Usher's own guard.
Admitted: a heartbeat 3 minutes after the last one
Refused: a heartbeat 5 seconds after the last one
"""

from collections.abc import Iterator

from rules import states
from rules.api import Eviction
from rules.field import FieldError, invalid
from rules.rule import Context, Enforcement, Rule


def _check(new: Eviction, *, old: Eviction, context: Context) -> Iterator[FieldError]:
    for report in context.changeable_reports:
        value, stored = report.new.heartbeat_time, report.stored.heartbeat_time
        if value is None or stored is None or value <= stored:
            continue
        if value - stored < states.HEARTBEAT_SPACING:
            seconds = int(states.HEARTBEAT_SPACING.total_seconds())
            yield invalid(
                report.path.child("heartbeatTime"),
                value,
                f"should be at least {seconds} s after the last heartbeat",
            )


RULE: Rule[Eviction] = Rule(
    name="heartbeat-spacing",
    doc=__doc__,
    reads=("status.responders", "status.targetResponders"),
    judges=("status.responders.heartbeatTime",),
    update_status=_check,
    guard=True,
    enforcement=Enforcement.WARN,
)
