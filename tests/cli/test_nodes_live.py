"""``usher nodes`` on real API servers in both modes, with and without a controller."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from cluster.client import PAGE
from controller.node_health.planning.zones import Health
from tests.cli.conftest import Run, Usher
from tests.controller.node_bed import REGION, Bed, running_bed
from tests.controller.program import running
from tests.controller.rights import CONTROLLER, NODE_HEALTH, PERMISSIONS, STRANGER
from tests.controlplane import ControlPlane, Mode
from tests.e2e import rbac
from tests.e2e.cluster import Cluster
from tests.e2e.waiting import eventually
from tests.examples.shell import blocks, page, run_shell

pytestmark = pytest.mark.e2e

PAGE_OF_DOCS: Final = page("node-health.md")
READER: Final = "viewer"
"""Who has the rights of the page."""
LACKING: Final = {
    "nodes": "responder-a",
    "pods": "responder-b",
    "evictionrequests": "drainer",
    "leases": "oncall",
    "poddisruptionbudgets": STRANGER,
}
"""What may be missing → who has everything else."""
NODES: Final = 2
"""In each zone; a zone of which one has failed is normal."""
LEASE: Final = ("--lease-namespace", "kube-system")


@pytest.fixture(scope="module", params=[Mode.NATIVE, Mode.CRD], ids=str)
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    with running_bed(request.param) as cluster:
        Bed(cluster).create_nodes(NODES)
        rbac.grant_everywhere(cluster, CONTROLLER, *PERMISSIONS, *NODE_HEALTH)
        yield cluster


@pytest.fixture
def bed(cluster: Cluster) -> Iterator[Bed]:
    """A new namespace, and nodes that are all ready; afterwards again, and without pods."""
    bed = Bed(cluster)
    yield bed
    bed.turn(Health.READY, *bed.nodes())
    path = f"/api/v1/namespaces/{bed.namespace}/pods?gracePeriodSeconds=0"
    assert cluster.api("DELETE", path).ok
    eventually(lambda: not cluster.api("GET", path).body["items"], "its pods are gone")


def shown(usher: Usher, cluster: Cluster, *arguments: str, identity: str = "admin") -> Any:
    run = called(usher, cluster, *arguments, "-o", "json", identity=identity)
    assert run.exit_code == 0, run.stderr
    return json.loads(run.stdout)


def called(usher: Usher, cluster: Cluster, *arguments: str, identity: str = "admin") -> Run:
    return usher("nodes", "--kubeconfig", cluster.plane.kubeconfig(identity), *LEASE, *arguments)


def test_the_cluster_is_shown_as_it_stands(usher: Usher, bed: Bed) -> None:
    for node in bed.nodes("a"):
        for number in range(3):
            bed.create_pod(f"{node}-pod-{number}")
    bed.turn(Health.UNREACHABLE, "a-00")
    bed.turn(Health.NOT_READY, *bed.nodes("b"))
    content = shown(usher, bed.cluster)
    zones = {zone["zone"]: zone for zone in content["zones"]}
    assert {name: (zone["region"], zone["state"]) for name, zone in zones.items()} == {
        "a": (REGION, "normal"),
        "b": (REGION, "full disruption"),
        "c": (REGION, "normal"),
    }
    assert (zones["a"]["next"], zones["a"]["budget"]) == ("a-00", None)
    first = content["evictions"][0]
    assert (first["node"], first["pods"], first["time"]) == ("a-00", 3, content["now"])
    assert content["podsKnown"]
    run = called(usher, bed.cluster)
    assert f"{REGION}/b  full disruption  2      2 (100%)" in run.stdout
    assert "BUDGET" not in run.stdout
    assert run.stderr == (
        "there is no Lease kube-system/usher-controller: no controller runs, or --lease-name is "
        "another\n"
    )


def test_pods_that_a_budget_would_keep(usher: Usher, bed: Bed) -> None:
    bed.create_budget("db")
    bed.create_pod("a-00-pod-0", labels={"app": "db"})
    bed.turn(Health.UNREACHABLE, "a-00")

    def refused() -> Any:
        return shown(usher, bed.cluster)["refusedByBudgets"]

    (one,) = eventually(refused, "the budget is counted")
    assert (one["name"], one["node"], one["budget"]) == ("a-00-pod-0", "a-00", "db")


def test_a_timeline_on_the_living_cluster(usher: Usher, bed: Bed, tmp_path: Path) -> None:
    bed.create_pod("c-00-pod-0")
    events = [{"afterSeconds": 30, "nodes": ["c-00"], "state": "not-ready"}]
    Path("outage.yaml").write_text(yaml.safe_dump({"untilSeconds": 60, "events": events}))
    content = shown(usher, bed.cluster, "--simulate", "outage.yaml")
    assert [(each["node"], each["pods"]) for each in content["evictions"]] == [("c-00", 1)]


def test_what_the_running_controller_has_saved_up(usher: Usher, bed: Bed, tmp_path: Path) -> None:
    """A rate at which nothing is ever saved up for a node, so that the pods of one only wait."""
    slow = ("--node-eviction-rate", "0.000001", "--lease-name", "nodes-budgets")
    bed.create_pod("a-00-pod-0")
    bed.turn(Health.UNREACHABLE, "a-00")
    with running(bed.cluster, tmp_path, "--node-health", *slow) as program:
        program.wait_for_lead()

        def budgets() -> list[float | None]:
            return [zone["budget"] for zone in shown(usher, bed.cluster, *slow)["zones"]]

        eventually(lambda: budgets()[0] is not None, "the controller tells its budgets")
        assert all(budget is not None and 0 <= budget < 0.5 for budget in budgets())
        run = called(usher, bed.cluster, *slow)
        assert run.stdout.splitlines()[0].endswith("WAITING  BUDGET")
        assert run.stderr == ""
        assert "Nothing would be evicted" in run.stdout
        # It is for the next leader, whoever reads it and whatever for: still there afterwards.
        program.terminate()
        eventually(program.has_ended, "the controller ends")
    assert budgets()[0] is not None


def test_own_requests_are_known(usher: Usher, bed: Bed, tmp_path: Path) -> None:
    bed.create_pod("b-00-pod-0", ["db.acme.io/failover"])
    lease = ("--lease-name", "nodes-own-requests")
    with running(
        bed.cluster, tmp_path, "--node-health", "--node-eviction-rate", "2", *lease
    ) as program:
        program.wait_for_lead()
        bed.turn(Health.UNREACHABLE, "b-00")
        eventually(lambda: bed.requests("Eviction"), "the pod is asked to leave")
        content = shown(usher, bed.cluster, *lease)
        assert content["evictions"] == []
        others = shown(usher, bed.cluster, *lease, "--node-health-requester", "a.io/b")
        assert [each["node"] for each in others["evictions"]] == ["b-00"]
        bed.turn(Health.READY, "b-00")
        bed.wait_until_gone()


def test_many_pods_are_read_page_by_page(usher: Usher, bed: Bed) -> None:
    before = shown(usher, bed.cluster)
    assert before["evictions"] == []
    bed.create_pods(PAGE + 50, lambda _: ())
    bed.turn(Health.UNREACHABLE, "a-00", "b-00", "c-00")
    content = shown(usher, bed.cluster)
    asked = {each["node"]: each["pods"] for each in content["evictions"]}
    assert asked == {node: len(bed.pods(node)) for node in ("a-00", "b-00", "c-00")}
    assert sum(asked.values()) == (PAGE + 50) // 2


# --- rights and failures ------------------------------------------------------------------------


def grant_the_roles_of_the_page(cluster: Cluster) -> None:
    (roles,) = (block for block in blocks(PAGE_OF_DOCS, "yaml") if "usher-nodes" in block)
    for document in yaml.safe_load_all(roles):
        rules = document["rules"]
        namespace = document["metadata"].get("namespace")
        if namespace is None:
            rbac.grant_everywhere(cluster, READER, *rules)
        else:
            ensure_namespace(cluster, namespace)
            rbac.grant(cluster, namespace, READER, *rules)


def ensure_namespace(cluster: Cluster, name: str) -> None:
    answer = cluster.api("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    assert answer.ok or answer.code == 409, answer.message


def test_the_rights_of_the_page_are_enough(usher: Usher, bed: Bed) -> None:
    grant_the_roles_of_the_page(bed.cluster)
    kubeconfig = bed.cluster.plane.kubeconfig(READER)
    run = usher("nodes", "--kubeconfig", kubeconfig, "--lease-namespace", "usher-system")
    assert run.exit_code == 0, run.stderr
    assert "no Lease usher-system/usher-controller" in run.stderr


def test_the_command_of_the_page(bed: Bed, tmp_path: Path) -> None:
    (script,) = (block for block in blocks(PAGE_OF_DOCS, "sh") if "usher nodes --kube" in block)
    (tmp_path / ".kube").mkdir()
    config = bed.cluster.plane.kubeconfig().read_text()
    (tmp_path / ".kube" / "config").write_text(config)
    run = run_shell(script, tmp_path, HOME=str(tmp_path))
    assert run.returncode == 0, run.stderr
    assert f"{REGION}/a  normal" in run.stdout


@pytest.mark.parametrize("missing", LACKING)
def test_a_missing_permission_is_named(usher: Usher, bed: Bed, missing: str) -> None:
    rules = {
        "nodes": {"apiGroups": [""], "resources": ["nodes"], "verbs": ["list"]},
        "pods": {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]},
        "evictionrequests": {
            "apiGroups": ["lifecycle.k8s.io"],
            "resources": ["evictionrequests"],
            "verbs": ["list"],
        },
        "leases": {
            "apiGroups": ["coordination.k8s.io"],
            "resources": ["leases"],
            "verbs": ["get"],
        },
        "poddisruptionbudgets": {
            "apiGroups": ["policy"],
            "resources": ["poddisruptionbudgets"],
            "verbs": ["list"],
        },
    }
    others = [rule for name, rule in rules.items() if name != missing]
    rbac.grant_everywhere(bed.cluster, LACKING[missing], *others)
    run = called(usher, bed.cluster, identity=LACKING[missing])
    verb = rules[missing]["verbs"][0]
    assert f"the permission to {verb} {missing} of API group" in run.stderr
    assert "docs/node-health.md" in run.stderr
    can_go_without = missing in ("leases", "poddisruptionbudgets")
    assert run.exit_code == (0 if can_go_without else 3)
    assert bool(run.stdout) == can_go_without


def test_a_credential_that_is_none(usher: Usher, bed: Bed, tmp_path: Path) -> None:
    config = yaml.safe_load(bed.cluster.plane.kubeconfig().read_text())
    config["users"][0]["user"] = {"token": "wrong"}
    path = tmp_path / "wrong"
    path.write_text(yaml.safe_dump(config))
    run = usher("nodes", "--kubeconfig", path)
    assert (run.exit_code, run.stdout) == (3, "")
    assert "Unauthorized" in run.stderr


def test_the_api_server_is_away(usher: Usher, bed: Bed, tmp_path: Path) -> None:
    config = yaml.safe_load(bed.cluster.plane.kubeconfig().read_text())
    config["clusters"][0]["cluster"]["server"] = "https://127.0.0.1:1"
    path = tmp_path / "away"
    path.write_text(yaml.safe_dump(config))
    run = usher("nodes", "--kubeconfig", path)
    assert (run.exit_code, run.stdout) == (3, "")
    assert "the API server can't be read" in run.stderr


def test_without_the_api_the_zones_are_shown_all_the_same(usher: Usher) -> None:
    """Neither definitions nor the native API; and no node at first."""
    with ControlPlane(Mode.CRD) as plane:
        empty = usher("nodes", "--kubeconfig", plane.kubeconfig())
        assert (empty.exit_code, empty.stdout) == (3, "")
        assert "the cluster has no nodes" in empty.stderr
        plane.request("POST", "/api/v1/nodes", {"metadata": {"name": "n"}})
        run = usher("nodes", "--kubeconfig", plane.kubeconfig())
    assert run.exit_code == 0, run.stderr
    assert "(no zone)  full disruption  1" in run.stdout
    assert "the API lifecycle.k8s.io/v1alpha1 is not served" in run.stderr
    assert "usher crds | kubectl apply" in run.stderr
