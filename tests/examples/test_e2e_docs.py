"""The session of docs/responders.md, in a real cluster."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.controller.program import Program, reasons, states
from tests.controlplane import binary_path
from tests.e2e.cluster import Cluster
from tests.examples.responding import EXAMPLES, NAME
from tests.examples.test_docs import blocks

pytestmark = pytest.mark.e2e

_STOP = "trap 'kill $(jobs -p)' EXIT\n"


def test_the_session(cluster: Cluster, controller: Program, tmp_path: Path) -> None:
    session = [block for block in blocks("sh") if "usher validate" not in block]
    assert len(session) == 3
    script = _STOP + "".join(session)
    if cluster.is_native:
        script = script.replace("responder-pod-crd", "responder-pod-native")
    home = tmp_path / "home"
    (home / ".kube").mkdir(parents=True)
    (home / ".kube" / "config").write_bytes(cluster.plane.kubeconfig().read_bytes())
    (tmp_path / "kubectl").symlink_to(binary_path("kubectl"))
    (tmp_path / "python").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    (tmp_path / "python").chmod(0o755)
    environment = {"HOME": str(home), "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    run = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=EXAMPLES.parent,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    ended = cluster.api(
        "GET", "/apis/lifecycle.k8s.io/v1alpha1/namespaces/db/evictions/pod-1-db-0"
    ).body
    assert reasons(ended) == {"PodDeleted"}
    assert states(ended)[NAME] == "Completed"
    assert f"name: {NAME}" in run.stdout
    assert "Drained: promoting a replica of db-0" in run.stdout
