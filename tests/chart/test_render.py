"""What helm makes of the chart, value by value; without a cluster."""

import json
import re
import subprocess
from collections.abc import Iterator
from functools import cache
from typing import Any, Final

import click
import pytest
import yaml

from cli.commands.certs import agent, inspect
from cli.commands.controller import command as controller
from cli.commands.serve import command as serve
from rules.api import RESPONDERS_ANNOTATION, Eviction, EvictionRequest, Pod
from rules.callers import COLLECTORS
from rules.crd import definitions
from rules.decode import SHAPES
from rules.evaluate import judges_deletion
from tests.chart.matrix import MATRIX
from tests.chart.queries import problems
from tests.chart.rendering import (
    HELM_SECONDS,
    NAMESPACE,
    RELEASE,
    Object,
    Rendered,
    containers,
    helm_path,
    pod_specs,
    render,
)
from tests.chart.values import CHART, DEFAULTS, Values, leaves
from webhook.review import plural

pytestmark = pytest.mark.e2e

_COMMANDS: Final[dict[tuple[str, ...], click.Command]] = {
    ("serve",): serve,
    ("controller",): controller,
    ("certs", "agent"): agent,
    ("certs", "inspect"): inspect,
}
_CONFIGURATIONS: Final = ("ValidatingWebhookConfiguration", "MutatingWebhookConfiguration")


@cache
def rendered(case: str) -> Rendered:
    """A case of the matrix."""
    return render(MATRIX[case])


def _flags(objects: list[Object], name: str) -> list[str]:
    (found,) = (each for each in containers(objects) if each["name"] == name)
    return [str(argument) for argument in found["args"]]


def _walk(found: Any) -> Iterator[tuple[str, Any]]:
    """Every field of a document, at any depth."""
    if isinstance(found, dict):
        for name, value in found.items():
            yield name, value
            yield from _walk(value)
    elif isinstance(found, list):
        for value in found:
            yield from _walk(value)


# --- all cases ------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", MATRIX)
def test_both_helms_render_the_same(case: str) -> None:
    # They put kinds that they don't know at different places.
    assert by_name(render(MATRIX[case], program="helm-3")) == by_name(rendered(case))


def by_name(found: Rendered) -> dict[tuple[str, str], Object]:
    """Objects by kind and name, which are unique within the chart."""
    named = {(each["kind"], each["metadata"]["name"]): each for each in found.objects}
    assert len(named) == len(found.objects)
    return named


def test_lint_finds_nothing() -> None:
    for program in ("helm", "helm-3"):
        command = [helm_path(program), "lint", "--strict", str(CHART)]
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=HELM_SECONDS
        )
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("case", MATRIX)
def test_every_value_of_a_case_changes_something(case: str) -> None:
    whole = rendered(case)
    idle = []
    for path, _ in leaves(MATRIX[case]):
        less = json.loads(json.dumps(MATRIX[case]))
        at = less
        for name in path[:-1]:
            at = at[name]
        del at[path[-1]]
        other = render(less)
        # Refused without it: it changes something as well.
        if other.code == 0 and other.objects == whole.objects:
            idle.append(".".join(path))
    assert idle == []


@pytest.mark.parametrize("case", MATRIX)
def test_no_certificate_and_no_secret_is_rendered(case: str) -> None:
    objects = rendered(case).objects
    assert "Secret" not in {each["kind"] for each in objects}
    assert "caBundle" not in {name for each in objects for name, _ in _walk(each)}
    assert "BEGIN " not in rendered(case).text


@pytest.mark.parametrize("case", MATRIX)
def test_the_only_hook_is_the_test(case: str) -> None:
    hooks = [
        (each["kind"], each["metadata"]["annotations"]["helm.sh/hook"])
        for each in rendered(case).objects
        if "helm.sh/hook" in each["metadata"].get("annotations", {})
    ]
    assert hooks == [("Pod", "test")]


@pytest.mark.parametrize("case", MATRIX)
def test_no_right_is_a_wildcard(case: str) -> None:
    rules = [
        (role["metadata"]["name"], rule)
        for role in (*rendered(case).all("ClusterRole"), *rendered(case).all("Role"))
        for rule in role["rules"]
    ]
    for name, rule in rules:
        values = [value for field in ("apiGroups", "resources", "verbs") for value in rule[field]]
        assert not [value for value in values if "*" in value], name
        assert rule.get("resourceNames") != [], name
        if "secrets" in rule["resources"] and rule["verbs"] != ["create"]:
            assert len(rule["resourceNames"]) == 1, name


@pytest.mark.parametrize("case", MATRIX)
def test_every_container_is_bounded_probed_and_confined(case: str) -> None:
    objects = rendered(case).objects
    deployment = pod_specs(rendered(case).all("Deployment"))
    for each in containers(objects):
        assert each["resources"]["requests"].keys() == {"cpu", "memory"}
        assert each["resources"]["limits"].keys() == {"memory"}
        security = each["securityContext"]
        assert security["allowPrivilegeEscalation"] is False
        assert security["readOnlyRootFilesystem"] is True
        assert security["capabilities"] == {"drop": ["ALL"]}
    for spec in pod_specs(objects):
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert spec["enableServiceLinks"] is False
    for spec in deployment:
        for each in (*spec.get("initContainers", ()), *spec["containers"]):
            assert {"startupProbe", "livenessProbe"} <= each.keys()
            # Readiness is the webhook's alone: never who leads, never certificates in the store.
            assert ("readinessProbe" in each) == (each["name"] == "webhook")


@pytest.mark.parametrize("case", MATRIX)
def test_the_program_understands_every_argument(case: str) -> None:
    for each in containers(rendered(case).objects):
        arguments = [str(argument) for argument in each["args"]]
        words = next(words for words in _COMMANDS if tuple(arguments[: len(words)]) == words)
        # Raises on an unknown flag, or a value that it can't be.
        _COMMANDS[words].make_context(" ".join(words), arguments[len(words) :])


@pytest.mark.parametrize("case", MATRIX)
def test_what_is_named_exists(case: str) -> None:
    """Ports of probes, Services and NetworkPolicies; volumes of mounts."""
    for spec in pod_specs(rendered(case).all("Deployment")):
        mine = [*spec.get("initContainers", ()), *spec["containers"]]
        ports = {port["name"]: port["containerPort"] for c in mine for port in c["ports"]}
        assert len(set(ports.values())) == len(ports)
        assert all(len(name) <= 15 for name in ports)
        volumes = {volume["name"] for volume in spec["volumes"]}
        for each in mine:
            own = {port["name"] for port in each["ports"]}
            probes = [probe for name, probe in each.items() if name.endswith("Probe")]
            assert {probe["httpGet"]["port"] for probe in probes} <= own
            assert {mount["name"] for mount in each.get("volumeMounts", ())} <= volumes
        targets = {
            p["targetPort"] for s in rendered(case).all("Service") for p in s["spec"]["ports"]
        }
        allowed = {
            port["port"]
            for policy in rendered(case).all("NetworkPolicy")
            for rule in policy["spec"]["ingress"]
            for port in rule["ports"]
        }
        assert targets | allowed <= ports.keys()
        assert allowed in (set(), ports.keys())


@pytest.mark.parametrize("case", MATRIX)
def test_selectors_find_the_pods_of_the_deployment_and_no_others(case: str) -> None:
    deployment = rendered(case).one("Deployment")
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    test = rendered(case).one("Pod")["metadata"]["labels"]
    selectors = [
        deployment["spec"]["selector"]["matchLabels"],
        *(each["spec"]["selector"] for each in rendered(case).all("Service")),
        *(e["spec"]["selector"]["matchLabels"] for e in rendered(case).all("PodDisruptionBudget")),
        *(e["spec"]["podSelector"]["matchLabels"] for e in rendered(case).all("NetworkPolicy")),
        *(
            each["labelSelector"]["matchLabels"]
            for each in deployment["spec"]["template"]["spec"].get("topologySpreadConstraints", ())
        ),
    ]
    for selector in selectors:
        assert selector.items() <= labels.items()
        assert not selector.items() <= test.items()


@pytest.mark.parametrize("case", MATRIX)
def test_objects_are_labelled_and_in_the_release_s_namespace(case: str) -> None:
    for each in rendered(case).objects:
        if each["metadata"]["name"] in (f"{RELEASE}-one", "two"):
            continue  # what a user adds is as it is
        assert each["metadata"]["labels"]["app.kubernetes.io/managed-by"] == "Helm"
        assert each["metadata"]["labels"]["app.kubernetes.io/part-of"] == "usher"
        is_cluster_wide = each["kind"].startswith(("ClusterRole", "CustomResource"))
        is_cluster_wide |= each["kind"] in _CONFIGURATIONS
        assert each["metadata"].get("namespace") == (None if is_cluster_wide else NAMESPACE)


@pytest.mark.parametrize("case", MATRIX)
def test_pods_of_the_system_and_of_usher_wait_for_no_webhook(case: str) -> None:
    for kind in _CONFIGURATIONS:
        for configuration in rendered(case).all(kind):
            for webhook in configuration["webhooks"]:
                if not webhook["name"].startswith("pods."):
                    continue
                spared = {
                    "key": "kubernetes.io/metadata.name",
                    "operator": "NotIn",
                    "values": ["kube-system", NAMESPACE],
                }
                assert spared in webhook["namespaceSelector"]["matchExpressions"]


# --- single values --------------------------------------------------------------------------------


def test_definitions_are_those_of_the_program() -> None:
    found = {each["metadata"]["name"]: each for each in rendered("crd").all(_DEFINITION)}
    assert found.keys() == {each["metadata"]["name"] for each in definitions()}
    for each in definitions():
        assert found[each["metadata"]["name"]]["spec"] == json.loads(json.dumps(each["spec"]))


_DEFINITION: Final = "CustomResourceDefinition"


def test_natively_only_policies_are_defined() -> None:
    names = {each["metadata"]["name"] for each in rendered("native").all(_DEFINITION)}
    assert names == {"responderpolicies.usher.dev", "clusterresponderpolicies.usher.dev"}


@pytest.mark.parametrize(("case", "policy"), [("defaults", "keep"), ("crd", None)])
def test_definitions_are_kept_unless_told_otherwise(case: str, policy: str | None) -> None:
    for each in rendered(case).all(_DEFINITION):
        assert each["metadata"].get("annotations", {}).get("helm.sh/resource-policy") == policy


def test_an_audit_denies_nothing_and_fails_nothing() -> None:
    for case in ("audit", "pods", "registration"):
        found = render({**MATRIX[case], "audit": True})
        enforced = [each for each in _flags(found.objects, "webhook") if "--enforce" in each]
        assert len(enforced) == len(DEFAULTS["enforce"])
        assert {each.rpartition("=")[2] for each in enforced} == {"audit"}
        policies = {
            webhook["failurePolicy"]
            for kind in _CONFIGURATIONS
            for configuration in found.all(kind)
            for webhook in configuration["webhooks"]
        }
        assert policies == {"Ignore"}


def test_a_guard_that_is_off_stays_off_in_an_audit() -> None:
    found = render({"audit": True, "enforce": {"target-truth": "off"}})
    assert "--enforce=target-truth=off" in _flags(found.objects, "webhook")


def _webhooks(found: Rendered) -> dict[str, Object]:
    """Every webhook, by name."""
    return {
        webhook["name"]: webhook
        for kind in _CONFIGURATIONS
        for configuration in found.all(kind)
        for webhook in configuration["webhooks"]
    }


def _conditions(webhook: Object) -> dict[str, str]:
    """Its match conditions: name → expression."""
    return {each["name"]: each["expression"] for each in webhook.get("matchConditions", ())}


def test_without_an_audit_writes_fail_closed_unless_they_stop_something() -> None:
    found = _webhooks(rendered("defaults"))
    assert {name: each["failurePolicy"] for name, each in found.items()} == {
        "validate.usher.dev": "Fail",
        "withdrawals.validate.usher.dev": "Ignore",
        "pods.validate.usher.dev": "Ignore",
        "mutate.usher.dev": "Ignore",
    }
    assert found["validate.usher.dev"]["timeoutSeconds"] == 5
    other = _webhooks(render({"registration": {"withdrawals": {"failurePolicy": "Fail"}}}))
    assert other["withdrawals.validate.usher.dev"]["failurePolicy"] == "Fail"


def test_the_controller_is_no_stranger_to_the_webhook() -> None:
    user = f"system:serviceaccount:{NAMESPACE}:{RELEASE}"
    objects = rendered("defaults").objects
    assert f"--controllers={user}" in _flags(objects, "webhook")
    for name, webhook in _webhooks(rendered("defaults")).items():
        wanted = None if name.startswith("pods.") else f'request.userInfo.username != "{user}"'
        assert _conditions(webhook).get("not-by-usher-controller") == wanted


def test_without_a_controller_nobody_passes_for_one() -> None:
    objects = rendered("no-controller").objects
    assert not [flag for flag in _flags(objects, "webhook") if flag.startswith("--controllers")]
    for webhook in _webhooks(rendered("no-controller")).values():
        assert "not-by-usher-controller" not in _conditions(webhook)


def test_collectors_are_those_that_the_guards_know() -> None:
    found = _webhooks(rendered("defaults"))
    for name in ("validate.usher.dev", "withdrawals.validate.usher.dev"):
        expression = _conditions(found[name])["not-by-collectors"]
        assert set(re.findall(r'"(system:[^"]+)"', expression)) == COLLECTORS


def test_deletions_are_registered_where_a_rule_judges_them_and_nowhere_else() -> None:
    asked = {
        (name, resource)
        for name, webhook in _webhooks(rendered("defaults")).items()
        for rule in webhook["rules"]
        if "DELETE" in rule["operations"]
        for resource in rule["resources"]
    }
    assert asked == {
        ("validate.usher.dev", "evictions"),
        ("withdrawals.validate.usher.dev", "evictionrequests"),
    }
    judged = {shape.model for shape in SHAPES.values() if judges_deletion(shape.model)}
    assert judged == {Eviction, EvictionRequest}


def test_a_status_is_only_ever_updated() -> None:
    for webhook in _webhooks(rendered("pods")).values():
        for rule in webhook["rules"]:
            if any(resource.endswith("/status") for resource in rule["resources"]):
                assert rule["operations"] == ["UPDATE"]


def test_everything_that_declares_responders_is_registered() -> None:
    webhook = _webhooks(rendered("defaults"))["pods.validate.usher.dev"]
    registered = {
        (group, version, resource)
        for rule in webhook["rules"]
        for group in rule["apiGroups"]
        for version in rule["apiVersions"]
        for resource in rule["resources"]
    }
    assert registered == {("", "v1", "pods/status")} | {
        (group, version, plural(kind))
        for (group, version, kind), shape in SHAPES.items()
        if shape.model is Pod
    }
    assert f'"{RESPONDERS_ANNOTATION}"' in _conditions(webhook)["declares-responders"]


def test_every_pod_is_sent_only_where_policies_add_responders() -> None:
    assert "pods.mutate.usher.dev" not in _webhooks(rendered("defaults"))
    every = _webhooks(rendered("policies"))["pods.mutate.usher.dev"]
    assert "declares-responders" not in _conditions(every)


def test_ended_objects_are_removed_unless_told_otherwise() -> None:
    flags = _flags(rendered("defaults").objects, "controller")
    assert {"--request-ttl=86400", "--orphan-ttl=3600"} <= set(flags)
    kept = render({"controller": {"requestTTL": 0, "orphanTTL": 0}})
    assert {"--request-ttl=0", "--orphan-ttl=0"} <= set(_flags(kept.objects, "controller"))


def test_the_host_of_a_url_is_a_name_of_the_certificate() -> None:
    flags = _flags(rendered("url").objects, "certs")
    assert [flag for flag in flags if flag.startswith("--name")] == [
        "--name=192.0.2.1",
        "--name=usher.internal",
        "--name=usher.example.com",
    ]
    webhook = _webhooks(rendered("url"))["validate.usher.dev"]
    assert webhook["clientConfig"] == {"url": "https://usher.example.com:8443/hooks/validate"}


@pytest.mark.parametrize(("wait", "seconds"), [("2m", 120), ("90s", 90), ("1h", 3600)])
def test_the_agent_may_start_for_longer_than_a_new_ca_waits(wait: str, seconds: int) -> None:
    objects = render({"certificates": {"own": {"wait": wait}}}).objects
    (agent_container,) = (each for each in containers(objects) if each["name"] == "certs")
    probe = agent_container["startupProbe"]
    assert probe["failureThreshold"] * probe["periodSeconds"] == seconds + 180


def test_names_and_addresses_go_where_cert_manager_has_them() -> None:
    spec = rendered("cert-manager").one("Certificate", RELEASE)["spec"]
    assert f"{RELEASE}.{NAMESPACE}.svc" in spec["dnsNames"]
    assert "usher.internal" in spec["dnsNames"]
    assert spec["ipAddresses"] == ["192.0.2.1"]
    for kind in _CONFIGURATIONS:
        for configuration in rendered("cert-manager").all(kind):
            annotations = configuration["metadata"]["annotations"]
            assert annotations == {"cert-manager.io/inject-ca-from": f"{NAMESPACE}/{RELEASE}"}


def test_an_issuer_of_ones_own_is_all_that_is_asked() -> None:
    found = rendered("cert-manager-issuer")
    assert found.all("Issuer") == []
    assert found.one("Certificate")["spec"]["issuerRef"] == {
        "kind": "ClusterIssuer",
        "name": "acme",
    }


# --- rights ---------------------------------------------------------------------------------------


def _rights(found: Rendered) -> set[tuple[str, str, str]]:
    """What the service account of Usher may do, as (verb, resource, group)."""
    own = {f"{RELEASE}"}
    return {
        (verb, resource, group)
        for role in (*found.all("ClusterRole"), *found.all("Role"))
        if role["metadata"]["name"] in own
        for rule in role["rules"]
        for verb in rule["verbs"]
        for resource in rule["resources"]
        for group in rule["apiGroups"]
    }


_POLICIES: Final = {
    ("list", "responderpolicies", "usher.dev"),
    ("list", "clusterresponderpolicies", "usher.dev"),
}
_BUNDLES: Final = {
    ("get", "validatingwebhookconfigurations", "admissionregistration.k8s.io"),
    ("patch", "validatingwebhookconfigurations", "admissionregistration.k8s.io"),
    ("get", "mutatingwebhookconfigurations", "admissionregistration.k8s.io"),
    ("patch", "mutatingwebhookconfigurations", "admissionregistration.k8s.io"),
}
_SECRETS: Final = {(verb, "secrets", "") for verb in ("create", "get", "update")}
_LEASES: Final = {(verb, "leases", "coordination.k8s.io") for verb in ("create", "get", "update")}
_NODES: Final = {(verb, "nodes", "") for verb in ("get", "list", "watch")}
_ASKING: Final = {(verb, "evictionrequests", "lifecycle.k8s.io") for verb in ("create", "patch")}


@pytest.mark.parametrize(
    ("values", "more", "less"),
    [
        pytest.param({"mode": "crd"}, set(), set(), id="nothing"),
        pytest.param(
            {"controller": {"evictor": False}},
            set(),
            {("create", "pods/eviction", "")},
            id="evictor",
        ),
        pytest.param(
            {"controller": {"events": "none"}}, set(), {("create", "events", "")}, id="events"
        ),
        pytest.param(
            {"controller": {"standDown": False}},
            set(),
            {("get", "clusterroles", "rbac.authorization.k8s.io")},
            id="stand-down",
        ),
        pytest.param(
            {"controller": {"requestTTL": 0}},
            set(),
            {("delete", "evictionrequests", "lifecycle.k8s.io")},
            id="request-ttl",
        ),
        pytest.param(
            {"controller": {"orphanTTL": 0}},
            set(),
            {("delete", "evictions", "lifecycle.k8s.io")},
            id="orphan-ttl",
        ),
        pytest.param(
            {"controller": {"nodeHealth": {"enabled": True}}},
            _NODES | _ASKING,
            set(),
            id="node-health",
        ),
        pytest.param(
            {"controller": {"nodeHealth": {"enabled": True, "deadline": 3600}}},
            _NODES | _ASKING | {("delete", "pods", "")},
            set(),
            id="node-health-deadline",
        ),
        pytest.param(
            {"controller": {"nodeHealth": {"enabled": True, "dryRun": True, "deadline": 3600}}},
            _NODES,
            set(),
            id="node-health-deadline-dry-run",
        ),
        pytest.param(
            {"controller": {"nodeHealth": {"enabled": True, "dryRun": True}}},
            _NODES,
            set(),
            id="node-health-dry-run",
        ),
        pytest.param({"registration": {"pods": {"enabled": False}}}, set(), set(), id="pods"),
        pytest.param(
            {"registration": {"pods": {"policies": True}}},
            {("get", "namespaces", ""), ("get", "evictions", "lifecycle.k8s.io")},
            set(),
            id="policies",
        ),
        pytest.param(
            {"mode": "native", "registration": {"pods": {"policies": True}}},
            {("get", "namespaces", "")},
            set(),
            id="policies-native",
        ),
        pytest.param(
            {
                "enforce": {
                    "requester-identity": "off",
                    "eviction-right": "off",
                    "responder-identity": "off",
                }
            },
            set(),
            {("create", "subjectaccessreviews", "authorization.k8s.io")},
            id="identity",
        ),
        pytest.param(
            {
                "enforce": {
                    "target-truth": "off",
                    "target-pair": "off",
                    "target-exists": "off",
                    "eviction-right": "off",
                },
                "webhook": {"mutations": ["trim-requesters"]},
            },
            set(),
            set(),  # the controller gets and lists them, too
            id="truth",
        ),
        pytest.param(
            {"certificates": {"source": "cert-manager"}}, set(), _BUNDLES | _SECRETS, id="cm"
        ),
        pytest.param(
            {"registration": {"mutating": {"enabled": False}}},
            set(),
            {each for each in _BUNDLES if each[1].startswith("mutating")},
            id="nothing-mutates",
        ),
    ],
)
def test_rights_follow_the_values(
    values: Values, more: set[tuple[str, str, str]], less: set[tuple[str, str, str]]
) -> None:
    usual = _rights(rendered("defaults"))
    assert less <= usual
    assert _rights(render(values)) == (usual | more) - less


def test_without_a_controller_only_the_webhook_s_rights_are_left() -> None:
    assert _rights(rendered("no-controller")) == {
        ("create", "subjectaccessreviews", "authorization.k8s.io"),
        ("get", "pods", ""),
        ("list", "pods", ""),
        *_BUNDLES,
        *_SECRETS,
    }


def test_rights_for_others_are_bound_to_nobody_and_aggregated_nowhere() -> None:
    found = rendered("defaults")
    offered = {f"{RELEASE}-{suffix}" for suffix in ("viewer", "responder", "requester")}
    roles = [each for each in found.all("ClusterRole") if each["metadata"]["name"] in offered]
    assert len(roles) == len(offered)
    bound = {each["roleRef"]["name"] for each in (*found.all("ClusterRoleBinding"),)}
    assert bound == {RELEASE}
    for each in roles:
        assert not [label for label in each["metadata"]["labels"] if "aggregate" in label]
        assert "aggregationRule" not in each


def test_a_name_to_act_under_is_given_by_name_only() -> None:
    roles = {
        each["metadata"]["name"]: each["rules"] for each in rendered("roles").all("ClusterRole")
    }
    *_, respond = roles[f"{RELEASE}-responder-failover"]
    assert respond["resourceNames"] == ["db.acme.io/failover", "mesh.acme.io/*"]
    assert respond["verbs"] == ["respond"]
    *_, request = roles[f"{RELEASE}-requester-drain"]
    assert request["resourceNames"] == ["nodes.acme.io/drain"]
    for name in ("responder", "requester"):
        verbs = {verb for rule in roles[f"{RELEASE}-{name}"] for verb in rule["verbs"]}
        assert not verbs & {"respond", "request"}


# --- contradictions -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"replicas": 1}, "replicas is 1"),
        ({"podDisruptionBudget": {"maxUnavailable": "0%"}}, "maxUnavailable is 0"),
        ({"certificates": {"source": "secret"}}, "there is no certificates.existingSecret.name"),
        ({"certificates": {"existingSecret": {"name": "a"}}}, 'certificates.source is "own"'),
        (
            {"certificates": {"certManager": {"issuerRef": {"name": "a"}}}},
            'certificates.source is "own"',
        ),
        ({"serviceAccount": {"create": False}}, "there is no serviceAccount.name"),
        ({"webhook": {"drainSeconds": 60}}, "terminationGracePeriodSeconds is 60"),
        ({"webhook": {"port": 8081}}, "must differ"),
        ({"strategy": {"type": "Recreate"}}, 'strategy.type is "Recreate"'),
        (
            {"controller": {"enabled": False, "nodeHealth": {"enabled": True}}},
            "controller.enabled is false",
        ),
        ({"controller": {"nodeHealth": {"dryRun": True}}}, "controller.nodeHealth.dryRun"),
        (
            {"metrics": {"service": False, "serviceMonitor": {"enabled": True}}},
            "Set metrics.service to true",
        ),
        (
            {
                "replicas": 1,
                "podDisruptionBudget": {"enabled": False},
                "registration": {"pods": {"enabled": True, "failurePolicy": "Fail"}},
            },
            "no pod that declares responders could be created",
        ),
        (
            {"registration": {"pods": {"enabled": False, "policies": True}}},
            "registration.pods.enabled is false",
        ),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_values_that_contradict_each_other_are_refused(values: Values, message: str) -> None:
    found = render(values)
    assert found.code != 0
    assert "these values do not go together" in found.errors
    assert message in found.errors


def test_all_contradictions_are_told_at_once() -> None:
    found = render({"replicas": 1, "certificates": {"source": "secret"}})
    assert "replicas is 1" in found.errors
    assert "existingSecret.name" in found.errors


@pytest.mark.parametrize("program", ["helm", "helm-3"])
def test_an_unknown_value_is_refused_by_name(program: str) -> None:
    found = render({"replica": 2}, program=program)
    assert found.code != 0
    assert "replica" in found.errors


# --- alerts ---------------------------------------------------------------------------------------


def _alerts(case: str) -> list[Object]:
    (group,) = rendered(case).one("PrometheusRule")["spec"]["groups"]
    return list(group["rules"])


def test_alerts_ask_for_what_is_measured() -> None:
    wrong = {each["alert"]: problems(each["expr"]) for each in _alerts("metrics")}
    assert {name: found for name, found in wrong.items() if found} == {}
    assert len(wrong) >= 15


def test_alerts_say_what_is_wrong_and_what_follows() -> None:
    for each in _alerts("metrics"):
        assert each["labels"].keys() == {"severity", "team"}
        assert each["annotations"]["summary"].endswith(".")
        assert each["annotations"]["description"].endswith(".")


def test_the_readme_says_what_to_do_about_every_alert() -> None:
    text = (CHART / "README.md").read_text(encoding="utf-8")
    assert set(re.findall(r"`(Usher[A-Z]\w+)`", text)) == {
        each["alert"] for each in _alerts("metrics")
    }


def _expression(alert: str, values: Values) -> str | None:
    """What ``alert`` asks for, where all alerts are on; None where it is not there."""
    found = render({"metrics": {"prometheusRule": {"enabled": True}}} | values)
    (group,) = found.one("PrometheusRule")["spec"]["groups"]
    return next((each["expr"] for each in group["rules"] if each["alert"] == alert), None)


def test_an_alert_about_an_eviction_names_where_and_why() -> None:
    (overdue,) = (each for each in _alerts("metrics") if each["alert"] == "UsherEvictionOverdue")
    assert 'target_namespace!~"shop|bank-eu"' in overdue["expr"]
    summary = overdue["annotations"]["summary"]
    assert "{{ $labels.target_namespace }}" in summary
    assert "{{ $labels.reason }}" in summary
    assert "!~" not in (_expression("UsherEvictionOverdue", {}) or "")


@pytest.mark.parametrize(
    ("limit", "wanted"),
    [
        ("256Mi", 256 * 2**20 * 85 // 100),
        ("1.5Gi", 3 * 2**29 * 85 // 100),
        ("500M", 425_000_000),
        (1_000_000_000, 850_000_000),
        (None, None),
        ("128000m", None),
    ],
)
def test_the_alert_about_memory_knows_the_limit(limit: Any, wanted: int | None) -> None:
    values: Values = {"controller": {"resources": {"limits": {"memory": limit}}}}
    found = _expression("UsherControllerMemory", values)
    assert (found and int(found.rpartition(" > ")[2])) == wanted


@pytest.mark.parametrize(
    ("alert", "metric"),
    [
        ("UsherNoLeader", "usher_controller_lease_held"),
        ("UsherWebhookAbsent", "up"),
        ("UsherCertificateAgentAbsent", "usher_certs_not_after_timestamp_seconds"),
    ],
)
def test_silence_is_an_alert_of_its_own(alert: str, metric: str) -> None:
    """Where a program tells nothing, none of the alerts about what it tells can fire."""
    found = _expression(alert, {}) or ""
    assert re.search(rf"absent\({metric}{{|sum\({metric}{{.*}}\) or vector\(0\)", found)


def test_pods_that_stay_on_failed_nodes_are_an_alert_where_somebody_looks_after_nodes() -> None:
    on: Values = {"controller": {"nodeHealth": {"enabled": True}}}
    found = _expression("UsherNodePodsStay", on) or ""
    assert found.startswith("max(usher_controller_node_health_oldest_request_seconds{")
    assert found.endswith(") > 1800")
    assert _expression("UsherNodePodsStay", {}) is None


def test_what_others_send_wrongly_is_no_alert() -> None:
    """Scanners and load balancers get 404 and 405, which is nobody's trouble."""
    assert 'errors_total{namespace="usher-system"' in (
        expr := _expression("UsherWebhookErrors", {}) or ""
    )
    assert 'code=~"5.."' in expr


def test_alerts_follow_the_timeouts() -> None:
    timeouts = {"validating": {"timeoutSeconds": 7}, "mutating": {"timeoutSeconds": 5}}
    found = render({"metrics": {"prometheusRule": {"enabled": True}}, "registration": timeouts})
    (group,) = found.one("PrometheusRule")["spec"]["groups"]
    slow = [each["expr"] for each in group["rules"] if each["alert"] == "UsherWebhookSlow"]
    assert [each.rpartition(" > ")[2] for each in slow] == ["2.5", "3.5"]


def test_who_has_no_controller_hears_no_alert_about_it() -> None:
    found = render(
        {
            "metrics": {"prometheusRule": {"enabled": True}},
            "controller": {"enabled": False},
            "certificates": {"source": "cert-manager"},
        }
    )
    (group,) = found.one("PrometheusRule")["spec"]["groups"]
    expressions = " ".join(each["expr"] for each in group["rules"])
    assert "usher_controller_" not in expressions
    assert "usher_certs_" not in expressions
    assert "usher_webhook_" in expressions


def test_the_dashboard_arrives_as_it_is() -> None:
    data = rendered("metrics").one("ConfigMap")["data"]["usher.json"]
    assert json.loads(data) == json.loads((CHART / "files" / "dashboard.json").read_text())


# --- notes ----------------------------------------------------------------------------------------


@cache
def _notes(case: str, program: str = "helm") -> str:
    command = [helm_path(program), "install", RELEASE, str(CHART), "--namespace", NAMESPACE]
    done = subprocess.run(
        [*command, "--dry-run=client", "--values", "-"],
        input=yaml.safe_dump(MATRIX[case]),
        capture_output=True,
        text=True,
        check=False,
        timeout=HELM_SECONDS,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.partition("\nNOTES:\n")[2]


@pytest.mark.parametrize("case", MATRIX)
def test_notes_say_what_to_do_next(case: str) -> None:
    notes = _notes(case)
    assert f"helm test {RELEASE} -n {NAMESPACE}" in notes
    assert f"helm uninstall {RELEASE} -n {NAMESPACE}" in notes
    assert "<no value>" not in notes
    assert not re.search(r"[ \t]+$|\n\n\n", notes, re.MULTILINE), notes


def test_notes_name_the_way_from_audit_to_deny() -> None:
    assert "set audit to false" in _notes("audit")
    assert "Guards that deny: condition-finality, controller-fields" in _notes("defaults")


def test_notes_ask_for_the_bundle_of_a_secret_of_ones_own() -> None:
    assert "Put the CA of the Secret acme-tls into the caBundle" in _notes("secret")
    assert "caBundle" not in _notes("defaults")
