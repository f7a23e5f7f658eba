"""A true TargetEvicted or Failed condition may not turn to Unknown.

Why: natively only False is refused, so that an ended eviction could be blurred again.
Source: Usher's own guard.
Admitted: TargetEvicted stays True
Refused: TargetEvicted True → Unknown with the same reason
"""

from collections.abc import Iterator

from rules import states
from rules.api import ConditionStatus, Eviction
from rules.field import FieldError, Path, invalid
from rules.rule import Context, Rule

_FIELD = Path("status.conditions")


def _check(new: Eviction, *, old: Eviction, context: Context) -> Iterator[FieldError]:
    for position, condition in enumerate(new.status.conditions):
        if condition.status == ConditionStatus.UNKNOWN and _was_final(condition.type, old):
            field = _FIELD.at(position).child("status")
            detail = f"condition '{condition.type}' must stay True once it is True"
            yield invalid(field, condition.status, detail)


def _was_final(type_: str, old: Eviction) -> bool:
    return type_ in states.FINAL_CONDITIONS and states.is_true(old.status.conditions, type_)


RULE: Rule[Eviction] = Rule(
    name="condition-finality",
    doc=__doc__,
    reads=("status.conditions",),
    update_status=_check,
    guard=True,
)
