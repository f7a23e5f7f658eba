"""What an API server would refuse of a Role, a binding and the like; as far as it grants anything.

Source: ``pkg/apis/rbac/validation`` and ``pkg/apis/rbac/v1/defaults.go`` of Kubernetes 1.37.2.
"""

from collections.abc import Iterator
from typing import Final, TypeAlias

from cli.rbac.shapes import (
    GROUP,
    Binding,
    ClusterRole,
    LabelSelector,
    PolicyRule,
    RbacObject,
    Role,
    RoleBinding,
    Subject,
)
from rules.field import Path

Flaw: TypeAlias = tuple[Path, str]
"""Where it is, and what must be there."""

_SUBJECTS: Final = {"User": GROUP, "Group": GROUP, "ServiceAccount": ""}
"""Kind → group."""
_OPERATORS: Final = {"In": True, "NotIn": True, "Exists": False, "DoesNotExist": False}
"""Operator of a selector → whether it takes values."""


def flaws(item: RbacObject) -> Iterator[Flaw]:
    """Everything for which ``item`` would be refused."""
    if not item.metadata.name:
        yield Path("metadata.name"), "must be set"
    if isinstance(item, Role | ClusterRole):
        for position, rule in enumerate(item.rules):
            yield from _of_rule(rule, Path("rules").at(position), local=isinstance(item, Role))
        if isinstance(item, ClusterRole) and item.aggregation_rule is not None:
            path = Path("aggregationRule.clusterRoleSelectors")
            if not item.aggregation_rule.cluster_role_selectors:
                yield path, "must have at least one selector"
            for position, selector in enumerate(item.aggregation_rule.cluster_role_selectors):
                yield from _of_selector(selector, path.at(position))
        return
    yield from _of_reference(item, Path("roleRef"))
    for position, subject in enumerate(item.subjects):
        home = isinstance(item, RoleBinding)
        yield from _of_subject(subject, Path("subjects").at(position), has_namespace=home)


def _of_rule(rule: PolicyRule, path: Path, *, local: bool) -> Iterator[Flaw]:
    if not rule.verbs:
        yield path.child("verbs"), "must have at least one verb"
    if rule.non_resource_urls:
        if local:
            yield path.child("nonResourceURLs"), "may stand in a ClusterRole only"
        elif rule.api_groups or rule.resources or rule.resource_names:
            yield path.child("nonResourceURLs"), "may not stand beside resources"
        return
    if not rule.api_groups:
        yield path.child("apiGroups"), "must have at least one group; '' is the core group"
    if not rule.resources:
        yield path.child("resources"), "must have at least one resource"


def _of_selector(selector: LabelSelector, path: Path) -> Iterator[Flaw]:
    for position, requirement in enumerate(selector.match_expressions):
        place = path.child("matchExpressions").at(position)
        takes_values = _OPERATORS.get(requirement.operator)
        if takes_values is None:
            yield place.child("operator"), f"must be one of {', '.join(_OPERATORS)}"
        elif takes_values != bool(requirement.values):
            word = "must" if takes_values else "may not"
            yield place.child("values"), f"{word} be set with operator '{requirement.operator}'"


def _of_reference(binding: Binding, path: Path) -> Iterator[Flaw]:
    reference = binding.role_ref
    kinds = ("Role", "ClusterRole") if isinstance(binding, RoleBinding) else ("ClusterRole",)
    if reference.api_group not in ("", GROUP):
        yield path.child("apiGroup"), f"must be '{GROUP}'"
    if reference.kind not in kinds:
        yield path.child("kind"), f"must be {' or '.join(kinds)}"
    if not reference.name:
        yield path.child("name"), "must be set"


def _of_subject(subject: Subject, path: Path, *, has_namespace: bool) -> Iterator[Flaw]:
    if not subject.name:
        yield path.child("name"), "must be set"
    group = _SUBJECTS.get(subject.kind)
    if group is None:
        yield path.child("kind"), f"must be one of {', '.join(_SUBJECTS)}"
    elif subject.api_group not in ("", group):
        yield path.child("apiGroup"), f"must be '{group}' with kind {subject.kind}"
    if subject.kind == "ServiceAccount" and not (has_namespace or subject.namespace):
        yield path.child("namespace"), "must be set where a ClusterRoleBinding has no namespace"
