"""``responders`` must have as many entries as ``targetResponders``, with the same names.

Why: the two lists are two halves of one table, the controller's and the responders'.
Source: pkg/apis/lifecycle/validation, ``ValidateEvictionStatusResponders``.
Admitted: targetResponders [a.io/x, b.io/y], responders [b.io/y, a.io/x]
Refused: targetResponders [a.io/x, b.io/y], responders [a.io/x]
"""

from collections.abc import Iterator

from rules.api import Eviction
from rules.field import FieldError, Path, invalid
from rules.reports import are_matched
from rules.rule import Context, Rule

_FIELD = Path("status.responders")


def _check(new: Eviction, *, old: Eviction, context: Context) -> Iterator[FieldError]:
    if not are_matched(new.status):
        names = [report.name for report in new.status.responders]
        wanted = [responder.name for responder in new.status.target_responders]
        detail = f"must have exactly the names of status.targetResponders: {', '.join(wanted)}"
        yield invalid(_FIELD, names, detail)


RULE: Rule[Eviction] = Rule(
    name="matching-responders",
    doc=__doc__,
    reads=("status.responders.name", "status.targetResponders.name"),
    standing=True,
    update_status=_check,
)
