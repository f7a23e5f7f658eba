"""A responder's entry in ``responders`` may change only while that responder is Active.

Why: what others have reported is history, and a responder whose turn has not come has nothing to
report. The first initialisation of the list is exempt.
Source: pkg/apis/lifecycle/validation, ``ValidateEvictionStatusResponder``.
Admitted: a heartbeat of the Active responder
Refused: a message of an Inactive or Completed one
"""

from collections.abc import Iterator

from rules.api import Eviction
from rules.field import FieldError, invalid
from rules.rule import Context, Rule


def _check(new: Eviction, *, old: Eviction, context: Context) -> Iterator[FieldError]:
    for report in context.reports:
        if report.locked:
            detail = f"field is immutable while '{report.new.name}' is not 'Active'"
            yield invalid(report.path, report.new, detail)


RULE: Rule[Eviction] = Rule(
    name="active-reports",
    doc=__doc__,
    reads=("status.responders", "status.targetResponders"),
    judges=("status.responders",),
    update_status=_check,
)
