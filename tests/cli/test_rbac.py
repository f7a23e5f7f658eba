"""RBAC offline: what is granted to whom, as Kubernetes' own authorizer has it."""

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from cli.rbac.authorizer import Authorizer, with_implied_groups
from cli.rbac.shapes import (
    KINDS,
    ClusterRole,
    ClusterRoleBinding,
    PolicyRule,
    RbacObject,
    Role,
    RoleBinding,
)
from cli.rbac.soundness import flaws
from rules.decode import decode_model
from rules.facts import PodLookup, may_evict, may_request, may_respond
from rules.request import User

RESPOND = may_respond("db.acme.io/failover", "db")
EVICT = may_evict("db-0", "db")
OPERATOR = User("system:serviceaccount:db:operator")
NAMED_JANE = User("jane")


def _role(*rules: dict[str, Any], namespace: str = "db", name: str = "x") -> Role:
    return decode_model(
        Role, {"metadata": {"name": name, "namespace": namespace}, "rules": [*rules]}
    )


def _cluster_role(
    *rules: dict[str, Any], name: str = "x", labels: dict[str, str] | None = None, **fields: Any
) -> ClusterRole:
    metadata = {"name": name, "labels": labels or {}}
    return decode_model(ClusterRole, {"metadata": metadata, "rules": [*rules], **fields})


def _binding(
    subject: dict[str, str], kind: str = "Role", namespace: str = "db", name: str = "x"
) -> RoleBinding:
    return decode_model(
        RoleBinding,
        {
            "metadata": {"name": name, "namespace": namespace},
            "subjects": [subject],
            "roleRef": {"kind": kind, "name": name},
        },
    )


def _cluster_binding(subject: dict[str, str], name: str = "x") -> ClusterRoleBinding:
    return decode_model(
        ClusterRoleBinding,
        {
            "metadata": {"name": name},
            "subjects": [subject],
            "roleRef": {"kind": "ClusterRole", "name": name},
        },
    )


JANE = {"kind": "User", "name": "jane"}
RULE: dict[str, Any] = {
    "apiGroups": ["lifecycle.k8s.io"],
    "resources": ["evictionresponders"],
    "resourceNames": ["db.acme.io/failover"],
    "verbs": ["respond"],
}


def _is_granted(
    objects: Iterable[RbacObject], user: User = NAMED_JANE, permission: Any = RESPOND
) -> bool:
    return Authorizer(objects).permits(user, permission)


# --- rules --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "granted"),
    [
        ({}, True),
        ({"resourceNames": ["other", "db.acme.io/failover"]}, True),
        ({"resourceNames": ["db.acme.io/*"]}, True),  # the permission's own second name
        ({"resourceNames": []}, True),
        ({"resourceNames": ["*"]}, False),  # no wildcard, for no resource
        ({"resourceNames": ["db.acme.io/fail*"]}, False),
        ({"resourceNames": ["acme.io/*"]}, False),
        ({"resourceNames": ["*/failover"]}, False),
        ({"verbs": ["*"]}, True),
        ({"verbs": ["get", "respond"]}, True),
        ({"verbs": ["request"]}, False),
        ({"verbs": []}, False),
        ({"verbs": ["Respond"]}, False),
        ({"apiGroups": ["*"]}, True),
        ({"apiGroups": [""]}, False),
        ({"apiGroups": []}, False),
        ({"apiGroups": ["*.k8s.io"]}, False),
        ({"resources": ["*"]}, True),
        ({"resources": ["evictionrequesters"]}, False),
        ({"resources": ["evictionresponders/status"]}, False),
        ({"resources": ["evictionresponders/*"]}, False),
        ({"resources": ["*/*"]}, False),
        ({"resources": []}, False),
    ],
    ids=str,
)
def test_what_a_rule_grants(change: dict[str, Any], granted: bool) -> None:  # noqa: FBT001
    assert _is_granted([_role(RULE | change), _binding(JANE)]) is granted


@pytest.mark.parametrize(
    ("resource", "granted"),
    [
        ("pods/eviction", True),
        ("*/eviction", True),
        ("*", True),
        ("pods", False),
        ("pods/*", False),  # RBAC has no such wildcard
        ("*/*", False),
        ("*/evictions", False),
        ("/eviction", False),
        ("nodes/eviction", False),
    ],
)
def test_subresources(resource: str, granted: bool) -> None:  # noqa: FBT001
    rule = {"apiGroups": [""], "resources": [resource], "verbs": ["create"]}
    objects = [_role(rule), _binding(JANE)]
    assert _is_granted(objects, permission=EVICT) is granted
    named = [_role(rule | {"resourceNames": ["db-0"]}), _binding(JANE)]
    assert _is_granted(named, permission=EVICT) is granted
    other = [_role(rule | {"resourceNames": ["db-1"]}), _binding(JANE)]
    assert not _is_granted(other, permission=EVICT)


def test_one_rule_must_grant_all_of_it() -> None:
    halves = [RULE | {"verbs": ["get"]}, RULE | {"resources": ["evictionrequesters"]}]
    assert not _is_granted([_role(*halves), _binding(JANE)])
    assert _is_granted([_role(*halves, RULE), _binding(JANE)])


# --- subjects -----------------------------------------------------------------------------------

OTHER_HOME = {"kind": "ServiceAccount", "name": "operator", "namespace": "ops"}


@pytest.mark.parametrize(
    ("subject", "user", "granted"),
    [
        (JANE, User("jane"), True),
        (JANE, User("joe"), False),
        (JANE, User("joe", ("jane",)), False),
        ({"kind": "Group", "name": "dba"}, User("joe", ("dev", "dba")), True),
        ({"kind": "Group", "name": "dba"}, User("dba"), False),
        ({"kind": "ServiceAccount", "name": "operator", "namespace": "db"}, OPERATOR, True),
        ({"kind": "ServiceAccount", "name": "operator"}, OPERATOR, True),
        (OTHER_HOME, OPERATOR, False),
        (OTHER_HOME, User("system:serviceaccount:ops:operator"), True),
        ({"kind": "ServiceAccount", "name": "operator"}, User("operator"), False),
        ({"kind": "User", "name": OPERATOR.name}, OPERATOR, True),
        ({"kind": "user", "name": "jane"}, User("jane"), False),
        ({"kind": "Group", "name": "system:authenticated"}, User("jane"), True),
        ({"kind": "Group", "name": "system:authenticated"}, User("system:anonymous"), False),
        ({"kind": "Group", "name": "system:unauthenticated"}, User("system:anonymous"), True),
        ({"kind": "Group", "name": "system:serviceaccounts"}, OPERATOR, True),
        ({"kind": "Group", "name": "system:serviceaccounts:db"}, OPERATOR, True),
        ({"kind": "Group", "name": "system:serviceaccounts:ops"}, OPERATOR, False),
        ({"kind": "Group", "name": "system:serviceaccounts"}, User("jane"), False),
    ],
    ids=str,
)
def test_to_whom(subject: dict[str, str], user: User, granted: bool) -> None:  # noqa: FBT001
    objects = [_role(RULE), _binding(subject)]
    assert _is_granted(objects, with_implied_groups(user)) is granted


def test_a_cluster_role_binding_has_no_namespace_to_lend() -> None:
    nowhere = {"kind": "ServiceAccount", "name": "operator"}
    objects = [_cluster_role(RULE), _cluster_binding(nowhere)]
    assert not _is_granted(objects, OPERATOR)
    objects[1:] = [_cluster_binding(nowhere | {"namespace": "db"})]
    assert _is_granted(objects, OPERATOR)


def test_superusers_pass() -> None:
    assert _is_granted([], User("root", ("system:masters",)))
    assert not _is_granted([], User("system:masters"))


def test_named_groups_are_kept_and_none_is_twice() -> None:
    user = with_implied_groups(User("jane", ("dev", "system:authenticated")))
    assert user.groups == ("dev", "system:authenticated")
    assert with_implied_groups(User("x", ("system:unauthenticated",))).groups == (
        "system:unauthenticated",
    )


# --- bindings -----------------------------------------------------------------------------------


def test_where_a_binding_grants() -> None:
    elsewhere = may_respond("db.acme.io/failover", "ops")
    local = [_role(RULE), _binding(JANE)]
    assert _is_granted(local)
    assert not _is_granted(local, permission=elsewhere)
    lent = [_cluster_role(RULE), _binding(JANE, kind="ClusterRole")]
    assert _is_granted(lent)
    assert not _is_granted(lent, permission=elsewhere)
    everywhere = [_cluster_role(RULE), _cluster_binding(JANE)]
    assert _is_granted(everywhere)
    assert _is_granted(everywhere, permission=elsewhere)


@pytest.mark.parametrize(
    "objects",
    [
        [_role(RULE)],
        [_binding(JANE)],
        [_role(RULE, namespace="ops"), _binding(JANE)],
        [_role(RULE, name="y"), _binding(JANE)],
        [_role(RULE), _binding(JANE, kind="ClusterRole")],
        [_cluster_role(RULE), _binding(JANE)],
        [_role(RULE), _cluster_binding(JANE)],
    ],
)
def test_what_does_not_fit_together_grants_nothing(objects: list[RbacObject]) -> None:
    assert not _is_granted(objects)


def test_a_binding_without_its_role_is_dangling_for_its_subjects() -> None:
    binding = _binding(JANE)
    assert Authorizer([binding]).is_dangling(binding, User("jane"))
    assert not Authorizer([binding]).is_dangling(binding, User("joe"))
    assert not Authorizer([binding, _role(RULE)]).is_dangling(binding, User("jane"))


# --- aggregation --------------------------------------------------------------------------------


def _sum(*selectors: dict[str, Any], **fields: Any) -> ClusterRole:
    return _cluster_role(aggregationRule={"clusterRoleSelectors": [*selectors]}, **fields)


@pytest.mark.parametrize(
    ("selector", "granted"),
    [
        ({"matchLabels": {"to": "x"}}, True),
        ({"matchLabels": {"to": "x", "a": "b"}}, True),
        ({"matchLabels": {"to": "y"}}, False),
        ({"matchLabels": {"to": "x", "c": "d"}}, False),
        ({}, True),
        ({"matchExpressions": [{"key": "to", "operator": "In", "values": ["y", "x"]}]}, True),
        ({"matchExpressions": [{"key": "c", "operator": "In", "values": ["d"]}]}, False),
        ({"matchExpressions": [{"key": "to", "operator": "NotIn", "values": ["x"]}]}, False),
        ({"matchExpressions": [{"key": "c", "operator": "NotIn", "values": ["x"]}]}, True),
        ({"matchExpressions": [{"key": "to", "operator": "Exists"}]}, True),
        ({"matchExpressions": [{"key": "c", "operator": "Exists"}]}, False),
        ({"matchExpressions": [{"key": "c", "operator": "DoesNotExist"}]}, True),
        ({"matchExpressions": [{"key": "to", "operator": "DoesNotExist"}]}, False),
        (
            {
                "matchLabels": {"to": "x"},
                "matchExpressions": [{"key": "a", "operator": "DoesNotExist"}],
            },
            False,
        ),
    ],
    ids=str,
)
def test_aggregation_by_labels(selector: dict[str, Any], granted: bool) -> None:  # noqa: FBT001
    part = _cluster_role(RULE, name="part", labels={"to": "x", "a": "b"})
    assert _is_granted([part, _sum(selector), _cluster_binding(JANE)]) is granted


def test_any_selector_will_do_and_own_rules_do_not_count() -> None:
    part = _cluster_role(RULE, name="part", labels={"to": "x"})
    wanted, other = {"matchLabels": {"to": "x"}}, {"matchLabels": {"to": "y"}}
    assert _is_granted([part, _sum(other, wanted), _cluster_binding(JANE)])
    own = replace(_sum(other), rules=(decode_model(PolicyRule, RULE),))
    assert not _is_granted([part, own, _cluster_binding(JANE)])


def test_sums_of_sums_even_in_a_circle() -> None:
    part = _cluster_role(RULE, name="part", labels={"level": "1"})
    inner = _sum({"matchLabels": {"level": "1"}}, name="inner", labels={"level": "2"})
    outer = _sum(
        {"matchExpressions": [{"key": "level", "operator": "Exists"}]}, labels={"level": "1"}
    )
    assert _is_granted([part, inner, outer, _cluster_binding(JANE)])
    assert not _is_granted([inner, outer, _cluster_binding(JANE)])


# --- facts --------------------------------------------------------------------------------------


def test_only_questions_about_permissions_are_answered() -> None:
    request = may_request("ops.acme.io/drain", "db")
    authorizer = Authorizer([_role(RULE), _binding(JANE)])
    facts = authorizer.facts(User("jane"), [RESPOND, request, PodLookup("db", "db-0")])
    assert dict(facts.answers) == {RESPOND: True, request: False}


# --- what an API server refuses -----------------------------------------------------------------

SELECTORS = "aggregationRule.clusterRoleSelectors"


@pytest.mark.parametrize(
    ("kind", "document", "paths"),
    [
        ("Role", {"metadata": {}, "rules": [RULE]}, ["metadata.name"]),
        ("Role", {"rules": [RULE | {"verbs": []}]}, ["rules[0].verbs"]),
        ("Role", {"rules": [RULE, {"verbs": ["a"]}]}, ["rules[1].apiGroups", "rules[1].resources"]),
        (
            "Role",
            {"rules": [{"verbs": ["get"], "nonResourceURLs": ["/a"]}]},
            ["rules[0].nonResourceURLs"],
        ),
        ("ClusterRole", {"rules": [{"verbs": ["get"], "nonResourceURLs": ["/a"]}]}, []),
        (
            "ClusterRole",
            {"rules": [RULE | {"nonResourceURLs": ["/a"]}]},
            ["rules[0].nonResourceURLs"],
        ),
        ("ClusterRole", {"aggregationRule": {}}, [SELECTORS]),
        (
            "ClusterRole",
            {
                "aggregationRule": {
                    "clusterRoleSelectors": [
                        {
                            "matchExpressions": [
                                {"key": "a", "operator": "in", "values": ["b"]},
                                {"key": "a", "operator": "In"},
                                {"key": "a", "operator": "Exists", "values": ["b"]},
                                {"key": "a", "operator": "Exists"},
                            ]
                        }
                    ]
                }
            },
            [
                f"{SELECTORS}[0].matchExpressions[{n}].{f}"
                for n, f in ((0, "operator"), (1, "values"), (2, "values"))
            ],
        ),
        ("RoleBinding", {"roleRef": {"kind": "Role"}}, ["roleRef.name"]),
        ("RoleBinding", {"roleRef": {"name": "x"}}, ["roleRef.kind"]),
        (
            "RoleBinding",
            {"roleRef": {"kind": "Role", "name": "x", "apiGroup": "rbac"}},
            ["roleRef.apiGroup"],
        ),
        ("ClusterRoleBinding", {"roleRef": {"kind": "Role", "name": "x"}}, ["roleRef.kind"]),
        ("RoleBinding", {"subjects": [{"kind": "User"}]}, ["subjects[0].name"]),
        ("RoleBinding", {"subjects": [{"kind": "Robot", "name": "x"}]}, ["subjects[0].kind"]),
        ("RoleBinding", {"subjects": [JANE | {"apiGroup": "v1"}]}, ["subjects[0].apiGroup"]),
        ("RoleBinding", {"subjects": [{"kind": "ServiceAccount", "name": "x"}]}, []),
        (
            "ClusterRoleBinding",
            {"subjects": [{"kind": "ServiceAccount", "name": "x"}]},
            ["subjects[0].namespace"],
        ),
        (
            "ClusterRoleBinding",
            {"subjects": [OTHER_HOME | {"apiGroup": "rbac.authorization.k8s.io"}]},
            ["subjects[0].apiGroup"],
        ),
    ],
    ids=str,
)
def test_what_an_api_server_refuses(kind: str, document: dict[str, Any], paths: list[str]) -> None:
    whole = {"metadata": {"name": "x"}}
    if kind.endswith("Binding"):
        whole["roleRef"] = {"kind": "ClusterRole", "name": "x"}
    item = decode_model(KINDS[kind], whole | document)
    assert [str(path) for path, _ in flaws(item)] == paths


# --- laws ---------------------------------------------------------------------------------------

_names = st.sampled_from(["x", "y"])
_subjects = st.sampled_from([JANE, {"kind": "Group", "name": "dba"}, OTHER_HOME])
_users = st.sampled_from(
    [User("jane"), User("joe", ("dba",)), User("system:serviceaccount:ops:operator"), User()]
)
_rules = st.builds(
    lambda **change: RULE | change,
    verbs=st.sampled_from([["respond"], ["*"], ["get"]]),
    resources=st.sampled_from([["evictionresponders"], ["*"], ["pods"]]),
    resourceNames=st.sampled_from([[], ["db.acme.io/*"], ["db.acme.io/failover"], ["x"]]),
)
_labels = st.sampled_from([{}, {"to": "x"}, {"to": "y"}])
_objects = st.one_of(
    st.builds(_role, _rules, namespace=st.sampled_from(["db", "ops"]), name=_names),
    st.builds(_cluster_role, _rules, name=_names, labels=_labels),
    st.builds(lambda to, name: _sum({"matchLabels": to}, name=name), _labels, _names),
    st.builds(_binding, _subjects, st.sampled_from(["Role", "ClusterRole"]), name=_names),
    st.builds(_cluster_binding, _subjects, name=_names),
)


def _key(item: RbacObject) -> tuple[str, str, str]:
    return type(item).__name__, item.metadata.namespace, item.metadata.name


_worlds = st.lists(_objects, max_size=8, unique_by=_key)
_permissions = st.sampled_from([RESPOND, may_respond("db.acme.io/failover", "ops"), EVICT])


@given(_worlds, _objects, _users, _permissions)
def test_more_objects_never_take_a_permission_away(
    world: list[RbacObject], more: RbacObject, user: User, permission: Any
) -> None:
    if _key(more) not in map(_key, world) and _is_granted(world, user, permission):
        assert _is_granted([*world, more], user, permission)


@given(_worlds, _rules, _users, _permissions, st.integers(0, 7))
def test_more_rules_never_take_a_permission_away(
    world: list[RbacObject], rule: dict[str, Any], user: User, permission: Any, place: int
) -> None:
    before = _is_granted(world, user, permission)
    for position, item in enumerate(world):
        if position == place and isinstance(item, Role | ClusterRole):
            rules = (*item.rules, decode_model(PolicyRule, rule))
            world[position] = replace(item, rules=rules)
    assert _is_granted(world, user, permission) >= before


@given(_worlds, _users, _permissions, st.randoms(use_true_random=False))
def test_the_order_of_objects_does_not_matter(
    world: list[RbacObject], user: User, permission: Any, random: Any
) -> None:
    shuffled = random.sample(world, len(world))
    assert _is_granted(world, user, permission) == _is_granted(shuffled, user, permission)


@given(_worlds, _permissions)
def test_nobody_may_what_is_bound_to_nobody(world: list[RbacObject], permission: Any) -> None:
    assert not _is_granted(world, User("nobody"), permission)
