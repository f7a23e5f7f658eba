"""The webhook goes away: for a moment, by a restart, or for good."""

import json
from pathlib import Path

import pytest

from tests.e2e.api import MERGE_PATCH, Object
from tests.e2e.cluster import Cluster, path_of
from tests.e2e.load import load
from tests.e2e.objects import condition, eviction, initial_status, pod, request
from tests.e2e.service import running_service
from tests.e2e.test_writes import finished_at_once
from tests.e2e.usher import WEBHOOK, Usher, registered, running_usher
from tests.e2e.waiting import eventually

pytestmark = pytest.mark.e2e

DRAIN = ("--drain-seconds", "2")


def test_without_the_webhook_writes_fail_clearly(cluster: Cluster, tmp_path: Path) -> None:
    with (
        running_usher(tmp_path) as usher,
        registered(cluster, "gone-fail", usher.authority, usher.port) as registration,
    ):
        namespace = registration.new_namespace()
        assert cluster.create(namespace, eviction()).ok
        usher.stop()
        answer = cluster.create(namespace, request())
        assert answer.code == 500
        assert f'failed calling webhook "{WEBHOOK}"' in answer.message
        path = path_of(eviction(), namespace, "pod-1-web-0", "status")
        body = {"status": initial_status()}
        assert cluster.api("PATCH", path, body, content_type=MERGE_PATCH).code == 500
        result = cluster.kubectl(namespace, "create", "-f", "-", document=pod())
        assert result.returncode != 0
        assert f'failed calling webhook "{WEBHOOK}"' in result.stderr
        # Reading never depends on it.
        assert cluster.kubectl(namespace, "get", "evictions").returncode == 0


def test_with_ignore_writes_pass_and_the_basic_rules_hold(cluster: Cluster, tmp_path: Path) -> None:
    with (
        running_usher(tmp_path) as usher,
        registered(
            cluster, "gone-ignore", usher.authority, usher.port, failure_policy="Ignore"
        ) as registration,
    ):
        namespace = registration.new_namespace()
        usher.stop()
        assert cluster.create(namespace, pod(annotation="unreadable")).ok
        assert cluster.create(namespace, eviction()).ok
        assert cluster.create(namespace, request()).ok
        hold_basic_rules(cluster, namespace)


def hold_basic_rules(cluster: Cluster, namespace: str) -> None:
    """Refusals by the definitions' CEL rules, natively by the API server itself."""
    path = path_of(eviction(), namespace, "pod-1-web-0")

    def patch(body: Object, subresource: str = "") -> set[str]:
        answer = cluster.api("PATCH", f"{path}{subresource}", body, content_type=MERGE_PATCH)
        return set() if answer.ok else {field for _, field in answer.causes}

    def patch_status(**status: object) -> set[str]:
        return patch({"status": status}, "/status")

    assert patch({"spec": {"target": {"pod": {"name": "other"}}}}) == {"spec.target"}

    status = initial_status()
    two = json.loads(json.dumps(status))
    two["targetResponders"][1]["state"] = "Active"
    two["responders"][1]["startTime"] = two["responders"][0]["startTime"]
    refused = patch_status(**two)
    assert refused
    assert all(field.startswith("status.targetResponders") for field in refused)
    assert patch_status(**status) == set()

    status["targetResponders"][0]["priority"] = 20_000
    assert "status.targetResponders[0].priority" in patch_status(**status)
    status["targetResponders"][0]["priority"] = 10_000
    assert patch_status(observedGeneration=None) == {"status.observedGeneration"}

    status["targetResponders"][0]["state"] = "Canceled"
    status["conditions"] = [condition("Failed", "True", "CanceledDueToNoRequesters")]
    assert patch_status(**status) == set()
    status["conditions"] = [condition("Failed", "False", "AwaitingEviction")]
    assert "status.conditions" in patch_status(**status)


def test_what_only_the_webhook_knows_passes_without_it(cluster: Cluster, tmp_path: Path) -> None:
    with (
        running_usher(tmp_path) as usher,
        registered(
            cluster, "gone-guard", usher.authority, usher.port, failure_policy="Ignore"
        ) as registration,
    ):
        namespace = registration.new_namespace()
        assert cluster.create(namespace, eviction()).ok
        path = path_of(eviction(), namespace, "pod-1-web-0", "status")
        body = {"status": finished_at_once()}
        refused = cluster.api("PATCH", path, body, content_type=MERGE_PATCH)
        # A decision, not a failure: Ignore does not override it.
        assert refused.code == 422
        usher.stop()
        body = {"status": finished_at_once()}
        assert cluster.api("PATCH", path, body, content_type=MERGE_PATCH).ok


def test_a_new_instance_takes_over_without_a_failed_write(cluster: Cluster, tmp_path: Path) -> None:
    with (
        running_service() as service,
        running_usher(tmp_path / "old", *DRAIN) as old,
        registered(cluster, "rolling", old.authority, service.port) as registration,
    ):
        service.backend = old.port
        namespace = registration.new_namespace()
        with (
            running_usher(tmp_path / "new", *DRAIN, authority=old.authority) as new,
            load(cluster, namespace) as writes,
        ):
            writes.go_on()
            old.terminate()
            # The order of a cluster: the process is told to go, then its endpoint goes.
            eventually(lambda: not old.is_ready(), "the old one asks for no more calls")
            service.backend = new.port
            eventually(old.has_ended, "the old one has ended")
            writes.go_on()
            # Whoever refuses the probe now is the new one.
            assert registration.judges(namespace)
            eventually(lambda: any_line(new, namespace), "the new one has judged")
        assert writes.failures == []


def any_line(usher: Usher, namespace: str) -> bool:
    return any(line.get("namespace") == namespace for line in usher.log())
