"""A label selector must be one that Kubernetes can read: lawful keys, values and operators.

In and NotIn need values; Exists and DoesNotExist may not have any.

Why: nobody can say which pods an ill-formed selector means, so such a policy would do nothing.
Source: apimachinery pkg/apis/meta/v1/validation, ``ValidateLabelSelector``.
Admitted: {matchLabels: {app: web}, matchExpressions: [{key: tier, operator: In, values: [db]}]}
Refused: {matchExpressions: [{key: tier, operator: In}]}
"""

from collections.abc import Iterator
from typing import Final

from rules import formats
from rules.field import FieldError, Path, forbidden, invalid, required
from rules.policies import COMPARING, AnyPolicy, LabelRequirement, LabelSelector, Operator
from rules.rule import Context, Rule

_FIELDS: Final = (
    ("pod_selector", Path("spec.podSelector")),
    ("namespace_selector", Path("spec.namespaceSelector")),
)


def _check(new: AnyPolicy, *, old: AnyPolicy | None, context: Context) -> Iterator[FieldError]:
    for attribute, path in _FIELDS:
        selector: LabelSelector | None = getattr(new.spec, attribute, None)
        stored = getattr(old.spec, attribute, None) if old is not None else None
        if selector is not None and selector != stored:
            yield from judge_selector(path, selector)


def judge_selector(path: Path, selector: LabelSelector) -> Iterator[FieldError]:
    """Everything that is wrong with ``selector``, except for what its fields declare."""
    labels = path.child("matchLabels")
    for key, value in selector.match_labels.items():
        if not formats.is_qualified_name(key):
            yield invalid(labels, key, formats.QUALIFIED_NAME_HELP)
        if not formats.is_label_value(value):
            yield invalid(labels.key(key), value, formats.LABEL_VALUE_HELP)
    for position, requirement in enumerate(selector.match_expressions):
        yield from _judge_requirement(path.child("matchExpressions").at(position), requirement)


def _judge_requirement(path: Path, requirement: LabelRequirement) -> Iterator[FieldError]:
    if requirement.key and not formats.is_qualified_name(requirement.key):
        yield invalid(path.child("key"), requirement.key, formats.QUALIFIED_NAME_HELP)
    values = path.child("values")
    compares = requirement.operator in COMPARING
    if compares and not requirement.values:
        yield required(values, f"must be set where operator is '{requirement.operator}'")
    elif not compares and requirement.operator in tuple(Operator) and requirement.values:
        yield forbidden(values, f"may not be set where operator is '{requirement.operator}'")
    for position, value in enumerate(requirement.values):
        if not formats.is_label_value(value):
            yield invalid(values.at(position), value, formats.LABEL_VALUE_HELP)


RULE: Rule[AnyPolicy] = Rule(
    name="well-formed-selectors",
    doc=__doc__,
    reads=("spec.podSelector", "spec.namespaceSelector"),
    create=_check,
    update=_check,
)
