"""The shapes of ``rbac.authorization.k8s.io/v1``, as far as a permission depends on them.

Source: ``k8s.io/api/rbac/v1/types.go`` and ``metav1.LabelSelector`` of Kubernetes 1.37.2.
"""

from typing import Annotated, Final, TypeAlias

from pydantic import Field

from rules.api import ObjectMeta, Shape

GROUP: Final = "rbac.authorization.k8s.io"
VERSION: Final = "v1"

_LIST: Final = Field(strict=False)
Texts: TypeAlias = Annotated[tuple[str, ...], _LIST]


class PolicyRule(Shape):
    """What is granted: every verb on every resource of every group that it lists."""

    verbs: Texts = ()
    api_groups: Texts = ()
    resources: Texts = ()
    resource_names: Texts = ()
    """Empty: every name, and requests that have none."""
    non_resource_urls: Annotated[Texts, Field(alias="nonResourceURLs")] = ()


Rules: TypeAlias = Annotated[tuple[PolicyRule, ...], _LIST]


class Subject(Shape):
    """To whom something is granted."""

    kind: str = ""
    api_group: str = ""
    name: str = ""
    namespace: str = ""
    """Of a ServiceAccount; "" for that of the binding."""


class RoleRef(Shape):
    """What is granted, by name."""

    api_group: str = ""
    kind: str = ""
    name: str = ""


class Requirement(Shape):
    """One condition of a selector."""

    key: str = ""
    operator: str = ""
    values: Texts = ()


class LabelSelector(Shape):
    """Selects what meets all of its conditions; everything if it has none."""

    match_labels: dict[str, str] = Field(default_factory=dict)
    match_expressions: Annotated[tuple[Requirement, ...], _LIST] = ()


class AggregationRule(Shape):
    """Makes a ClusterRole the sum of others."""

    cluster_role_selectors: Annotated[tuple[LabelSelector, ...], _LIST] = ()


class Role(Shape):
    """Rules for the namespace of the Role."""

    metadata: ObjectMeta = ObjectMeta()
    rules: Rules = ()


class ClusterRole(Shape):
    """Rules for wherever it is bound."""

    metadata: ObjectMeta = ObjectMeta()
    rules: Rules = ()
    aggregation_rule: AggregationRule | None = None


class RoleBinding(Shape):
    """Grants a Role, or a ClusterRole, in the namespace of the binding."""

    metadata: ObjectMeta = ObjectMeta()
    subjects: Annotated[tuple[Subject, ...], _LIST] = ()
    role_ref: RoleRef = RoleRef()


class ClusterRoleBinding(Shape):
    """Grants a ClusterRole in every namespace."""

    metadata: ObjectMeta = ObjectMeta()
    subjects: Annotated[tuple[Subject, ...], _LIST] = ()
    role_ref: RoleRef = RoleRef()


Binding: TypeAlias = RoleBinding | ClusterRoleBinding
RbacObject: TypeAlias = Role | ClusterRole | Binding

KINDS: Final[dict[str, type[RbacObject]]] = {
    kind.__name__: kind for kind in (Role, ClusterRole, RoleBinding, ClusterRoleBinding)
}
NAMESPACED: Final = (Role, RoleBinding)
