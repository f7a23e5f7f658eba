"""A true TargetEvicted or Failed condition is final: it may not be removed, set False, or renamed.

Why: requesters act on these conditions; an eviction that has ended never starts again. To try
again create a new EvictionRequest.
Source: pkg/apis/lifecycle/validation, ``ValidateEvictionStatus``.
Admitted: Failed False → True
Refused: TargetEvicted True → False; Failed True with reason EvictionInvalid → another reason
"""

from collections.abc import Iterator

from rules import states
from rules.api import Eviction
from rules.field import FieldError, Path, invalid
from rules.rule import Context, Rule

_FIELD = Path("status.conditions")


def _check(new: Eviction, *, old: Eviction, context: Context) -> Iterator[FieldError]:
    conditions = new.status.conditions
    for stored in states.reverted_conditions(conditions, old.status.conditions):
        now = states.condition_of(conditions, stored.type)
        yield invalid(
            _FIELD, now, f"condition '{stored.type}' must stay True with reason '{stored.reason}'"
        )


RULE: Rule[Eviction] = Rule(
    name="final-conditions",
    doc=__doc__,
    reads=("status.conditions",),
    standing=True,
    update_status=_check,
)
