"""Refusals of a real API server: who refuses, and for which of them a Role would help."""

import asyncio
import json
import ssl
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Final

import pytest
import yaml

from cluster.client import Cluster as Client
from cluster.failures import (
    Busy,
    BusySource,
    ClusterFailure,
    Denied,
    Refused,
    Unauthenticated,
)
from cluster.key import Key
from cluster.resources import PODS
from tests.cluster.authority import HOST, Signed, server_context
from tests.controlplane import Mode, NoToolchainError
from tests.controlplane.availability import skip_or_fail
from tests.e2e import rbac
from tests.e2e.api import MERGE_PATCH, Object
from tests.e2e.cluster import Cluster, running_cluster
from tests.e2e.objects import pod
from tests.patience import PATIENCE

pytestmark = pytest.mark.e2e

USER: Final = "controller"
STRANGER: Final = "viewer"
ADMISSION: Final = "/apis/admissionregistration.k8s.io/v1"
FLOWS: Final = "/apis/flowcontrol.apiserver.k8s.io/v1"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    try:
        with running_cluster(Mode.NATIVE) as running:
            rule = {"apiGroups": [""], "resources": ["pods", "pods/eviction"], "verbs": ["*"]}
            rbac.grant_everywhere(running, USER, rule)
            yield running
    except NoToolchainError as error:
        skip_or_fail(str(error))


@pytest.fixture
def namespace(cluster: Cluster) -> str:
    name = cluster.new_namespace()
    account = {"metadata": {"name": "default"}}
    assert cluster.api("POST", f"/api/v1/namespaces/{name}/serviceaccounts", account).ok
    return name


def put(cluster: Cluster, path: str, document: Object) -> None:
    answer = cluster.api("POST", path, document)
    assert answer.ok, answer.message


async def failure_of(kubeconfig: Path, namespace: str) -> ClusterFailure:
    """What becomes of an eviction of ``web-0``."""
    async with Client(kubeconfig, "usher-test") as client:
        with pytest.raises(ClusterFailure) as caught:
            await client.evict(Key(namespace, "web-0"), "")
    return caught.value


async def test_a_permission_that_is_missing(cluster: Cluster, namespace: str) -> None:
    failure = await failure_of(cluster.plane.kubeconfig(STRANGER), namespace)
    assert type(failure) is Denied
    assert f'create pods/eviction of API group "" in namespace {namespace}' in failure.explanation


async def test_a_token_that_is_not_known(cluster: Cluster, namespace: str, tmp_path: Path) -> None:
    content = yaml.safe_load(cluster.plane.kubeconfig(USER).read_text())
    content["users"][0]["user"]["token"] = "nobody's"
    (tmp_path / "kubeconfig").write_text(yaml.safe_dump(content))
    failure = await failure_of(tmp_path / "kubeconfig", namespace)
    assert type(failure) is Unauthenticated
    async with Client(tmp_path / "kubeconfig", "usher-test") as client:
        with pytest.raises(Unauthenticated):
            await anext(client.watch(PODS, "0"))


async def test_a_disruption_budget(cluster: Cluster, namespace: str) -> None:
    document = pod()
    document["metadata"]["labels"] = {"app": "web"}
    pods = f"/api/v1/namespaces/{namespace}/pods"
    put(cluster, pods, document)
    running = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    patch = {"status": running}
    assert cluster.api("PATCH", f"{pods}/web-0/status", patch, content_type=MERGE_PATCH).ok
    budget = {
        "metadata": {"name": "web"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}},
    }
    put(cluster, f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets", budget)
    failure = await failure_of(cluster.plane.kubeconfig(USER), namespace)
    assert isinstance(failure, Busy)
    assert failure.source is BusySource.BUDGET
    assert failure.causes


async def test_a_server_that_has_too_much_to_do(cluster: Cluster, namespace: str) -> None:
    """That user has one seat: of many requests at a time most are refused."""
    level = {
        "metadata": {"name": "none"},
        "spec": {
            "type": "Limited",
            "limited": {
                "nominalConcurrencyShares": 0,
                "lendablePercent": 0,
                "borrowingLimitPercent": 0,
                "limitResponse": {"type": "Reject"},
            },
        },
    }
    rule = {
        "verbs": ["*"],
        "apiGroups": ["*"],
        "resources": ["*"],
        "namespaces": ["*"],
        "clusterScope": True,
    }
    schema = {
        "metadata": {"name": "none"},
        "spec": {
            "priorityLevelConfiguration": {"name": "none"},
            "matchingPrecedence": 2,
            "rules": [
                {
                    "subjects": [{"kind": "User", "user": {"name": "drainer"}}],
                    "resourceRules": [rule],
                }
            ],
        },
    }
    put(cluster, f"{FLOWS}/prioritylevelconfigurations", level)
    put(cluster, f"{FLOWS}/flowschemas", schema)
    async with (
        asyncio.timeout(PATIENCE),
        Client(cluster.plane.kubeconfig("drainer"), "usher-test") as client,
    ):
        while True:
            ask = (client.evict(Key(namespace, "web-0"), "") for _ in range(20))
            failures = await asyncio.gather(*ask, return_exceptions=True)
            if busy := [failure for failure in failures if isinstance(failure, Busy)]:
                break
            await asyncio.sleep(0.2)
    assert {failure.source for failure in busy} == {BusySource.SERVER}
    assert all(failure.retry_after for failure in busy)


# --- admission ----------------------------------------------------------------------------------


async def test_a_quota(cluster: Cluster, namespace: str) -> None:
    quota = {"metadata": {"name": "q"}, "spec": {"hard": {"pods": "0"}}}
    quotas = f"/api/v1/namespaces/{namespace}/resourcequotas"
    put(cluster, quotas, quota)
    status = {"status": {"hard": {"pods": "0"}, "used": {"pods": "0"}}}
    assert cluster.api("PATCH", f"{quotas}/q/status", status, content_type=MERGE_PATCH).ok
    async with Client(cluster.plane.kubeconfig(USER), "usher-test") as client:
        failure = await first_failure(client, namespace)
    assert type(failure) is Refused
    assert "quota" in str(failure)


async def test_a_policy(cluster: Cluster, namespace: str) -> None:
    policy = {
        "metadata": {"name": "freeze"},
        "spec": {
            "matchConstraints": {
                "resourceRules": [
                    {
                        "apiGroups": [""],
                        "apiVersions": ["v1"],
                        "resources": ["pods"],
                        "operations": ["CREATE"],
                    }
                ]
            },
            "validations": [
                {
                    "expression": "false",
                    "message": "nothing cannot change before Monday",
                    "reason": "Forbidden",
                }
            ],
        },
    }
    selector = {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
    binding = {
        "metadata": {"name": "freeze"},
        "spec": {
            "policyName": "freeze",
            "validationActions": ["Deny"],
            "matchResources": {"namespaceSelector": selector},
        },
    }
    put(cluster, f"{ADMISSION}/validatingadmissionpolicies", policy)
    put(cluster, f"{ADMISSION}/validatingadmissionpolicybindings", binding)
    async with Client(cluster.plane.kubeconfig(USER), "usher-test") as client:
        failure = await first_failure(client, namespace)
    assert type(failure) is Refused
    assert "nothing cannot change before Monday" in str(failure)


async def first_failure(client: Client, namespace: str) -> ClusterFailure:
    """What was registered a moment ago is in effect a moment later."""
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                await client.create(PODS, namespace, pod(), dry_run=True)
            except ClusterFailure as failure:
                return failure
            await asyncio.sleep(0.2)


@pytest.mark.parametrize(
    ("code", "message", "kind"),
    [
        (403, "this pod cannot be evicted now, the operator will move it", Refused),
        (429, "the migration has begun", Busy),
        (429, "", Busy),
    ],
)
async def test_a_webhook(
    cluster: Cluster,
    namespace: str,
    tmp_path: Path,
    code: int,
    message: str,
    kind: type[ClusterFailure],
) -> None:
    authority = Signed.make("authority", is_authority=True)
    context = server_context(tmp_path, Signed.make("webhook", authority))
    with answering(context, {"code": code, "message": message}) as port:
        configuration = webhook(namespace, f"https://{HOST}:{port}/", authority)
        put(cluster, f"{ADMISSION}/validatingwebhookconfigurations", configuration)
        async with Client(cluster.plane.kubeconfig(USER), "usher-test") as client:
            failure = await first_failure(client, namespace)
    assert type(failure) is kind
    assert message in str(failure)
    if isinstance(failure, Busy):
        assert failure.source is BusySource.ADMISSION


@contextmanager
def answering(context: ssl.SSLContext, status: Object) -> Iterator[int]:
    """The port of a webhook that refuses everything with ``status``.

    In threads: API servers open connections that they never use, which asyncio would complain of.
    """

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            response = {"uid": review["request"]["uid"], "allowed": False, "status": status}
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(json.dumps(review | {"response": response}).encode())

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer((HOST, 0), Handler) as server:
        server.socket = context.wrap_socket(
            server.socket, server_side=True, do_handshake_on_connect=False
        )
        Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_address[1]
        server.shutdown()


def webhook(namespace: str, url: str, authority: Signed) -> Object:
    rule = {
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "resources": ["pods"],
        "operations": ["CREATE"],
    }
    return {
        "metadata": {"name": namespace},
        "webhooks": [
            {
                "name": "evict.drain.example.com",
                "admissionReviewVersions": ["v1"],
                "clientConfig": {"url": url, "caBundle": b64encode(authority.pem).decode()},
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
                "rules": [rule],
                "sideEffects": "None",
            }
        ],
    }
