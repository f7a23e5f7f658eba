"""charts/kustomize: what the chart renders, accepted by an API server, and gone without traces."""

import base64
import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
import yaml

from rules.crd import definitions
from tests.chart.kustomize import BASE, files
from tests.chart.rendering import NAMESPACE, Object
from tests.controlplane import ControlPlane, Mode, NoToolchainError, binary_path
from tests.controlplane.availability import skip_or_fail
from tests.e2e.waiting import eventually
from tests.examples.shell import blocks

pytestmark = pytest.mark.e2e

README: Final = (BASE / "README.md").read_text(encoding="utf-8")
REQUEST: Final = """
apiVersion: lifecycle.k8s.io/v1alpha1
kind: EvictionRequest
metadata: {name: drain-web, namespace: default}
spec:
  requester: ops.example.com/drain
  intent: Eviction
  target: {pod: {name: web, uid: 9b0a7a5e-5f0c-4b52-9f0c-6f2a1f0e7d11}}
"""


@pytest.fixture(scope="module")
def kubectl() -> str:
    try:
        return str(binary_path("kubectl"))
    except NoToolchainError as error:
        skip_or_fail(str(error))


def _built(kubectl: str, folder: Path) -> list[Object]:
    done = subprocess.run(
        [kubectl, "kustomize", "--load-restrictor", "LoadRestrictionsNone", folder],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return list(yaml.load_all(done.stdout, yaml.CSafeLoader))


def test_it_is_up_to_date() -> None:
    made = files()
    assert {path.name for path in BASE.glob("*.yaml")} == set(made)
    for name, text in made.items():
        assert (BASE / name).read_text(encoding="utf-8") == text, f"{name}: run 'make kustomize'"


def test_nothing_of_helm_is_left(kubectl: str) -> None:
    objects = _built(kubectl, BASE)
    text = json.dumps(objects)
    assert "helm" not in text.lower()
    assert "caBundle" not in text
    assert {each["kind"] for each in objects} >= {"Namespace", "Deployment", "Service"}


def test_definitions_are_those_of_the_program(kubectl: str) -> None:
    built = {each["metadata"]["name"]: each for each in _built(kubectl, BASE)}
    for definition in definitions():
        assert built[definition["metadata"]["name"]]["spec"] == definition["spec"]


def test_the_overlay_of_the_readme(kubectl: str, tmp_path: Path) -> None:
    shutil.copytree(BASE, tmp_path / "charts" / "kustomize")
    (tmp_path / "mine").mkdir()
    (overlay,) = blocks(README, "yaml")
    (tmp_path / "mine" / "kustomization.yaml").write_text(overlay)
    objects = _built(kubectl, tmp_path / "mine")
    spec = next(each["spec"] for each in objects if each["kind"] == "Deployment")
    pod = spec["template"]["spec"]
    images = {each["image"] for each in (*pod["initContainers"], *pod["containers"])}
    assert images == {"registry.example.com/usher:0.1.0"}
    assert spec["replicas"] == 5
    policies = {
        each["metadata"]["name"]: each["webhooks"][0]["failurePolicy"]
        for each in objects
        if each["kind"].startswith("Validating")
    }
    assert policies == dict.fromkeys(("usher", "usher-pods", "usher-withdrawals"), "Ignore")


# --- a cluster -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    """A cluster of its own: nobody answers the webhook that is installed here."""
    try:
        with ControlPlane(Mode.CRD) as plane:
            yield plane
    except NoToolchainError as error:
        skip_or_fail(str(error))


def _done(plane: ControlPlane, *arguments: str, text: str | None = None) -> str:
    run = plane.kubectl(*arguments, stdin=text)
    assert run.returncode == 0, run.stderr
    return run.stdout


def test_it_is_applied_twice_and_removed(plane: ControlPlane) -> None:
    apply = ("apply", "--server-side", "-k", str(BASE))
    _done(plane, *apply)
    _inject(plane)
    # The field is somebody else's, and stays so.
    _done(plane, *apply)
    found = json.loads(_done(plane, "get", "validatingwebhookconfiguration/usher", "-o", "json"))
    assert all(webhook["clientConfig"]["caBundle"] for webhook in found["webhooks"])
    assert _done(plane, "get", "deployment/usher", "-n", NAMESPACE, "-o", "name")
    eventually(lambda: _refused(plane), "writes to be refused while nobody answers")
    for command in re.findall(r"^kubectl (delete .*)$", README, re.MULTILINE):
        words = command.replace("charts/kustomize", str(BASE)).split()
        _done(plane, *words, "--wait=false")
    eventually(lambda: _accepted(plane), "writes to go through again")


def _inject(plane: ControlPlane) -> None:
    """Write caBundle as the certificate agent does."""
    bundle = base64.b64encode(plane.ca_file.read_bytes()).decode()
    patch = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "usher"},
        "webhooks": [
            {"name": "validate.usher.dev", "clientConfig": {"caBundle": bundle}},
        ],
    }
    apply = ("apply", "--server-side", "--field-manager=usher-certs", "-f", "-")
    _done(plane, *apply, text=json.dumps(patch))


def _refused(plane: ControlPlane) -> bool:
    run = plane.kubectl("apply", "--dry-run=server", "-f", "-", stdin=REQUEST)
    return 'failed calling webhook "validate.usher.dev"' in run.stderr


def _accepted(plane: ControlPlane) -> bool:
    return plane.kubectl("apply", "-f", "-", stdin=REQUEST).returncode == 0
