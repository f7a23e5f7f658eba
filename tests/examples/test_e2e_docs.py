"""The pages in a real cluster: the first steps of responders.md, the rights of controller.md."""

from pathlib import Path

import pytest

from tests.controller.program import running
from tests.controlplane import binary_path
from tests.e2e.cluster import Cluster
from tests.e2e.waiting import eventually
from tests.examples.responding import EXAMPLES
from tests.examples.shell import blocks, page, run_shell
from tests.examples.test_docs_controller import rights

pytestmark = pytest.mark.e2e

ACCOUNT = "system:serviceaccount:usher-system:usher-controller"


@pytest.fixture(scope="module")
def user(cluster: Cluster) -> str:
    """The user that has the rights of the page, and no others."""
    namespace = {"metadata": {"name": "usher-system"}}
    assert cluster.api("POST", "/api/v1/namespaces", namespace).ok
    for document in rights():
        answer = cluster.kubectl("usher-system", "apply", "-f", "-", document=document)
        assert answer.returncode == 0, answer.stderr
    return ACCOUNT


def test_first_steps_with_a_controller_of_these_rights(
    cluster: Cluster, user: str, tmp_path: Path
) -> None:
    with running(
        cluster, tmp_path / "controller", "--lease-namespace", "usher-system", identity=user
    ) as program:
        program.wait_for_lead()
        _take_first_steps(cluster, tmp_path)
        eventually(lambda: "ResponderCompleted" in _told(cluster), "it is told by Events")
        assert [line for line in program.log() if "permission" in line["event"]] == []


def _take_first_steps(cluster: Cluster, folder: Path) -> None:
    """Type what the page says, as admin."""
    steps = [each for each in blocks(page("responders.md"), "sh") if "validate" not in each]
    script = "trap 'kill $(jobs -p)' EXIT\n" + "".join(steps)
    if cluster.is_native:
        script = script.replace("responder-pod-crd", "responder-pod-native")
    home = folder / "home"
    (home / ".kube").mkdir(parents=True)
    (home / ".kube" / "config").write_bytes(cluster.plane.kubeconfig().read_bytes())
    (folder / "examples").symlink_to(EXAMPLES)
    run = run_shell(script, folder, binary_path("kubectl").parent, HOME=str(home))
    assert run.returncode == 0, run.stdout + run.stderr
    assert "Drained: promoting a replica of db-0" in run.stdout


def _told(cluster: Cluster) -> str:
    return str(cluster.api("GET", "/api/v1/namespaces/db/events").body)
