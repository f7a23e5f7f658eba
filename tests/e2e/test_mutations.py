"""What ``/mutate`` does to writes on real API servers, in each mode."""

import base64
import json
from collections.abc import Iterator
from typing import Final

import pytest

from rules.api import RESPONDERS_ANNOTATION
from rules.policies import POLICY_API_VERSION, POLICY_GROUP
from tests.e2e import rbac
from tests.e2e.api import APPLY, Object
from tests.e2e.cluster import Cluster, path_of
from tests.e2e.objects import FIRST, SECOND, eviction, pod, request
from tests.e2e.usher import Usher, running_usher
from tests.e2e.waiting import eventually

pytestmark = pytest.mark.e2e

WEBHOOK_USER: Final = "viewer"
ASK: Final[list[Object]] = [
    {"apiGroups": [""], "resources": ["pods", "namespaces"], "verbs": ["get"]},
    {
        "apiGroups": [POLICY_GROUP],
        "resources": ["responderpolicies", "clusterresponderpolicies"],
        "verbs": ["list"],
    },
    {
        "apiGroups": ["lifecycle.k8s.io"],
        "resources": ["evictions"],
        "resourceNames": ["usher-probe"],
        "verbs": ["get"],
    },
]
"""All that mutations need, as docs/serve.md has it."""
RULES: Final[list[Object]] = [
    {
        "apiGroups": ["lifecycle.k8s.io"],
        "apiVersions": ["v1alpha1"],
        "operations": ["CREATE", "UPDATE"],
        "resources": ["evictionrequests", "evictions/status"],
    },
    {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]},
]
LABEL: Final = "usher.dev/mutated"
_POLICIES: Final = f"/apis/{POLICY_API_VERSION}"
_CONFIGURATIONS: Final = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"


def configuration(usher: Usher) -> Object:
    bundle = base64.b64encode(usher.authority.pair.certificate).decode()
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": "usher"},
        "webhooks": [
            {
                "name": "mutate.usher.dev",
                "admissionReviewVersions": ["v1"],
                "clientConfig": {
                    "url": f"https://localhost:{usher.port}/mutate",
                    "caBundle": bundle,
                },
                "failurePolicy": "Fail",  # so that a failure shows
                "namespaceSelector": {"matchExpressions": [{"key": LABEL, "operator": "Exists"}]},
                "reinvocationPolicy": "IfNeeded",
                "rules": RULES,
                "sideEffects": "None",
                "timeoutSeconds": 10,
            }
        ],
    }


@pytest.fixture(scope="module")
def mutating(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """The cluster, with a webhook that asks it."""
    rbac.grant_everywhere(cluster, WEBHOOK_USER, *ASK)
    kubeconfig = cluster.plane.kubeconfig(WEBHOOK_USER)
    flags = ("--kubeconfig", str(kubeconfig))
    with running_usher(tmp_path_factory.mktemp("mutating"), *flags) as usher:
        answer = cluster.api("POST", _CONFIGURATIONS, configuration(usher))
        assert answer.ok, answer.message
        yield cluster
        assert cluster.api("DELETE", f"{_CONFIGURATIONS}/usher").ok


@pytest.fixture
def namespace(mutating: Cluster) -> str:
    """A namespace whose pods get a responder by policy."""
    found = mutating.new_namespace({LABEL: "yes", "team": "data"})
    add_policy(mutating, "databases", (FIRST, 10000), namespace=found)
    eventually(lambda: registered(mutating, found, pod("probe"), "?dryRun=All"), "pods are changed")
    return found


def add_policy(
    cluster: Cluster, name: str, *responders: tuple[str, int], namespace: str = "", **spec: Object
) -> None:
    place = f"namespaces/{namespace}/responderpolicies" if namespace else "clusterresponderpolicies"
    document = {
        "apiVersion": POLICY_API_VERSION,
        "kind": "ResponderPolicy" if namespace else "ClusterResponderPolicy",
        "metadata": {"name": name},
        "spec": {
            "podSelector": {},
            "responders": [{"name": each, "priority": priority} for each, priority in responders],
            **spec,
        },
    }
    answer = cluster.api("POST", f"{_POLICIES}/{place}", document)
    assert answer.ok, answer.message


def registered(cluster: Cluster, namespace: str, document: Object, query: str = "") -> list[Object]:
    """Create a pod and return the responders that it has, where the cluster's pods have them."""
    answer = cluster.create(namespace, document, query)
    assert answer.ok, answer.message
    if cluster.is_native:
        assert RESPONDERS_ANNOTATION not in answer.body["metadata"].get("annotations", {})
        native: list[Object] = answer.body["spec"].get("evictionResponders", [])
        return native
    annotations = answer.body["metadata"].get("annotations", {})
    annotated: list[Object] = json.loads(annotations.get(RESPONDERS_ANNOTATION, "[]"))
    return annotated


def test_a_new_pod_gets_the_responders_of_policies(mutating: Cluster, namespace: str) -> None:
    selector = {"matchLabels": {"kubernetes.io/metadata.name": namespace, "team": "data"}}
    add_policy(
        mutating, f"all-{namespace}", (FIRST, 9000), (SECOND, 5000), namespaceSelector=selector
    )
    wanted = [{"name": FIRST, "priority": 10000}, {"name": SECOND, "priority": 5000}]
    eventually(
        lambda: registered(mutating, namespace, pod("probe"), "?dryRun=All") == wanted,
        "the policy of the cluster is known",
    )
    assert registered(mutating, namespace, pod()) == wanted


def test_a_pod_with_a_generated_name_gets_them_too(mutating: Cluster, namespace: str) -> None:
    document = pod()
    document["metadata"] = {"generateName": "web-"}
    assert registered(mutating, namespace, document) == [{"name": FIRST, "priority": 10000}]


def test_a_request_gets_the_uid_of_the_live_pod(mutating: Cluster, namespace: str) -> None:
    created = mutating.create(namespace, pod())
    document = request()
    del document["spec"]["target"]["pod"]["uid"]
    answer = mutating.create(namespace, document)
    assert answer.ok, answer.message
    assert answer.body["spec"]["target"]["pod"]["uid"] == created.body["metadata"]["uid"]


def test_an_applied_request_gets_it_too_and_keeps_it(mutating: Cluster, namespace: str) -> None:
    uid = mutating.create(namespace, pod()).body["metadata"]["uid"]
    document = request()
    del document["spec"]["target"]["pod"]["uid"]
    path = path_of(document, namespace, document["metadata"]["name"])
    for _ in range(2):
        query = "?fieldManager=drainer"
        answer = mutating.api("PATCH", f"{path}{query}", document, content_type=APPLY)
        assert answer.ok, answer.message
        assert answer.body["spec"]["target"]["pod"]["uid"] == uid


def test_a_request_for_no_pod_is_refused_as_before(mutating: Cluster, namespace: str) -> None:
    document = request()
    del document["spec"]["target"]["pod"]["uid"]
    answer = mutating.create(namespace, document)
    assert answer.code == 422
    assert "uid" in answer.message


@pytest.mark.parametrize(("wanting", "ok"), [(100, True), (101, False)])
def test_requesters_are_trimmed(
    mutating: Cluster, namespace: str, wanting: int, *, ok: bool
) -> None:
    stored = mutating.create(namespace, eviction()).body
    names = [f"r{number}.acme.io/drain" for number in range(wanting + 2)]
    intents = ["Withdrawn"] * 2 + ["Eviction"] * wanting
    stored["status"] = {
        "requesters": [
            {"name": name, "intent": intent} for name, intent in zip(names, intents, strict=True)
        ]
    }
    answer = mutating.replace(namespace, stored, "status")
    assert answer.ok is ok, answer.message
    if ok:
        assert [each["name"] for each in answer.body["status"]["requesters"]] == names[2:]


@pytest.mark.parametrize(
    "broken",
    [
        {"podSelector": None},
        {"responders": [{"name": FIRST}]},
        {"responders": [{"name": "failover", "priority": 5000}]},
        {"responders": [{"name": "x.k8s.io/failover", "priority": 5000}]},
        {"responders": [{"name": FIRST, "priority": 999}]},
        {"responders": [{"name": FIRST, "priority": 100001}]},
        {"responders": [{"name": FIRST, "priority": 5000}] * 2},
        {"podSelector": {"matchExpressions": [{"key": "app", "operator": "Like"}]}},
    ],
    ids=str,
)
def test_the_definitions_refuse_broken_policies_by_themselves(
    mutating: Cluster, broken: Object
) -> None:
    document = {
        "apiVersion": POLICY_API_VERSION,
        "kind": "ClusterResponderPolicy",
        "metadata": {"name": "broken"},
        "spec": {"podSelector": {}, **broken},
    }
    answer = mutating.api("POST", f"{_POLICIES}/clusterresponderpolicies?dryRun=All", document)
    assert answer.code == 422, answer.message
