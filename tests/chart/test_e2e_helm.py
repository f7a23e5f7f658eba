"""The chart through its life: helm 4 and 3 on a real API server, its containers as processes."""

import base64
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Final

import pytest

from certs.issue import Authority, issue_authority, issue_serving
from tests.chart.cluster import (
    CHART,
    HELM_VERSIONS,
    NAMESPACE,
    RELEASE,
    Cluster,
    documents,
    running_cluster,
)
from tests.chart.release import MERGE_PATCH, SECRET, Release, flags
from tests.controlplane import Mode
from tests.e2e.waiting import eventually

pytestmark = pytest.mark.e2e

_SMALL: Final = {
    "replicas": 1,
    "podDisruptionBudget.enabled": False,
    "webhook.drainSeconds": 1,
}
"""Values for tests that are not about several replicas."""
_CAUSES: Final = (
    'The Eviction "pod-1-web-0" is invalid:',
    "* status.targetResponders[0].state: Invalid value",
    "* status.responders[0].completionTime: Forbidden",
)
_FAILS: Final = 'failed calling webhook "validate.usher.dev"'


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running_cluster(Mode.CRD, tmp_path_factory.mktemp("chart")) as cluster:
        yield cluster


@pytest.fixture
def release(cluster: Cluster) -> Iterator[Release]:
    release = Release(cluster)
    yield release
    release.clear()


@pytest.mark.parametrize("program", HELM_VERSIONS)
def test_from_install_to_reinstall(cluster: Cluster, program: str) -> None:
    release = Release(cluster, program)
    assert "0 chart(s) failed" in release.helm("lint", "--strict", str(CHART)).text
    release.install(_SMALL, "--wait")
    release.await_verdicts()
    refusal = release.report_too_early().errors
    assert [text for text in _CAUSES if text not in refusal] == [], refusal
    before = _bundles(release)

    # An upgrade after the injection: helm has no claim on caBundle, and new webhooks get it, too.
    more = {"registration.validating.timeoutSeconds": 7, "registration.pods.policies": True}
    release.upgrade(more, "--wait")
    assert release.webhooks()["validate.usher.dev"]["timeoutSeconds"] == 7
    assert "pods.mutate.usher.dev" in release.webhooks()
    assert _bundles(release).items() >= before.items()
    eventually(release.is_trusted, "the new webhooks are trusted")

    release.helm("rollback", RELEASE, "1", "--wait", "--timeout", "10m")
    assert release.webhooks()["validate.usher.dev"]["timeoutSeconds"] == 5
    assert _bundles(release) == before
    assert release.await_verdicts().status != 0

    assert "Succeeded" in release.helm("test", RELEASE, "--timeout", "10m").output

    release.uninstall()
    eventually(release.is_gone, "nothing judges any more")
    assert release.is_free()
    assert release.definitions() == {"lifecycle.k8s.io", "usher.dev"}
    assert cluster.exists(SECRET), "what is not rendered is not removed"

    # What was kept is taken over again: definitions with their objects, the Secret with its CA.
    release.install(_SMALL, "--wait")
    release.await_verdicts()
    assert _bundles(release) == before
    release.clear()


def _bundles(release: Release) -> dict[str, str]:
    eventually(lambda: all(release.bundles()), "all have bundles")
    return {name: hook["clientConfig"]["caBundle"] for name, hook in release.webhooks().items()}


def test_a_first_installation_denies_nothing_until_it_is_told(release: Release) -> None:
    """And API servers call a URL, as where they reach no Services."""
    cluster = release.cluster
    url = f"https://{cluster.address}"
    release.install({**_SMALL, "audit": True, "webhook.url": url}, "--wait")
    assert release.webhooks()["validate.usher.dev"]["clientConfig"]["url"] == f"{url}/validate"
    (pod,) = cluster.pods()
    name = pod["metadata"]["name"]

    def is_audited() -> bool:
        assert release.lie().status == 0
        return '"rules":["requester-identity"' in cluster.log(name, "webhook")

    eventually(is_audited, "the webhook tells what it would have denied")
    release.upgrade({"audit": False}, "--wait")
    release.await_verdicts()


@pytest.mark.parametrize("program", HELM_VERSIONS)
def test_uninstalling_without_a_living_pod_frees_the_cluster(
    cluster: Cluster, program: str
) -> None:
    release = Release(cluster, program)
    release.install({"replicas": 2, "webhook.drainSeconds": 1}, "--wait")
    release.await_verdicts()
    with cluster.paused_kubelet():
        # Nobody takes note, nobody cleans up: as when nodes are lost.
        cluster.kill_containers()
        eventually(lambda: _FAILS in release.write(), "there is nobody to ask")
        release.uninstall()
        assert release.configurations() == []
        eventually(release.is_free, "Evictions can be written")
        assert cluster.pods() != []
    release.clear()


def test_a_deleted_namespace_has_a_way_out(release: Release) -> None:
    cluster = release.cluster
    release.install(_SMALL, "--wait")
    release.await_verdicts()
    cluster.plane.kubectl("delete", "namespace", NAMESPACE, "--wait=true", check=True)
    assert _FAILS in release.write()
    kinds = "validatingwebhookconfiguration,mutatingwebhookconfiguration"
    cluster.plane.kubectl("delete", kinds, RELEASE, check=True)
    eventually(release.is_free, "Evictions can be written")
    # The rest in the cluster is no obstacle to a new release.
    release.install(_SMALL, "--wait")
    release.await_verdicts()


def test_without_helm_in_the_cluster(release: Release) -> None:
    cluster = release.cluster
    text = release.helm(*("template", RELEASE, str(CHART), "--skip-tests"), *flags(_SMALL)).output

    def apply() -> None:
        run = cluster.plane.kubectl(
            "apply", "--server-side", "-n", NAMESPACE, "-f", "-", stdin=text
        )
        assert run.returncode == 0, run.stderr

    cluster.plane.kubectl("create", "namespace", NAMESPACE)
    apply()
    cluster.await_rollout()
    release.await_verdicts()
    before = _bundles(release)
    apply()  # no conflict with who writes caBundle
    assert _bundles(release) == before
    run = cluster.plane.kubectl("delete", "-n", NAMESPACE, "-f", "-", "--wait=false", stdin=text)
    assert run.returncode == 0, run.stderr
    eventually(release.is_gone, "nothing is left")
    eventually(lambda: release.definitions() == set(), "kubectl keeps no definitions")


def test_the_kustomize_base(release: Release) -> None:
    """With the commands of its README."""
    cluster, base = release.cluster, CHART.parent / "kustomize"

    def kubectl(*arguments: str) -> None:
        run = cluster.plane.kubectl(*arguments)
        assert run.returncode == 0, run.stderr

    kubectl("apply", "-k", str(base))
    cluster.await_rollout()
    release.await_verdicts()
    before = _bundles(release)
    kubectl("apply", "-k", str(base))
    assert _bundles(release) == before
    parts = ("webhooks", "workload", "rights", "namespace")
    kubectl("delete", *(f"-f={base}/{part}.yaml" for part in parts))
    eventually(release.is_free, "Evictions can be written")
    kubectl("delete", f"-f={base}/definitions.yaml")


def test_nothing_that_changes_by_itself_is_rendered(release: Release) -> None:
    texts = {release.helm("template", RELEASE, str(CHART), "-n", NAMESPACE).output for _ in "ab"}
    assert len(texts) == 1
    for each in documents(texts.pop()):
        assert each["kind"] != "Secret"
        assert "caBundle" not in json.dumps(each.get("webhooks", []))


# --- other sources of certificates ------------------------------------------------------------


def test_a_secret_of_ones_own(release: Release) -> None:
    cluster = release.cluster
    path = f"/api/v1/namespaces/{NAMESPACE}/secrets"
    authority = _authority()
    body = {
        "metadata": {"name": "own-tls"},
        "type": "kubernetes.io/tls",
        "data": _pair(authority, f"{RELEASE}.{NAMESPACE}.svc"),
    }
    cluster.plane.kubectl("create", "namespace", NAMESPACE)
    cluster.plane.request("DELETE", f"{path}/own-tls")
    cluster.call("POST", path, body)
    source = {"source": "secret", "existingSecret": {"name": "own-tls"}}
    release.install({**_SMALL, "certificates": source}, "--wait")
    assert _FAILS in release.write()
    release.inject(authority.pair.certificate, "somebody")
    release.await_verdicts()
    release.upgrade({"registration.validating.timeoutSeconds": 7}, "--wait")
    release.await_verdicts()
    assert "Succeeded" in release.helm("test", RELEASE, "--timeout", "10m").output
    for _ in range(2):
        # The kubelet swaps the volume's symbolic link; whoever trusts the new CA alone is served.
        authority = _authority()
        data = _pair(authority, f"{RELEASE}.{NAMESPACE}.svc")
        cluster.call("PATCH", f"{path}/own-tls", {"data": data}, content_type=MERGE_PATCH)
        release.inject(authority.pair.certificate, "somebody")
        release.await_verdicts()
    assert all(pod["status"]["containerStatuses"][0]["restartCount"] == 0 for pod in cluster.pods())


def test_certificates_of_cert_manager(release: Release) -> None:
    """Its part is played here: definitions that take anything, an issuer, and an injector."""
    cluster = release.cluster
    for plural, kind in (("issuers", "Issuer"), ("certificates", "Certificate")):
        definition = json.dumps(_definition(plural, kind))
        cluster.plane.kubectl("apply", "--server-side", "-f", "-", stdin=definition, check=True)
    resources = f"/apis/cert-manager.io/v1/namespaces/{NAMESPACE}"
    eventually(lambda: cluster.exists(f"{resources}/certificates"), "certificates are served")
    cluster.plane.request("DELETE", SECRET)
    release.install({**_SMALL, "certificates.source": "cert-manager"})

    certificate = cluster.call("GET", f"{resources}/certificates/{RELEASE}")
    issuer = certificate["spec"]["issuerRef"]["name"]
    assert cluster.exists(f"{resources}/issuers/{issuer}")
    authority = _authority()
    body = {
        "metadata": {"name": certificate["spec"]["secretName"]},
        "type": "kubernetes.io/tls",
        "data": _pair(authority, *certificate["spec"]["dnsNames"]),
    }
    cluster.call("POST", SECRET.rpartition("/")[0], body)
    for path in release.configurations():
        wanted = cluster.call("GET", path)["metadata"]["annotations"]
        assert wanted["cert-manager.io/inject-ca-from"] == f"{NAMESPACE}/{RELEASE}"
    release.inject(authority.pair.certificate, "cainjector")
    cluster.await_rollout()
    release.await_verdicts()
    release.upgrade({"registration.validating.timeoutSeconds": 7}, "--wait")
    release.await_verdicts()
    assert "Succeeded" in release.helm("test", RELEASE, "--timeout", "10m").output


def _authority() -> Authority:
    return issue_authority(datetime.now(UTC))


def _pair(authority: Authority, *names: str) -> dict[str, str]:
    serving = issue_serving(authority, names, datetime.now(UTC))
    content = {
        "tls.crt": serving.certificate,
        "tls.key": serving.key,
        "ca.crt": authority.pair.certificate,
    }
    return {name: base64.b64encode(value).decode() for name, value in content.items()}


def _definition(plural: str, kind: str) -> dict[str, Any]:
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.cert-manager.io"},
        "spec": {
            "group": "cert-manager.io",
            "names": {"plural": plural, "singular": kind.lower(), "kind": kind},
            "scope": "Namespaced",
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": anything},
                }
            ],
        },
    }
