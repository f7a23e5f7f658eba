"""May a user do something, by these roles and bindings? Pure, with RBAC's own answers.

Permissions only ever add up: there is no rule that denies. Source of what matches what: the
packages ``plugin/pkg/auth/authorizer/rbac``, ``pkg/registry/rbac/validation``,
``pkg/apis/rbac/v1`` and ``pkg/controller/clusterroleaggregation`` of Kubernetes 1.37.2.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Final

from cli.rbac.shapes import (
    AggregationRule,
    Binding,
    ClusterRole,
    LabelSelector,
    PolicyRule,
    RbacObject,
    Requirement,
    Role,
    RoleBinding,
    Subject,
)
from rules.callers import SUPERUSERS
from rules.facts import (
    Answer,
    EvictionRight,
    Facts,
    Permission,
    Question,
    Right,
    may_evict,
)
from rules.request import User

_ALL: Final = "*"
_EVERYWHERE: Final = ""
"""Stands for the namespace of what a ClusterRoleBinding grants."""
_SERVICE_ACCOUNT: Final = "system:serviceaccount:"
_SERVICE_ACCOUNTS: Final = "system:serviceaccounts"
_ANONYMOUS: Final = "system:anonymous"
_AUTHENTICATED: Final = "system:authenticated"
_UNAUTHENTICATED: Final = "system:unauthenticated"


def with_implied_groups(user: User) -> User:
    """``user`` with the groups that every authenticator gives to one of that name.

    Source: ``pkg/endpoints/filters/impersonation`` and ``pkg/authentication/serviceaccount`` of
    k8s.io/apiserver; unlike ``kubectl --as`` this adds those of a service account to groups that
    are named, because there is no service account without them.
    """
    implied = [] if _UNAUTHENTICATED in user.groups else [_AUTHENTICATED]
    if user.name == _ANONYMOUS:
        implied = [_UNAUTHENTICATED]
    match user.name.split(":"):
        case ["system", "serviceaccount", namespace, _]:
            implied += [_SERVICE_ACCOUNTS, f"{_SERVICE_ACCOUNTS}:{namespace}"]
    return user._replace(groups=tuple(dict.fromkeys((*user.groups, *implied))))


class Authorizer:
    """Answers for every user out of one set of objects, in which each stands once."""

    def __init__(self, objects: Iterable[RbacObject]) -> None:
        self._roles: dict[tuple[str, str], Role] = {}
        self._cluster_roles: dict[str, ClusterRole] = {}
        self._bindings: list[Binding] = []
        for item in objects:
            match item:
                case Role(metadata=meta):
                    self._roles[meta.namespace, meta.name] = item
                case ClusterRole(metadata=meta):
                    self._cluster_roles[meta.name] = item
                case _:
                    self._bindings.append(item)
        self._known: dict[User, Mapping[str, list[PolicyRule]]] = {}

    def facts(self, user: User, questions: Iterable[Question]) -> Facts:
        """The answers to those questions that are about permissions.

        There are no pods here: whether the name of a target is that of the pod with its UID shows
        only in a cluster.
        """
        answers: dict[Question, Answer] = {}
        for question in questions:
            if isinstance(question, Permission):
                answers[question] = self.permits(user, question)
            elif isinstance(question, EvictionRight):
                pod, namespace = question.target.name, question.target.namespace
                answers[question] = Right(pod, self.permits(user, may_evict(pod, namespace)))
        return Facts(answers)

    def permits(self, user: User, permission: Permission) -> bool:
        """Whether ``user`` has ``permission`` under any of its names."""
        if SUPERUSERS in user.groups:
            return True
        granted = self._granted(user)
        return any(
            _allows(rule, permission)
            for namespace in {_EVERYWHERE, permission.namespace}
            for rule in granted.get(namespace, ())
        )

    def is_dangling(self, binding: Binding, user: User) -> bool:
        """Whether ``binding`` applies to ``user``, but refers to a role that is not here."""
        return _applies(binding, user) and self._rules_of(binding) is None

    def _granted(self, user: User) -> Mapping[str, list[PolicyRule]]:
        """What ``user`` is granted, by namespace."""
        granted = self._known.get(user)
        if granted is None:
            granted = self._known[user] = defaultdict(list)
            for binding in self._bindings:
                if _applies(binding, user):
                    granted[_scope(binding)] += self._rules_of(binding) or ()
        return granted

    def _rules_of(self, binding: Binding) -> Iterable[PolicyRule] | None:
        """What ``binding`` grants; None if nothing has the name that it refers to."""
        reference = binding.role_ref
        if reference.kind == "ClusterRole":
            cluster_role = self._cluster_roles.get(reference.name)
            return self._sum(cluster_role) if cluster_role is not None else None
        role = self._roles.get((_scope(binding), reference.name))
        return role.rules if role is not None else None

    def _sum(self, role: ClusterRole) -> Iterable[PolicyRule]:
        """The rules of ``role``; if it aggregates others those of them, and none of its own.

        Sums of sums count as well, as the controller arrives at them by and by.
        """
        summed: list[PolicyRule] = []
        seen, waiting = {role.metadata.name}, [role]
        while waiting:
            current = waiting.pop()
            if current.aggregation_rule is None:
                summed += current.rules
                continue
            for name, other in self._cluster_roles.items():
                if name not in seen and _aggregates(current.aggregation_rule, other):
                    seen.add(name)
                    waiting.append(other)
        return summed


def _scope(binding: Binding) -> str:
    return binding.metadata.namespace if isinstance(binding, RoleBinding) else _EVERYWHERE


def _applies(binding: Binding, user: User) -> bool:
    return any(_is_subject(user, subject, _scope(binding)) for subject in binding.subjects)


def _is_subject(user: User, subject: Subject, namespace: str) -> bool:
    match subject.kind:
        case "User":
            return user.name == subject.name
        case "Group":
            return subject.name in user.groups
        case "ServiceAccount":
            home = subject.namespace or namespace
            return bool(home) and user.name == f"{_SERVICE_ACCOUNT}{home}:{subject.name}"
        case _:
            return False


def _allows(rule: PolicyRule, permission: Permission) -> bool:
    return (
        not {_ALL, permission.verb}.isdisjoint(rule.verbs)
        and not {_ALL, permission.group}.isdisjoint(rule.api_groups)
        and not _resources(permission).isdisjoint(rule.resources)
        and (not rule.resource_names or not set(permission.names).isdisjoint(rule.resource_names))
    )


def _resources(permission: Permission) -> set[str]:
    """The words for the resource; ``pods/*`` is none of them, ``*/eviction`` is."""
    if not permission.subresource:
        return {_ALL, permission.resource}
    path = f"/{permission.subresource}"
    return {_ALL, permission.resource + path, _ALL + path}


def _aggregates(aggregation: AggregationRule, role: ClusterRole) -> bool:
    labels = role.metadata.labels
    return any(_selects(selector, labels) for selector in aggregation.cluster_role_selectors)


def _selects(selector: LabelSelector, labels: Mapping[str, str]) -> bool:
    return selector.match_labels.items() <= labels.items() and all(
        _meets(requirement, labels) for requirement in selector.match_expressions
    )


def _meets(requirement: Requirement, labels: Mapping[str, str]) -> bool:
    value = labels.get(requirement.key)
    match requirement.operator:
        case "In":
            return value is not None and value in requirement.values
        case "NotIn":  # also where there is no such label
            return value is None or value not in requirement.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case _:
            return False
