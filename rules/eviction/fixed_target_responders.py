"""Once set, the number and the names of ``targetResponders`` may not change; their order may.

Why: the list is the plan of the eviction. A responder that appears or vanishes half-way could
neither be waited for nor be passed over in order.
Source: pkg/apis/lifecycle/validation, ``ValidateEvictionTargetResponders``.
Admitted: [a.io/x, b.io/y] → [b.io/y, a.io/x]
Refused: [a.io/x, b.io/y] → [a.io/x]; [a.io/x] → [a.io/z]
"""

from collections.abc import Iterator

from rules import states
from rules.api import Eviction
from rules.field import FieldError, Path, invalid
from rules.rule import Context, Rule

_FIELD = Path("status.targetResponders")


def _check(new: Eviction, *, old: Eviction, context: Context) -> Iterator[FieldError]:
    stored = old.status.target_responders
    if stored and not states.same_names(new.status.target_responders, stored):
        names = [responder.name for responder in new.status.target_responders]
        kept = ", ".join(responder.name for responder in stored)
        yield invalid(_FIELD, names, f"must keep exactly these names: {kept}")


RULE: Rule[Eviction] = Rule(
    name="fixed-target-responders",
    doc=__doc__,
    reads=("status.targetResponders",),
    update_status=_check,
)
