"""docs/quick-start.md, command by command: real helm and kubectl, the chart's pods as processes."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
import yaml

from tests.chart.cluster import Cluster, running_cluster
from tests.controlplane import Mode, binary_path
from tests.e2e.waiting import eventually
from tests.examples.shell import ROOT, blocks, page, run_shell

pytestmark = pytest.mark.e2e

PAGE: Final = page("quick-start.md")
SCRIPTS: Final = blocks(PAGE, "sh")
_EVICTIONS: Final = "/apis/lifecycle.k8s.io/v1alpha1/namespaces/default/evictions"
_REGISTRATION: Final = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running_cluster(Mode.CRD, tmp_path_factory.mktemp("quick-start")) as cluster:
        yield cluster


def _run(cluster: Cluster, folder: Path, script: str) -> str:
    programs = folder / "bin"
    programs.mkdir(exist_ok=True)
    for name in ("helm", "kubectl"):
        (programs / name).unlink(missing_ok=True)
        (programs / name).symlink_to(binary_path(name))
    # Waiting has no place in what people type, but machines here are slower than clusters.
    patient = script.replace("--timeout 2m", "--timeout 10m")
    run = run_shell(
        patient,
        folder / str(len(list(folder.iterdir()))),
        programs,
        KUBECONFIG=str(cluster.plane.kubeconfig()),
        HOME=str(folder),
        HELM_NAMESPACE="",
    )
    assert run.returncode == 0, f"{script}\n{run.stdout}{run.stderr}\n{cluster.why()}"
    return run.stdout


def _written(folder: Path) -> None:
    """The files that the page shows. There are no images here: their programs stand in."""
    for block in blocks(PAGE, "yaml"):
        (named,) = re.findall(r"^# (\S+\.yaml)$", block, re.MULTILINE)
        manifest = yaml.safe_load(block)
        for container in manifest["spec"].get("containers", ()):
            container["command"] = ["sleep", "infinity"]
        (folder / named).write_text(yaml.safe_dump(manifest))
    (folder / "charts").symlink_to(ROOT / "charts")


def test_from_installing_to_uninstalling(cluster: Cluster, tmp_path: Path) -> None:
    image, install, evict, deny, uninstall = SCRIPTS
    assert image.startswith("make image")  # nothing can build one here
    here = "cd .."
    _written(tmp_path)

    _run(cluster, tmp_path, f"{here}\n{install}")
    assert set(_policies(cluster).values()) == {"Ignore"}

    printed = _run(cluster, tmp_path, f"{here}\n{evict}")
    assert "evictionrequest.lifecycle.k8s.io/drain-web condition met" in printed
    assert "pod-" in printed
    eventually(lambda: not cluster.exists("/api/v1/namespaces/default/pods/web"), "the pod is gone")

    # The second pod waits for its responder.
    asked = (tmp_path / "drain-web.yaml").read_text().replace("web", "db")
    (tmp_path / "drain-db.yaml").write_text(asked)
    _run(cluster, tmp_path, f"{here}\nkubectl apply -f db.yaml -f drain-db.yaml")
    eventually(lambda: _states(cluster).get("db.example.com/failover") == "Active", "its turn")

    _run(cluster, tmp_path, f"{here}\n{deny}")
    assert _policies(cluster) == {
        "validate.usher.dev": "Fail",
        "withdrawals.validate.usher.dev": "Ignore",
        "pods.validate.usher.dev": "Ignore",
    }
    cluster.await_rollout()

    _run(cluster, tmp_path, f"{here}\n{uninstall}")
    assert _policies(cluster) == {}
    assert cluster.exists("/api/v1/namespaces/default/pods/db")
    assert _states(cluster), "objects stay with their definitions"


def _policies(cluster: Cluster) -> dict[str, str]:
    """Webhook → its failurePolicy."""
    found = cluster.call("GET", _REGISTRATION)["items"]
    return {hook["name"]: hook["failurePolicy"] for each in found for hook in each["webhooks"]}


def _states(cluster: Cluster) -> dict[str, str]:
    """Responder → its state, of all Evictions."""
    return {
        responder["name"]: responder["state"]
        for each in cluster.call("GET", _EVICTIONS)["items"]
        for responder in each.get("status", {}).get("targetResponders", ())
    }
