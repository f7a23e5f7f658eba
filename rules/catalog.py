"""Every rule, listed by hand in the order of evaluation: the only list."""

from collections.abc import Set as AbstractSet
from functools import cache, lru_cache
from typing import Any, Final, TypeAlias

from rules import constraints
from rules.api import Eviction, EvictionRequest, Pod
from rules.changes import PARTS
from rules.constraints import Constraint
from rules.eviction import (
    active_reports,
    completion_times,
    expected_completion_times,
    final_conditions,
    fixed_target_responders,
    heartbeat_times,
    matching_responders,
    reported_completion,
    responder_priorities,
    responder_states,
    silence_before_handover,
    start_times,
    tracked_responders,
)
from rules.guards import (
    condition_finality,
    controller_fields,
    controller_objects,
    eviction_right,
    first_sync,
    heartbeat_spacing,
    managing_priority,
    requester_identity,
    requesters_preserved,
    responder_identity,
    response_budget,
    target_exists,
    target_pair,
    target_truth,
)
from rules.meta import conditions, object_metadata
from rules.pod import fixed_pod_responders, no_scheduling_group, readable_annotation
from rules.policies import ClusterResponderPolicy, ResponderPolicy
from rules.policy import selectors
from rules.request import Judged
from rules.rule import Check, Rule


def _declared(limit: type[Constraint]) -> Rule[Any]:
    return Rule(name=limit.rule, doc=limit.__doc__ or "")


DECLARED: Final[tuple[Rule[Any], ...]] = tuple(map(_declared, constraints.CONSTRAINTS))
"""Limits that models declare; :mod:`rules.declared` applies them to every kind."""

EVICTION_REQUEST: Final[tuple[Rule[Any], ...]] = (
    object_metadata.RULE,
    conditions.RULE,
    controller_fields.RULE,
    requester_identity.RULE,
    eviction_right.RULE,
    target_truth.RULE,
    target_pair.RULE,
    target_exists.RULE,
)

EVICTION: Final[tuple[Rule[Any], ...]] = (
    object_metadata.RULE,
    conditions.RULE,
    final_conditions.RULE,
    fixed_target_responders.RULE,
    tracked_responders.RULE,
    responder_priorities.RULE,
    responder_states.RULE,
    silence_before_handover.RULE,
    reported_completion.RULE,
    matching_responders.RULE,
    active_reports.RULE,
    start_times.RULE,
    heartbeat_times.RULE,
    expected_completion_times.RULE,
    completion_times.RULE,
    first_sync.RULE,
    condition_finality.RULE,
    heartbeat_spacing.RULE,
    requesters_preserved.RULE,
    responder_identity.RULE,
    controller_fields.RULE,
    controller_objects.RULE,
    target_truth.RULE,
    target_pair.RULE,
)

POD: Final[tuple[Rule[Any], ...]] = (
    readable_annotation.RULE,
    fixed_pod_responders.RULE,
    no_scheduling_group.RULE,
    managing_priority.RULE,
    response_budget.RULE,
)

POLICY: Final[tuple[Rule[Any], ...]] = (object_metadata.RULE, selectors.RULE)
"""For both kinds of policies."""

RULES: Final[dict[str, Rule[Any]]] = {
    rule.name: rule for rule in (*DECLARED, *EVICTION_REQUEST, *EVICTION, *POD, *POLICY)
}
"""Every rule by its id."""

GUARDS: Final[dict[str, Rule[Any]]] = {name: rule for name, rule in RULES.items() if rule.guard}
"""The rules whose enforcement the configuration may set."""

_OF_KIND: Final[dict[type[Judged], tuple[Rule[Any], ...]]] = {
    Eviction: EVICTION,
    EvictionRequest: EVICTION_REQUEST,
    Pod: POD,
    ResponderPolicy: POLICY,
    ClusterResponderPolicy: POLICY,
}
Due: TypeAlias = tuple[tuple[Rule[Any], Check[Any]], ...]
"""Rules, each with the check that is to be run."""


@cache
def checks(kind: type[Judged], slot: str) -> Due:
    """What looks at the writes of one slot of :class:`rules.rule.Rule`."""
    return tuple(
        (rule, check) for rule in _OF_KIND[kind] if (check := getattr(rule, slot)) is not None
    )


@cache
def parts_read(kind: type[Judged], slot: str) -> tuple[str, ...]:
    """The parts of an object in which a change decides whether a rule looks at the write."""
    judged = {
        path
        for rule, _ in checks(kind, slot)
        if not rule.standing
        for path in rule.judges or rule.reads
    }
    return tuple(part for part in PARTS if any(path.startswith(f"{part}.") for path in judged))


@lru_cache(maxsize=1024)
def checks_of_update(kind: type[Judged], slot: str, changed: AbstractSet[str]) -> Due:
    """What can have anything to say about an update that changes these fields.

    Few combinations of fields are ever changed together, so that each is worked out once.
    """
    return tuple(due for due in checks(kind, slot) if due[0].may_judge(changed))
