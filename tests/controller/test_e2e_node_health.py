"""Failed nodes in a real cluster whose webhook denies whatever any guard objects to."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final
from uuid import UUID

import pytest

from cluster.leader_election import NOTE
from controller.node_health.planning.zones import Health
from rules.api import API_VERSION
from tests.controller.node_bed import PATIENT, Bed, running_bed
from tests.controller.program import Program, running
from tests.controller.proxy import Proxy
from tests.controller.rights import (
    CONTROLLER,
    DELETE_PODS,
    NODE_HEALTH,
    PERMISSIONS,
    STRANGER,
)
from tests.controlplane import Mode, binary_path
from tests.e2e import rbac
from tests.e2e.api import Object
from tests.e2e.cluster import Cluster
from tests.e2e.guarded import NAME, guarded
from tests.e2e.usher import judged_by
from tests.e2e.waiting import eventually
from tests.examples.shell import blocks, page, run_shell

pytestmark = pytest.mark.e2e

FLAGS: Final = ("--node-health", "--node-eviction-rate", "2")
NODES: Final = 2
"""In each zone; a zone of which one has failed is normal."""
METRICS: Final = "usher_controller_node_health_"
NODES_PATH: Final = "/api/v1/nodes"


@pytest.fixture(scope="module", params=[Mode.NATIVE, Mode.CRD], ids=str)
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    with running_bed(request.param) as cluster:
        Bed(cluster).create_nodes(NODES)
        rbac.grant_everywhere(cluster, CONTROLLER, *PERMISSIONS, *NODE_HEALTH)
        with guarded(cluster, cluster.plane.folder / "usher", CONTROLLER):
            yield cluster


@pytest.fixture
def bed(cluster: Cluster) -> Iterator[Bed]:
    """A new namespace, and nodes that are all ready; afterwards again."""
    bed = Bed(cluster, judged_by(NAME))
    yield bed
    bed.turn(Health.READY, *bed.nodes())


@pytest.fixture
def program(bed: Bed, tmp_path: Path) -> Iterator[Program]:
    with running(bed.cluster, tmp_path, *FLAGS, identity=CONTROLLER) as program:
        program.wait_for_lead()
        yield program
        if not program.has_ended():
            end(program)


def end(program: Program) -> None:
    """In good order, or the next one would wait until the Lease runs out."""
    program.terminate()
    eventually(program.has_ended, "the controller ends")


def test_pods_of_a_failed_node_are_evicted(bed: Bed, program: Program) -> None:
    for node in bed.nodes("a"):
        for number in range(3):
            bed.create_pod(f"{node}-pod-{number}")
    tolerant = {"tolerations": [{"operator": "Exists"}]}
    bed.create_pod("a-00-pod-tolerant", **tolerant)
    bed.turn(Health.UNREACHABLE, "a-00")
    eventually(lambda: bed.pods("a-00") == {"a-00-pod-tolerant"}, "its pods are evicted")
    bed.wait_until_gone()
    assert len(bed.pods("a-01")) == 3
    (event,) = eventually(lambda: bed.events("EvictingPods"), "an Event")
    assert event["involvedObject"]["kind"] == "Node"
    assert event["message"] == "The node is unreachable: 3 pods are asked to leave."
    assert program.metric(f"{METRICS}evictions_requested_total") == 3
    assert program.metric(f"{METRICS}turns_total") == 1


def test_pods_leave_a_healthy_node_for_a_taint_that_they_do_not_tolerate(
    bed: Bed, program: Program
) -> None:
    key = "acme.io/maintenance"
    tolerant = {"tolerations": [{"key": key, "operator": "Exists"}]}
    bed.create_pod("c-00-pod-stays", **tolerant)
    bed.create_pod("c-00-pod-0", [PATIENT])
    bed.taint("c-00", {"key": key, "effect": "NoExecute"})
    eventually(lambda: bed.requests("Eviction").keys() == {"c-00-pod-0"}, "it is asked to leave")
    bed.taint("c-00")
    bed.wait_until_gone()
    assert bed.pods("c-00") == {"c-00-pod-stays", "c-00-pod-0"}
    bed.create_pod("c-00-pod-1")
    bed.taint("c-00", {"key": key, "effect": "NoExecute"})
    eventually(lambda: "c-00-pod-1" not in bed.pods("c-00"), "it is evicted")
    assert program.metric(f"{METRICS}turns_total") == 0
    bed.taint("c-00")
    bed.wait_until_gone()


def test_a_budget_that_is_spent_ends_at_the_deadline(bed: Bed, tmp_path: Path) -> None:
    """One replica on a dead node, whose budget wants one: nobody else would ever replace it."""
    rbac.grant_everywhere(bed.cluster, CONTROLLER, DELETE_PODS)
    bed.create_budget("db")
    bed.create_pod("c-00-pod-0", labels={"app": "db"})
    flags = (*FLAGS, "--node-health-deadline", "20", "--lease-name", "deadline")
    with running(bed.cluster, tmp_path, *flags, identity=CONTROLLER) as program:
        program.wait_for_lead()
        bed.turn(Health.UNREACHABLE, "c-00")
        eventually(lambda: bed.events("EvictionRefused"), "the budget refuses")
        oldest = f"{METRICS}oldest_request_seconds"
        eventually(lambda: program.metric(oldest) > 0, "the metric tells")
        eventually(lambda: not bed.pods("c-00"), "the pod is deleted")

        def told() -> list[Object]:
            """Of this pod; those of other tests are on the node, too."""
            objects = [event["involvedObject"] for event in bed.events("DeletedOverdue")]
            return [each for each in objects if each["namespace"] == bed.namespace]

        (pod,) = eventually(told, "an Event")
        assert (pod["kind"], pod["name"]) == ("Pod", "c-00-pod-0")
        assert program.metric(f"{METRICS}pods_deleted_total") >= 1
        bed.turn(Health.READY, "c-00")
        bed.wait_until_gone()


def test_a_recovered_node_keeps_its_pods(bed: Bed, program: Program) -> None:
    pod = bed.create_pod("b-00-pod-0", [PATIENT])
    bed.turn(Health.NOT_READY, "b-00")
    eventually(lambda: bed.requests("Eviction"), "the pod is asked to leave")
    path = f"/apis/lifecycle.k8s.io/v1alpha1/namespaces/{bed.namespace}/evictions/pod-1-b-00-pod-0"
    eventually(lambda: bed.cluster.api("GET", path).ok, "its eviction begins")
    bed.turn(Health.READY, "b-00")
    bed.wait_until_gone()
    assert bed.pods("b-00") == {pod["metadata"]["name"]}
    eventually(lambda: bed.events("EvictionsWithdrawn"), "an Event")
    assert program.metric(f"{METRICS}evictions_withdrawn_total") == 1


def test_the_api_server_restarts(bed: Bed, program: Program) -> None:
    pod = bed.create_pod("a-01-pod-0", [PATIENT])
    bed.turn(Health.UNREACHABLE, "a-01")
    eventually(lambda: bed.requests("Eviction"), "the pod is asked to leave")
    bed.cluster.plane.stop_apiserver()
    eventually(lambda: program.ask("/readyz")[0] == 503, "the controller sees it")
    bed.cluster.plane.start_apiserver()
    bed.cluster.api.close()  # its connections have ended with the old one
    eventually(lambda: program.ask("/readyz")[0] == 200, "the controller is ready again")
    bed.turn(Health.READY, "a-01")
    bed.wait_until_gone()
    assert bed.pods("a-01") == {pod["metadata"]["name"]}


def test_stands_down_with_the_rest(bed: Bed, tmp_path: Path) -> None:
    """Where the cluster has a controller of its own nothing is written, about nodes neither."""
    if not bed.cluster.is_native:
        pytest.skip("the role alone says nothing where the API comes from definitions")
    name = "system:controller:evictionrequest-controller"
    path = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
    assert bed.cluster.api("POST", path, {"metadata": {"name": name}}).ok
    bed.create_pod("b-01-pod-0", [PATIENT])
    bed.turn(Health.UNREACHABLE, "b-01")
    with running(bed.cluster, tmp_path, *FLAGS, identity=CONTROLLER) as program:
        eventually(lambda: "standing down" in program.ask("/readyz")[1], "it stands down")
        gone = datetime.now(UTC)
        assert bed.cluster.api("DELETE", f"{path}/{name}").ok
        eventually(bed.asked, "it goes back to work")
        assert bed.asked()[0].time > gone
        bed.turn(Health.READY, "b-01")
        bed.wait_until_gone()
        end(program)


def test_zones_are_told(bed: Bed, program: Program) -> None:
    bed.turn(Health.UNREACHABLE, *bed.nodes("c"))
    eventually(lambda: program.zone_state("c") == "full disruption", "the metric says so")

    def told() -> list[Object]:
        events = bed.events("ZoneChanged")
        return [event for event in events if "eu-1/c: full disruption" in event["message"]]

    (event,) = eventually(told, "an Event")
    assert event["involvedObject"]["kind"] == "Lease"
    bed.turn(Health.READY, *bed.nodes("c"))
    eventually(lambda: program.zone_state("c") == "normal", "the metric says so")


def test_a_dry_run_writes_nothing(bed: Bed, tmp_path: Path) -> None:
    flags = (*FLAGS, "--node-health-dry-run", "--lease-name", "dry-run")
    bed.create_pod("a-00-pod-0", [PATIENT])
    before = len(bed.events("EvictingPods"))
    with running(bed.cluster, tmp_path, *flags, identity=CONTROLLER) as program:
        program.wait_for_lead()
        bed.turn(Health.UNREACHABLE, "a-00")
        turns = f"{METRICS}turns_total"
        eventually(lambda: program.metric(turns) == 1, "a turn is reported")
        line = program.line("1 pod is asked to leave")
        assert line is not None
        assert (line["node"], line["dry_run"]) == ("a-00", True)
        bed.turn(Health.READY, "a-00")
        withdrawn = f"{METRICS}evictions_withdrawn_total"
        eventually(lambda: program.metric(withdrawn) == 1, "so is the withdrawal")
        assert (program.metric(turns), program.metric(f"{METRICS}dry_run")) == (1, 1)
    assert bed.asked() == []
    assert len(bed.events("EvictingPods")) == before
    lease = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/dry-run"
    assert "annotations" not in bed.cluster.api("GET", lease).body["metadata"]


def test_budgets_are_in_the_lease(bed: Bed, program: Program) -> None:
    path = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/usher-controller"

    def zones() -> list[str]:
        annotations = bed.cluster.api("GET", path).body["metadata"].get("annotations", {})
        return [zone["zone"] for zone in json.loads(annotations.get(NOTE, "{}")).get("zones", [])]

    eventually(lambda: zones() == ["a", "b", "c"], "the budgets are stored")


def test_missing_permissions_are_named(bed: Bed, tmp_path: Path) -> None:
    rbac.grant_everywhere(bed.cluster, STRANGER, *PERMISSIONS)
    flags = (*FLAGS, "--lease-name", "node-rights")
    with running(bed.cluster, tmp_path, *flags, identity=STRANGER) as program:
        wanted = 'the permission to list nodes of API group ""'
        eventually(lambda: wanted in program.ask("/readyz")[1], "the missing permission is named")
        program.wait_for_lead()
        rbac.grant_everywhere(bed.cluster, STRANGER, NODE_HEALTH[0])
        eventually(lambda: program.ask("/readyz")[0] == 200, "nodes can be read")
        bed.create_pod("a-00-pod-0", [PATIENT])
        bed.turn(Health.UNREACHABLE, "a-00")
        wanted = "the permission to patch evictionrequests"
        eventually(lambda: program.line(wanted), "the missing permission is named")
        rbac.grant_everywhere(bed.cluster, STRANGER, *NODE_HEALTH[1:])


def test_while_nodes_can_not_be_read_all_other_work_goes_on(bed: Bed, tmp_path: Path) -> None:
    with Proxy(bed.cluster.plane) as proxy:
        proxy.loses = lambda seen: seen.path == NODES_PATH
        kubeconfig = str(proxy.kubeconfig(tmp_path, CONTROLLER))
        flags = (*FLAGS, "--kubeconfig", kubeconfig, "--lease-name", "blind")
        with running(bed.cluster, tmp_path, *flags, identity=CONTROLLER) as program:
            program.wait_for_lead()
            bed.request(bed.create_pod("c-00-pod-0"))
            eventually(lambda: not bed.pods("c-00"), "the pod is evicted")
            assert "nodes" in program.ask("/readyz")[1]
            proxy.loses = lambda _: False
            bed.create_pod("a-00-pod-0", [PATIENT])
            bed.turn(Health.UNREACHABLE, "a-00")
            eventually(lambda: bed.requests("Eviction"), "nodes are seen to")
            bed.turn(Health.READY, "a-00")
            bed.wait_until_gone()


def test_a_node_that_has_recovered_unseen_has_no_turn(bed: Bed, tmp_path: Path) -> None:
    """The watch of nodes falls silent between its failure and its turn."""
    pod = bed.create_pod("a-00-pod-0", [PATIENT])
    with Proxy(bed.cluster.plane) as proxy:
        kubeconfig = str(proxy.kubeconfig(tmp_path, CONTROLLER))
        flags = ("--node-health", "--kubeconfig", kubeconfig, "--lease-name", "unseen")
        with running(bed.cluster, tmp_path, *flags, identity=CONTROLLER) as program:
            program.wait_for_lead()
            bed.turn(Health.UNREACHABLE, "a-00")
            waiting = f"{METRICS}zone_queue_length"
            eventually(lambda: program.metric(waiting) == 1, "the node waits for its turn")
            proxy.mutes = lambda seen: seen.path == NODES_PATH
            bed.turn(Health.READY, "a-00")
            look = f"{NODES_PATH}/a-00"
            eventually(lambda: look in {seen.path for seen in proxy.seen}, "it is looked at")
            eventually(lambda: program.metric(waiting) == 0, "what was seen counts")
            assert program.metric(f"{METRICS}turns_total") == 0
    assert bed.asked() == []
    assert bed.pods("a-00") == {pod["metadata"]["name"]}


def test_what_is_left_behind_is_removed_as_the_page_says(
    bed: Bed, program: Program, tmp_path: Path
) -> None:
    for node in ("a-00", "c-00"):
        bed.create_pod(f"{node}-pod-0", [PATIENT])
    bed.turn(Health.UNREACHABLE, "a-00", "c-00")
    eventually(lambda: len(bed.requests()) == 2, "the pods are asked to leave")
    end(program)
    (script,) = (block for block in blocks(page("node-health.md"), "sh") if "delete" in block)
    kubeconfig = str(bed.cluster.plane.kubeconfig())
    run = run_shell(script, tmp_path, binary_path("kubectl").parent, KUBECONFIG=kubeconfig)
    assert run.returncode == 0, run.stderr
    assert bed.requests() == {}


def test_a_pod_that_admission_refuses_holds_up_nobody(bed: Bed, tmp_path: Path) -> None:
    _refuse_requests(bed)
    names = {f"b-00-pod-{name}" for name in ("0", "refused", "1")}
    for name in names:
        bed.create_pod(name, [PATIENT])
    program = Program(bed.cluster, tmp_path, *FLAGS, identity=CONTROLLER)
    with program.killed_afterwards():
        program.wait_for_lead()
        bed.turn(Health.UNREACHABLE, "b-00")
        wanted = names - {"b-00-pod-refused"}
        eventually(lambda: bed.requests().keys() == wanted, "the others are asked to leave")
        (error,) = eventually(program.errors, "it is told")
        assert "b-00-pod-refused is needed" in error["error"]
        bed.turn(Health.READY, "b-00")
        bed.wait_until_gone()
        end(program)


def test_a_namespace_that_is_being_deleted(bed: Bed, program: Program) -> None:
    other = Bed(bed.cluster, judged_by(NAME))
    for each in (bed, other):
        each.create_pod("c-01-pod-0", [PATIENT])
    bed.cluster.plane.stop_controller_manager()  # or it would be over too soon to be seen
    path = f"/api/v1/namespaces/{other.namespace}"
    assert bed.cluster.api("DELETE", path).ok
    bed.turn(Health.UNREACHABLE, "c-01")
    eventually(lambda: program.line("the namespace is being deleted"), "the controller sees it")
    eventually(bed.requests, "the pod elsewhere is asked to leave")
    bed.cluster.plane.start_controller_manager()
    eventually(lambda: bed.cluster.api("GET", path).code == 404, "the namespace is gone")
    bed.turn(Health.READY, "c-01")
    bed.wait_until_gone()


def _refuse_requests(bed: Bed) -> None:
    """Let the API server refuse EvictionRequests for pods whose names end so."""
    group = "/apis/admissionregistration.k8s.io/v1"
    rule = {
        "apiGroups": ["lifecycle.k8s.io"],
        "apiVersions": ["*"],
        "resources": ["evictionrequests"],
        "operations": ["CREATE"],
    }
    name = "object.spec.target.pod.name"
    validation = {
        "expression": f"!{name}.endsWith('-refused')",
        "messageExpression": f"{name} + ' is needed'",
    }
    spec = {"matchConstraints": {"resourceRules": [rule]}, "validations": [validation]}
    policy = {"metadata": {"name": "needed"}, "spec": spec}
    binding = {
        "metadata": {"name": "needed"},
        "spec": {"policyName": "needed", "validationActions": ["Deny"]},
    }
    assert bed.cluster.api("POST", f"{group}/validatingadmissionpolicies", policy).ok
    assert bed.cluster.api("POST", f"{group}/validatingadmissionpolicybindings", binding).ok
    path = f"/apis/lifecycle.k8s.io/v1alpha1/namespaces/{bed.namespace}/evictionrequests"
    target = {"pod": {"name": "any-refused", "uid": str(UUID(int=1))}}
    request = {
        "apiVersion": API_VERSION,
        "kind": "EvictionRequest",
        "metadata": {"name": "trial"},
        "spec": {"target": target, "requester": "a.acme.io/b", "intent": "Eviction"},
    }

    def is_in_effect() -> bool:
        answer = bed.cluster.api("POST", f"{path}?dryRun=All", request)
        return "any-refused is needed" in answer.message if not answer.ok else False

    eventually(is_in_effect, "the policy is in effect")
