"""A pod should not register more responders than the configured worst case allows.

Each responder that stays silent holds the eviction for 20 minutes. The configuration key
``response-budget`` says how many of them a drain may have to wait for.

Why: a node cannot be drained faster than its slowest pod.
Source: Usher's own guard; 20 minutes is the heartbeat deadline of the API.
Admitted: as many responders as the budget
Refused: one more
"""

from collections.abc import Iterator

from rules import states
from rules.api import Pod
from rules.field import FieldError, forbidden
from rules.pod.declaration import declarations
from rules.rule import Context, Enforcement, Rule


def _check(new: Pod, *, old: Pod | None, context: Context) -> Iterator[FieldError]:
    minutes = int(states.HEARTBEAT_DEADLINE.total_seconds()) // 60
    for declared in declarations(new, context.root):
        count = len(declared.responders)
        if count > context.response_budget:
            yield forbidden(
                declared.path,
                f"should have at most {context.response_budget} responders: {count} silent ones "
                f"would hold an eviction for {count * minutes} minutes",
            )


RULE: Rule[Pod] = Rule(
    name="response-budget",
    doc=__doc__,
    reads=("spec.evictionResponders", "metadata.annotations"),
    create=_check,
    guard=True,
    enforcement=Enforcement.WARN,
)
