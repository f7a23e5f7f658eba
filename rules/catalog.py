"""Every rule, listed by hand in the order of evaluation: the only list."""

from typing import Any, Final

from rules import constraints
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
from rules.policy import selectors
from rules.rule import Rule


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
