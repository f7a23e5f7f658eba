"""The shapes of ``rbac.authorization.k8s.io/v1``, as far as a permission depends on them.

Source: ``k8s.io/api/rbac/v1/types.go`` and ``metav1.LabelSelector`` of Kubernetes 1.37.2.
"""

from typing import Final, TypeAlias

from msgspec import field

from rules.api import ApiType, ObjectMeta

GROUP: Final = "rbac.authorization.k8s.io"
VERSION: Final = "v1"

Texts: TypeAlias = tuple[str, ...]


class PolicyRule(ApiType):
    """What is granted: every verb on every resource of every group that it lists."""

    verbs: Texts = ()
    api_groups: Texts = ()
    resources: Texts = ()
    resource_names: Texts = ()
    """Empty: every name, and requests that have none."""
    non_resource_urls: Texts = field(name="nonResourceURLs", default=())


Rules: TypeAlias = tuple[PolicyRule, ...]


class Subject(ApiType):
    """To whom something is granted."""

    kind: str = ""
    api_group: str = ""
    name: str = ""
    namespace: str = ""
    """Of a ServiceAccount; "" for that of the binding."""


class RoleRef(ApiType):
    """What is granted, by name."""

    api_group: str = ""
    kind: str = ""
    name: str = ""


class Requirement(ApiType):
    """One condition of a selector."""

    key: str = ""
    operator: str = ""
    values: Texts = ()


class LabelSelector(ApiType):
    """Selects what meets all of its conditions; everything if it has none."""

    match_labels: dict[str, str] = {}
    match_expressions: tuple[Requirement, ...] = ()


class AggregationRule(ApiType):
    """Makes a ClusterRole the sum of others."""

    cluster_role_selectors: tuple[LabelSelector, ...] = ()


class Role(ApiType):
    """Rules for the namespace of the Role."""

    metadata: ObjectMeta = ObjectMeta()
    rules: Rules = ()


class ClusterRole(ApiType):
    """Rules for wherever it is bound."""

    metadata: ObjectMeta = ObjectMeta()
    rules: Rules = ()
    aggregation_rule: AggregationRule | None = None


class RoleBinding(ApiType):
    """Grants a Role, or a ClusterRole, in the namespace of the binding."""

    metadata: ObjectMeta = ObjectMeta()
    subjects: tuple[Subject, ...] = ()
    role_ref: RoleRef = RoleRef()


class ClusterRoleBinding(ApiType):
    """Grants a ClusterRole in every namespace."""

    metadata: ObjectMeta = ObjectMeta()
    subjects: tuple[Subject, ...] = ()
    role_ref: RoleRef = RoleRef()


Binding: TypeAlias = RoleBinding | ClusterRoleBinding
RbacObject: TypeAlias = Role | ClusterRole | Binding

KINDS: Final[dict[str, type[RbacObject]]] = {
    kind.__name__: kind for kind in (Role, ClusterRole, RoleBinding, ClusterRoleBinding)
}
NAMESPACED: Final = (Role, RoleBinding)
