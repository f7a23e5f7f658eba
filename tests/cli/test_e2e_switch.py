"""A cluster changes from CustomResourceDefinitions to the native API, and back.

The controller and the webhook run through both, as they would.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import pytest
import yaml
from click.testing import CliRunner

from cli.main import main
from rules.api import RESPONDERS_ANNOTATION
from tests.cli.conftest import Run
from tests.controller.program import Program, Users, prepared, present, reasons, running, states
from tests.controller.rights import RESPONDERS
from tests.controlplane import Mode
from tests.e2e import rbac
from tests.e2e.api import APPLY, Object
from tests.e2e.cluster import Cluster
from tests.e2e.objects import pod
from tests.e2e.test_mutations import ASK, LABEL, WEBHOOK_USER, add_policy, configuration
from tests.e2e.usher import running_usher
from tests.e2e.waiting import eventually

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

CARRIER: Final = WEBHOOK_USER
"""Who exports and restores: somebody whose other rights do not help."""
FAILOVER: Final = "db.acme.io/failover"
DRAIN: Final = "mesh.example.com/drain"
UID: Final = "11111111-2222-3333-4444-555555555555"
_KEPT: Final = ("name", "namespace", "labels", "annotations")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    page = (Path(__file__).parents[2] / "docs" / "modes.md").read_text(encoding="utf-8")
    rules = yaml.safe_load(page.partition("```yaml\n")[2].partition("```")[0])["rules"]
    with prepared(Mode.CRD) as cluster:
        rbac.grant_everywhere(cluster, CARRIER, *rules)
        yield cluster


def usher(cluster: Cluster, command: str, *arguments: str) -> Run:
    """Run a command with the rights that the page names."""
    program: Any = SimpleNamespace(name="usher", main=main)
    flags = ("--kubeconfig", str(cluster.plane.kubeconfig(CARRIER)))
    result = CliRunner().invoke(program, [command, *arguments, *flags])
    return Run(result.exit_code, result.stdout, result.stderr)


def applied_to_nothing(users: Users) -> int:
    """What becomes of an apply to an Eviction that is known, but gone: the controller may be late.

    The status of the answer; 201 would be a new Eviction that nobody has asked for.
    """
    body = {
        "apiVersion": "lifecycle.k8s.io/v1alpha1",
        "kind": "Eviction",
        "metadata": {"name": "pod-9-gone", "uid": UID},
        "spec": {"target": {"pod": {"name": "gone", "uid": UID}}},
    }
    path = f"{users.path('evictions', 'pod-9-gone')}?fieldManager=late&force=true"
    return users.cluster.api("PATCH", path, body, content_type=APPLY).code


def names(users: Users, resource: str) -> set[str]:
    return {each["metadata"]["name"] for each in users.list(resource)}


def test_what_matters_survives_the_switch_and_the_way_back(
    cluster: Cluster, tmp_path: Path
) -> None:
    file = str(tmp_path / "evictions.jsonl")
    with mutating(cluster, tmp_path) as namespace:
        with running(cluster, tmp_path) as controller:
            controller.wait_for_lead()
            users = Users(cluster)
            pods = begin(users)
            before = {name: users.get("evictionrequests", name) for name in pods}
            export(cluster, file, set(pods))

            # The controller and both webhooks run through this, and need no restart. A controller
            # that sees Evictions vanish before requests do may make one more; it is called off.
            switch(cluster, controller, Mode.NATIVE)
            assert users.list("evictionrequests") == []
            eventually(lambda: declares(cluster, namespace) == "field", "new pods have the field")
            assert applied_to_nothing(users) == 409
            restore(cluster, users, file)
            compare(users, before)
            finish(users)
            assert users.get("pods", "calm") is not None
            assert set(users.evictions_called(201)) == {"done", "fresh", "half"}

        # Back again: what was there before the switch is there again, and comes to its end. No
        # controller may hold plans for the objects that disappear.
        cluster.plane.restart_apiserver(mode=Mode.CRD)
        cluster.api.close()
        with running(cluster, tmp_path) as controller:
            ready(cluster, controller)
            assert applied_to_nothing(users) == 409
            assert names(users, "evictionrequests") == set(pods)
            for name in ("fresh", "half"):
                users.wait_for_reason("evictions", f"pod-1-{name}", "PodDeleted")
                users.wait_for_reason("evictionrequests", name, "PodDeleted")
            eventually(lambda: declares(cluster, namespace) == "annotation", "as before")
            assert usher(cluster, "restore", file).exit_code == 0
    assert max(users.evictions_called(201).values()) == 1


def switch(cluster: Cluster, controller: Program, mode: Mode) -> None:
    """Turn the API server's own API on or off under a controller."""
    cluster.plane.restart_apiserver(mode=mode)
    cluster.api.close()
    ready(cluster, controller)


def ready(cluster: Cluster, controller: Program) -> None:
    for resource in ("evictions", "evictionrequests"):
        path = f"/apis/lifecycle.k8s.io/v1alpha1/{resource}"
        eventually(lambda path=path: cluster.api("GET", path).ok, f"{resource} are served")
    eventually(lambda: controller.ask("/readyz")[0] == 200, "the controller sees them")


def export(cluster: Cluster, file: str, wanted: set[str]) -> None:
    assert usher(cluster, "export", file).exit_code == 0
    exported = [json.loads(line) for line in Path(file).read_text().splitlines()]
    assert {(each["kind"], each["metadata"]["name"]) for each in exported} == {
        *(("EvictionRequest", name) for name in wanted),
        *(("Eviction", f"pod-1-{name}") for name in wanted),
    }
    assert all(each["status"] for each in exported if each["kind"] == "Eviction")
    again = usher(cluster, "export", file)
    assert (again.exit_code, "exists already" in again.stderr) == (2, True)


def compare(users: Users, before: dict[str, Object | None]) -> None:
    for name in ("fresh", "half", "calm"):
        made, old = users.get("evictionrequests", name), before[name]
        assert made is not None
        assert old is not None
        assert made["spec"] == old["spec"]
        for field in _KEPT:
            assert made["metadata"].get(field) == old["metadata"].get(field)


@contextmanager
def mutating(cluster: Cluster, folder: Path) -> Iterator[str]:
    """A webhook that finds out for itself where responders go; a namespace with a policy."""
    rbac.grant_everywhere(cluster, WEBHOOK_USER, *ASK)
    flags = ("--mode", "auto", "--kubeconfig", str(cluster.plane.kubeconfig(WEBHOOK_USER)))
    with running_usher(folder / "mutating", *flags) as webhook:
        kubectl_apply(cluster, configuration(webhook))
        namespace = cluster.new_namespace({LABEL: "yes"})
        add_policy(cluster, "databases", (FAILOVER, 9000), namespace=namespace)
        eventually(lambda: declares(cluster, namespace) == "annotation", "new pods are changed")
        yield namespace


def kubectl_apply(cluster: Cluster, document: Object) -> None:
    run = cluster.kubectl("default", "apply", "--server-side", "-f", "-", document=document)
    assert run.returncode == 0, run.stderr


def declares(cluster: Cluster, namespace: str) -> str:
    """Where a new pod lists its responders; "" if nowhere."""
    answer = cluster.create(namespace, pod("probe"), "?dryRun=All")
    assert answer.ok, answer.message
    if answer.body["spec"].get("evictionResponders"):
        return "field"
    annotations = answer.body["metadata"].get("annotations", {})
    return "annotation" if RESPONDERS_ANNOTATION in annotations else ""


def begin(users: Users) -> dict[str, Object]:
    """Evictions that have ended, are going on, or were called off; pod by name."""
    pods = {
        "done": users.create_pod("done"),
        "calm": users.create_pod("calm", FAILOVER),
        "fresh": users.create_pod("fresh", FAILOVER),
        "half": users.create_pod("half", FAILOVER, DRAIN),
    }
    for name, created in pods.items():
        users.request(created, name)
    users.patch(
        users.path("evictionrequests", "fresh"),
        {"metadata": {"labels": {"team": "db"}, "annotations": {"acme.io/why": "upgrade"}}},
    )
    users.wait_for_reason("evictionrequests", "done", "PodDeleted")
    for name in ("calm", "fresh", "half"):
        wait_for_turn(users, name, FAILOVER)
    users.withdraw("calm")
    users.wait_for("evictions", "pod-1-calm", lambda e: "CanceledDueToNoRequesters" in reasons(e))
    users.report("pod-1-half", FAILOVER, completionTime=present())
    wait_for_turn(users, "half", DRAIN)
    return pods


def restore(cluster: Cluster, users: Users, file: str) -> None:
    run = usher(cluster, "restore", file, "--dry-run", "-o", "json")
    assert (run.exit_code, run.stdout.count('"created"')) == (0, 3), run.stdout + run.stderr
    assert users.list("evictionrequests") == []
    run = usher(cluster, "restore", file, "-o", "json")
    assert run.exit_code == 0, run.stdout + run.stderr
    outcomes = {
        (line["kind"], line["name"]): (line["outcome"], line["reason"])
        for line in map(json.loads, run.stdout.splitlines())
    }
    assert len(outcomes) == 8
    for name in ("fresh", "half", "calm"):
        assert outcomes["EvictionRequest", name] == ("created", "")
    assert outcomes["EvictionRequest", "done"] == ("leftOut", "has ended")
    for name in ("done", "calm"):
        assert outcomes["Eviction", f"pod-1-{name}"] == ("leftOut", "has ended")
    outcome, reason = outcomes["Eviction", "pod-1-half"]
    assert outcome == "leftOut"
    assert reason.endswith(f"all responders begin again; completed before: {FAILOVER}")
    run = usher(cluster, "restore", file)
    assert (run.exit_code, "0 created, 3 exists, 5 left out" in run.stderr) == (0, True), run.stderr


def finish(users: Users) -> None:
    """The responders begin again, and the pods go."""

    def are_gone() -> bool:
        for each in users.list("evictions"):
            if each["spec"]["target"]["pod"]["name"] in ("fresh", "half"):
                complete(users, each)
        requests = (users.get("evictionrequests", name) for name in ("fresh", "half"))
        return all("PodDeleted" in reasons(each or {}) for each in requests)

    eventually(are_gone, "the pods are evicted")


def complete(users: Users, eviction: Object) -> None:
    """Report for the responder whose turn it is; who is too late is asked again, if at all."""
    for entry in eviction.get("status", {}).get("responders", []):
        name = entry["name"]
        if name in RESPONDERS and states(eviction)[name] == "Active":
            entry["completionTime"] = present()
            path = users.path("evictions", eviction["metadata"]["name"], "status")
            users.cluster.api("PUT", path, eviction, identity=RESPONDERS[name])


def wait_for_turn(users: Users, name: str, responder: str) -> None:
    users.wait_for("evictions", f"pod-1-{name}", lambda e: states(e).get(responder) == "Active")
