"""What the chart renders is what API servers accept: by their documents, and by themselves."""

import functools
import json
from collections.abc import Iterator
from typing import Any, Final

import pytest

from tests.chart.matrix import MATRIX
from tests.chart.rendering import NAMESPACE, Object, Rendered, render
from tests.chart.schemas import RELEASES, foreign_definitions, problems
from tests.controlplane import ControlPlane, Mode, NoToolchainError
from tests.controlplane.availability import skip_or_fail
from tests.e2e.api import APPLY, Api
from tests.e2e.waiting import eventually

pytestmark = pytest.mark.e2e

_PATHS: Final = {
    "Certificate": "certificates",
    "ClusterRole": "clusterroles",
    "ClusterRoleBinding": "clusterrolebindings",
    "ConfigMap": "configmaps",
    "CustomResourceDefinition": "customresourcedefinitions",
    "Deployment": "deployments",
    "Issuer": "issuers",
    "MutatingWebhookConfiguration": "mutatingwebhookconfigurations",
    "NetworkPolicy": "networkpolicies",
    "Pod": "pods",
    "PodDisruptionBudget": "poddisruptionbudgets",
    "PrometheusRule": "prometheusrules",
    "Role": "roles",
    "RoleBinding": "rolebindings",
    "Service": "services",
    "ServiceAccount": "serviceaccounts",
    "ServiceMonitor": "servicemonitors",
    "ValidatingWebhookConfiguration": "validatingwebhookconfigurations",
}
_RESTRICTED: Final = {"pod-security.kubernetes.io/enforce": "restricted"}
_PRIVILEGED: Final = {"host-network"}
"""Cases that "restricted" is not for, as their values say."""
_OTHERS: Final = "others"
"""A namespace without Pod Security."""


@functools.cache
def rendered(case: str) -> Rendered:
    """A case of the matrix."""
    return render(MATRIX[case])


# --- documents ------------------------------------------------------------------------------------


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("case", MATRIX)
def test_objects_fit_the_schemas_of_kubernetes(case: str, release: str) -> None:
    found = {
        f"{each['kind']} {each['metadata']['name']}": problems(each, release)
        for each in rendered(case).objects
    }
    assert {name: wrong for name, wrong in found.items() if wrong} == {}


@pytest.mark.parametrize("release", RELEASES)
def test_what_is_not_in_a_schema_is_found(release: str) -> None:
    (deployment,) = rendered("defaults").all("Deployment")
    (container, *_) = deployment["spec"]["template"]["spec"]["containers"]
    wrong = {**container, "resource": {}, "ports": [{"containerPort": "https"}]}
    spec = {**deployment["spec"]["template"]["spec"], "containers": [wrong]}
    broken = {**deployment, "spec": {**deployment["spec"], "template": {"spec": spec}}}
    found = " ".join(problems(broken, release))
    assert "'resource' was unexpected" in found
    assert '"https" is not of type "integer"' in found


def test_what_is_not_in_a_definition_is_found() -> None:
    (monitor,) = rendered("metrics").all("ServiceMonitor")
    broken = {**monitor, "spec": {**monitor["spec"], "endpoint": []}}
    assert "'endpoint' was unexpected" in " ".join(problems(broken, "1.37"))


# --- API servers ----------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=[Mode.CRD, Mode.CRD_1_34], ids=str)
def plane(request: pytest.FixtureRequest) -> Iterator[ControlPlane]:
    """A control plane of this module's own."""
    try:
        with ControlPlane(request.param) as running:
            yield running
    except NoToolchainError as error:
        skip_or_fail(str(error))


@pytest.fixture(scope="module")
def api(plane: ControlPlane) -> Iterator[Api]:
    """A cluster that is ready for the chart, and knows the operators' kinds."""
    client = Api(plane)
    _prepare(client)
    yield client
    client.close()


def _prepare(api: Api) -> None:
    for name, labels in ((NAMESPACE, _RESTRICTED), (_OTHERS, {})):
        body: Object = {"metadata": {"name": name, "labels": labels}}
        answer = api("POST", "/api/v1/namespaces", body)
        assert answer.ok, answer.message
        account = f"/api/v1/namespaces/{name}/serviceaccounts"
        # Pods may name no account that does not exist.
        for user in ("usher", "evictions", "acme-usher"):
            answer = api("POST", account, {"metadata": {"name": user}})
            assert answer.ok, answer.message
    path = "/apis/node.k8s.io/v1/runtimeclasses"
    answer = api("POST", path, {"metadata": {"name": "gvisor"}, "handler": "runsc"})
    assert answer.ok, answer.message
    for definition in foreign_definitions():
        definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
        answer = api("POST", definitions, definition)
        assert answer.ok, answer.message
        spec = definition["spec"]
        served = f"/apis/{spec['group']}/{spec['versions'][0]['name']}/{spec['names']['plural']}"
        eventually(lambda path=served: api("GET", path).ok, f"{served} is served")


def _path(document: Object) -> str:
    version = document["apiVersion"]
    prefix = f"/apis/{version}" if "/" in version else f"/api/{version}"
    metadata = document["metadata"]
    namespace = metadata.get("namespace")
    scope = f"/namespaces/{namespace}" if namespace else ""
    return f"{prefix}{scope}/{_PATHS[document['kind']]}/{metadata['name']}"


@pytest.mark.parametrize("case", MATRIX)
def test_api_servers_accept_every_object(api: Api, case: str) -> None:
    refused = {}
    for document in rendered(case).objects:
        if document["kind"] == "Pod" and case in _PRIVILEGED:
            continue
        query = "?dryRun=All&fieldManager=helm&force=true&fieldValidation=Strict"
        answer = api("PATCH", f"{_path(document)}{query}", document, content_type=APPLY)
        if not answer.ok or (answer.warnings and case not in _PRIVILEGED):
            refused[_path(document)] = (answer.message if not answer.ok else "", answer.warnings)
    assert refused == {}


@pytest.mark.parametrize("case", MATRIX)
def test_pods_pass_pod_security_restricted(api: Api, case: str) -> None:
    answer = _create_pod(api, _pod_of(rendered(case).one("Deployment")), NAMESPACE)
    if case in _PRIVILEGED:
        assert "violates PodSecurity" in answer.message
        answer = _create_pod(api, _pod_of(rendered(case).one("Deployment")), _OTHERS)
    assert answer.ok, answer.message


def test_a_pod_that_is_not_restricted_is_refused(api: Api) -> None:
    pod = _pod_of(render({"podSecurityContext": {"seccompProfile": None}}).one("Deployment"))
    assert "violates PodSecurity" in _create_pod(api, pod, NAMESPACE).message


def test_the_agent_can_write_a_bundle_but_bring_no_configuration_back(
    api: Api, plane: ControlPlane
) -> None:
    """While Helm deletes, an agent may still run: docs/adr/0071-uninstall.md."""
    chart = rendered("defaults")
    (configuration,) = chart.all("MutatingWebhookConfiguration")
    rights = [
        chart.one("ClusterRole", "usher"),
        chart.one("ClusterRoleBinding", "usher"),
        configuration,
    ]
    for document in rights:
        answer = api("PATCH", f"{_path(document)}?fieldManager=helm", document, content_type=APPLY)
        assert answer.ok, answer.message
    (webhook,) = configuration["webhooks"]
    bundle = {
        "apiVersion": configuration["apiVersion"],
        "kind": configuration["kind"],
        "metadata": {"name": configuration["metadata"]["name"]},
        "webhooks": [{"name": webhook["name"], "clientConfig": {"caBundle": ""}}],
    }
    write = ("apply", "--server-side", "--field-manager=usher-certs", "-f", "-")
    user = f"--as=system:serviceaccount:{NAMESPACE}:usher"

    def said(document: Object) -> str:
        done = plane.kubectl(*write, user, stdin=json.dumps(document))
        return done.stdout + done.stderr

    eventually(lambda: "serverside-applied" in said(bundle), "the agent may write a bundle")
    answer = api("DELETE", _path(configuration))
    assert answer.ok, answer.message
    # What it sends is no configuration without the rest, and it may not create a complete one.
    assert "is invalid" in said(bundle)
    assert "cannot create resource" in said(configuration)


def _pod_of(deployment: Object) -> Object:
    template = deployment["spec"]["template"]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {**template["metadata"], "name": "usher-0"},
        "spec": template["spec"],
    }


def _create_pod(api: Api, pod: Object, namespace: str) -> Any:
    path = f"/api/v1/namespaces/{namespace}/pods?dryRun=All&fieldValidation=Strict"
    return api("POST", path, pod)
