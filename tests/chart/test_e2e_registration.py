"""The registration that the chart renders, on real API servers: who is asked about which write.

Match conditions are evaluated by API servers; what they let through is counted by the webhook.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

from rules.api import EVICTOR, RESPONDERS_ANNOTATION
from tests.chart.registration import (
    UNREADABLE,
    WEBHOOK_USER,
    registered,
    request_for,
    wait_until_in_effect,
)
from tests.chart.rendering import NAMESPACE
from tests.controller.program import NODE, Users, reasons, running, states
from tests.controller.rights import CONTROLLER, ONCALL
from tests.controlplane import Mode, NoToolchainError
from tests.controlplane.availability import skip_or_fail
from tests.e2e import rbac
from tests.e2e.api import MERGE_PATCH, Answer, Object
from tests.e2e.cluster import Cluster, running_cluster
from tests.e2e.objects import FIRST, pod
from tests.e2e.usher import Usher, running_usher
from tests.e2e.waiting import eventually

pytestmark = pytest.mark.e2e

_AWAY: Final = 'failed calling webhook "validate.usher.dev"'
_READABLE: Final = {RESPONDERS_ANNOTATION: json.dumps([{"name": FIRST, "priority": 10_000}])}


@pytest.fixture(scope="module", params=list(Mode), ids=str)
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """With Kubernetes' own controllers and a node, but no webhook."""
    try:
        with running_cluster(request.param) as cluster:
            cluster.plane.start_controller_manager()
            cluster.plane.start_kubelet(NODE)
            rbac.grant_everywhere(cluster, WEBHOOK_USER, *rbac.ASK)
            yield cluster
    except NoToolchainError as error:
        skip_or_fail(str(error))


@pytest.fixture
def webhook(cluster: Cluster, tmp_path: Path) -> Iterator[Usher]:
    """The webhook, registered as the chart does it by default; a test may end it."""
    kubeconfig = str(cluster.plane.kubeconfig(WEBHOOK_USER))
    flags = ("--kubeconfig", kubeconfig, "--controllers", CONTROLLER)
    with running_usher(tmp_path / "usher", *flags) as usher, registered(cluster, usher):
        yield usher


@pytest.fixture
def users(cluster: Cluster, webhook: Usher) -> Users:
    """A namespace that is judged."""
    users = Users(cluster)
    wait_until_in_effect(users)
    return users


def _calls(usher: Usher) -> float:
    """How often API servers have asked so far."""
    return usher.metric("usher_webhook_requests_total")


@contextmanager
def _asked(usher: Usher, times: int) -> Iterator[None]:
    before = _calls(usher)
    yield
    assert _calls(usher) - before == times


# --- while the webhook is away --------------------------------------------------------------------


def test_a_namespace_is_deleted_without_the_webhook(
    users: Users, webhook: Usher, tmp_path: Path
) -> None:
    """With an eviction that has ended and one that has not."""
    with running(users.cluster, tmp_path / "controller") as program:
        program.wait_for_lead()
        users.request(users.create_pod("ended-0"), "drain-ended")
        users.wait_for_reason("evictionrequests", "drain-ended", "PodDeleted")
        users.request(users.create_pod("db-0", FIRST), "drain-db")
        users.wait_for("evictions", "pod-1-db-0", lambda e: states(e).get(FIRST) == "Active")
    assert len(users.list("evictions")) == 2
    webhook.stop()
    users.call("DELETE", f"/api/v1/namespaces/{users.namespace}")
    eventually(partial(_is_gone, users), "the namespace is gone")


def _is_gone(users: Users) -> bool:
    return users.cluster.api("GET", f"/api/v1/namespaces/{users.namespace}").code == 404


def test_garbage_is_collected_without_the_webhook(users: Users, webhook: Usher) -> None:
    """Owner references are taken away, finalizers as well, and what nobody owns is deleted."""
    target = users.create_pod("db-0")
    requests = [users.request(target, name) for name in ("one", "two")]
    eviction = {
        "apiVersion": "lifecycle.k8s.io/v1alpha1",
        "kind": "Eviction",
        "metadata": {"name": "pod-1-db-0", "ownerReferences": [_owner(each) for each in requests]},
        "spec": {"target": requests[0]["spec"]["target"]},
    }
    users.call("POST", users.path("evictions"), eviction, identity="admin")
    webhook.stop()

    def owners(found: Object) -> list[str]:
        return [each["name"] for each in found["metadata"].get("ownerReferences", [])]

    users.delete("evictionrequests", "one")
    users.wait_for("evictions", "pod-1-db-0", lambda found: owners(found) == ["two"])
    # The finalizer foregroundDeletion goes when the Eviction has gone.
    path = users.path("evictionrequests", "two")
    users.call("DELETE", f"{path}?propagationPolicy=Foreground")
    users.wait_until_gone("evictions", "pod-1-db-0")
    users.wait_until_gone("evictionrequests", "two")


def _owner(document: Object) -> Object:
    named = {key: document["metadata"][key] for key in ("name", "uid")}
    kind = {key: document[key] for key in ("apiVersion", "kind")}
    return {**kind, **named, "blockOwnerDeletion": True}


def test_an_eviction_is_stopped_without_the_webhook(
    users: Users, webhook: Usher, tmp_path: Path
) -> None:
    """The budget is closed; what is under way would go on as soon as it opens."""
    pods = {name: users.create_pod(name, labels={"app": "db"}) for name in ("db-0", "db-1")}
    _close_budget(users)
    with running(users.cluster, tmp_path / "controller") as program:
        program.wait_for_lead()
        for name, each in pods.items():
            users.request(each, f"drain-{name}")
            eviction = f"pod-1-{name}"
            users.wait_for("evictions", eviction, lambda e: states(e).get(EVICTOR) == "Active")
        webhook.stop()
        # Nobody may ask meanwhile.
        document = request_for("drain-again", "db-0", pods["db-0"]["metadata"]["uid"])
        refused = users.cluster.api("POST", users.path("evictionrequests"), document)
        assert _AWAY in refused.message

        users.withdraw("drain-db-0")
        users.delete("evictionrequests", "drain-db-1")
        ended = users.wait_for("evictions", "pod-1-db-0", _is_canceled)
        assert states(ended) == {EVICTOR: "Canceled"}

        def stopped() -> bool:
            # The garbage collector may come first: the Eviction goes with its last request.
            found = users.get("evictions", "pod-1-db-1")
            return found is None or _is_canceled(found)

        eventually(stopped, "the other eviction ends as well")
        path = users.path("evictionrequests", "drain-db-0")
        again = {"spec": {"intent": "Eviction"}}
        answer = users.cluster.api("PATCH", path, again, content_type=MERGE_PATCH)
        assert _AWAY in answer.message
    for name in pods:
        left = users.get("pods", name)
        assert left is not None
        assert "deletionTimestamp" not in left["metadata"]


def _is_canceled(eviction: Object) -> bool:
    return "CanceledDueToNoRequesters" in reasons(eviction)


def _close_budget(users: Users) -> None:
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "db"},
        "spec": {"minAvailable": 2, "selector": {"matchLabels": {"app": "db"}}},
    }
    users.call("POST", users.path("poddisruptionbudgets"), budget)
    users.wait_for(
        "poddisruptionbudgets", "db", lambda b: b.get("status", {}).get("currentHealthy") == 2
    )


# --- one webhook for each write -------------------------------------------------------------------


def test_each_write_of_a_request_is_judged_once(users: Users, webhook: Usher) -> None:
    target = users.create_pod("db-0")
    path = users.path("evictionrequests", "drain")

    def patch(change: Object) -> None:
        with _asked(webhook, 1):
            users.patch(path, change)

    with _asked(webhook, 1):
        users.request(target, "drain")
    patch({"metadata": {"labels": {"acme.io/tier": "one"}}})
    patch({"spec": {"intent": "Withdrawn"}})
    patch({"metadata": {"labels": {"acme.io/tier": "two"}}})
    patch({"spec": {"intent": "Eviction"}})
    with _asked(webhook, 1):
        users.call("DELETE", path)


def test_withdrawals_are_judged(users: Users, webhook: Usher) -> None:
    users.request(users.create_pod("db-0"), "drain")
    path = users.path("evictionrequests", "drain")
    change = {"spec": {"intent": "Withdrawn"}}
    answers = (
        users.cluster.api("PATCH", path, change, identity=ONCALL, content_type=MERGE_PATCH),
        users.cluster.api("DELETE", path, identity=ONCALL),
        users.cluster.api("DELETE", users.path("evictionrequests"), identity=ONCALL),
    )
    assert [answer.code for answer in answers] == [403] * 3
    assert all("withdrawals.validate.usher.dev" in answer.message for answer in answers)


def test_a_controller_manager_s_claims_are_judged(users: Users, webhook: Usher) -> None:
    """It collects garbage, and may be the controller of Evictions: that half is judged."""
    manager = "system:kube-controller-manager"
    rbac.grant_everywhere(users.cluster, manager, rbac.EDIT, rbac.WRITE_STATUS)
    document = {
        "apiVersion": "lifecycle.k8s.io/v1alpha1",
        "kind": "Eviction",
        "metadata": {"name": "pod-1-db-0"},
        "spec": {"target": _target(users.create_pod("db-0"))},
    }
    api = partial(users.cluster.api, identity=manager)
    with _asked(webhook, 1):
        assert api("POST", users.path("evictions"), document).ok
    path = users.path("evictions", "pod-1-db-0")
    with _asked(webhook, 1):
        lie = {"type": "TargetEvicted", "status": "True", "reason": "PodDeleted", "message": ""}
        lie["lastTransitionTime"] = "2026-07-01T12:00:00Z"
        body = {"status": {"conditions": [lie]}}
        answer = api("PATCH", f"{path}/status", body, content_type=MERGE_PATCH)
        assert "may not be True while pod" in answer.message
    with _asked(webhook, 0):
        body = {"metadata": {"labels": {"acme.io/tier": "one"}}}
        assert api("PATCH", path, body, content_type=MERGE_PATCH).ok
        assert api("DELETE", path).ok


def _target(document: Object) -> Object:
    return {"pod": {key: document["metadata"][key] for key in ("name", "uid")}}


# --- what pods declare ----------------------------------------------------------------------------


def _pod(name: str, annotations: Any = None, **spec: Any) -> Object:
    document = pod(name, **spec)
    document["metadata"] = {"name": name}
    if annotations is not None:
        document["metadata"]["annotations"] = annotations
    return document


def _create(users: Users, document: Object) -> Answer:
    return users.cluster.create(users.namespace, document)


def _workloads(template: Object) -> Iterator[tuple[str, Object]]:
    """Path of its resource, and the workload, for every kind that has a template of pods."""
    labels = {"app": "web"}
    metadata = {**template["metadata"], "labels": labels}
    once = {
        **template,
        "metadata": metadata,
        "spec": {**template["spec"], "restartPolicy": "Never"},
    }
    always = {"metadata": metadata, "spec": template["spec"]}
    selected = {"selector": {"matchLabels": labels}, "template": always}
    yield "api/v1/podtemplates", {"template": always}
    yield (
        "api/v1/replicationcontrollers",
        {"spec": {"replicas": 0, "selector": labels, "template": always}},
    )
    for kind in ("deployments", "replicasets"):
        yield f"apis/apps/v1/{kind}", {"spec": {"replicas": 0, **selected}}
    yield "apis/apps/v1/daemonsets", {"spec": selected}
    yield "apis/apps/v1/statefulsets", {"spec": {"replicas": 0, "serviceName": "web", **selected}}
    job = {"suspend": True, "template": {key: once[key] for key in ("metadata", "spec")}}
    yield "apis/batch/v1/jobs", {"spec": job}
    yield (
        "apis/batch/v1/cronjobs",
        {"spec": {"schedule": "0 0 1 1 *", "suspend": True, "jobTemplate": {"spec": job}}},
    )


@pytest.mark.parametrize("annotations", [None, {}, {"acme.io/log": "json"}], ids=str)
def test_pods_that_declare_nothing_are_nobody_s_business(
    annotations: Any, users: Users, webhook: Usher
) -> None:
    """Neither their creation, nor their changes, nor what a kubelet writes of them."""
    path = users.path("pods", "web-0")
    with _asked(webhook, 0):
        assert _create(users, _pod("web-0", annotations, nodeName=NODE)).ok
        users.wait_for("pods", "web-0", _runs)
        for change in ({"labels": {"app": "web"}}, {"annotations": {"acme.io/seen": "yes"}}):
            users.patch(path, {"metadata": change})
            users.patch(f"{path}/status", {"metadata": change, "status": {"message": "hello"}})
        for resource, body in _workloads(_pod("web", annotations)):
            _write(users, resource, body)
        users.delete("pods", "web-0")
        users.wait_until_gone("pods", "web-0")


def _runs(found: Object) -> bool:
    return bool(found.get("status", {}).get("phase") == "Running")


def _write(users: Users, resource: str, body: Object) -> Answer:
    """Create a workload, as a trial."""
    prefix, _, plural = resource.rpartition("/")
    path = f"/{prefix}/namespaces/{users.namespace}/{plural}?dryRun=All"
    answer = users.cluster.api("POST", path, {"metadata": {"name": "web"}, **body})
    assert answer.ok or "pods.validate.usher.dev" in answer.message, answer.message
    return answer


def test_a_declaration_is_judged_when_it_is_made_and_when_it_changes(
    users: Users, webhook: Usher
) -> None:
    with _asked(webhook, 1):
        assert _create(users, _pod("web-0", _READABLE, nodeName=NODE)).ok
    path = users.path("pods", "web-0")
    with _asked(webhook, 0):
        users.wait_for("pods", "web-0", _runs)
        for at in (path, f"{path}/status"):
            users.patch(at, {"metadata": {"annotations": {"acme.io/seen": at[-6:]}}})
    for at in (path, f"{path}/status"):
        for text in ("unreadable", "[]", None):
            change = {"metadata": {"annotations": {RESPONDERS_ANNOTATION: text}}}
            with _asked(webhook, 1):
                answer = users.cluster.api("PATCH", at, change, content_type=MERGE_PATCH)
            assert answer.code == 422, (at, text)
            assert "pods.validate.usher.dev" in answer.message
    with _asked(webhook, 0):
        users.delete("pods", "web-0")
        users.wait_until_gone("pods", "web-0")


def test_templates_are_judged_where_they_declare(users: Users, webhook: Usher) -> None:
    for annotations, code in ((_READABLE, 201), (UNREADABLE, 422)):
        for resource, body in _workloads(_pod("web", annotations)):
            with _asked(webhook, 1):
                assert _write(users, resource, body).code == code, resource


def test_a_template_may_change_and_is_judged_anew(users: Users, webhook: Usher) -> None:
    resource, body = next(
        each for each in _workloads(_pod("web", _READABLE)) if "deployments" in each[0]
    )
    prefix, _, plural = resource.rpartition("/")
    path = f"/{prefix}/namespaces/{users.namespace}/{plural}"
    with _asked(webhook, 1):
        users.call("POST", path, {"metadata": {"name": "web"}, **body})

    def annotate(text: str | None) -> Answer:
        template = {"metadata": {"annotations": {RESPONDERS_ANNOTATION: text}}}
        change = {"spec": {"template": template}}
        return users.cluster.api("PATCH", f"{path}/web", change, content_type=MERGE_PATCH)

    with _asked(webhook, 0):
        users.patch(f"{path}/web", {"spec": {"replicas": 0}, "metadata": {"labels": {"a": "b"}}})
    with _asked(webhook, 1):
        assert annotate("unreadable").code == 422
    with _asked(webhook, 1):
        assert annotate(None).ok


def test_the_native_field_is_judged_as_the_annotation(users: Users, webhook: Usher) -> None:
    if not users.cluster.is_native:
        pytest.skip("other API servers drop the field before anybody sees it")
    declared = {"evictionResponders": [{"name": FIRST, "priority": 10_000}]}
    with _asked(webhook, 1):
        assert _create(users, _pod("web-0", **declared)).ok
    with _asked(webhook, 0):
        users.patch(users.path("pods", "web-0"), {"metadata": {"labels": {"app": "web"}}})
    for resource, body in _workloads(_pod("web", **declared)):
        with _asked(webhook, 1):
            assert _write(users, resource, body).ok


@pytest.mark.parametrize("namespace", ["kube-system", NAMESPACE])
def test_pods_of_the_system_and_of_usher_are_spared(
    namespace: str, users: Users, webhook: Usher
) -> None:
    users.cluster.api("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
    with _asked(webhook, 0):
        path = f"/api/v1/namespaces/{namespace}/pods?dryRun=All"
        answer = users.cluster.api("POST", path, _pod("web-0", UNREADABLE))
        assert answer.ok, answer.message


def test_pods_start_without_the_webhook(users: Users, webhook: Usher) -> None:
    webhook.stop()
    assert _create(users, _pod("web-0", _READABLE)).ok
