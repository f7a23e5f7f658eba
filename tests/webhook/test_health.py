"""What the kubelet and Prometheus see."""

import socket
import threading
from datetime import timedelta
from pathlib import Path

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from certs.issue import issue_authority, issue_serving
from cluster.failures import Unreachable
from rules.catalog import GUARDS
from rules.evaluate import Policy
from rules.rule import Enforcement
from tests.patience import PATIENCE
from tests.webhook.reviews import creation, eviction, eviction_request, heartbeat, pod, review
from tests.webhook.running import (
    HOST,
    JSON,
    NAMES,
    Running,
    StoppedTime,
    Timely,
    answer,
    eventually,
    running,
    today,
    write_pair,
)
from webhook.health import Health, SelfCheck, Status
from webhook.settings import Settings
from webhook.tls import ServingCertificate

REQUESTS = "usher_webhook_requests_total"


@pytest.mark.parametrize("path", ["/livez", "/readyz", "/livez?verbose", "/readyz?x=1"])
def test_a_sound_server_is_live_and_ready(site: Running, path: str) -> None:
    reply = site.health(path)
    assert (reply.status, reply.body) == (200, b"ok\n")
    assert "Server" not in reply.headers


def test_a_head_has_no_body(site: Running) -> None:
    with socket.create_connection((HOST, site.health_port), timeout=PATIENCE) as connection:
        connection.sendall(
            b"HEAD /livez HTTP/1.1\r\nHost: x\r\n\r\nGET /livez HTTP/1.1\r\nHost: x\r\n\r\n"
        )
        assert answer(connection, "HEAD").headers["Content-Length"] == "3"


@pytest.mark.parametrize("path", ["/", "/healthz", "/validate", "/metrics/", "/livez/x"])
def test_nothing_else_is_served_there(site: Running, path: str) -> None:
    assert site.health(path).status == 404


def test_probes_are_get(site: Running) -> None:
    reply = site.health("/livez", "POST")
    assert reply.status == 405
    assert reply.headers["Allow"] == "GET,HEAD"


@pytest.mark.parametrize(
    "data", [b"\x16\x03\x01" + b"\x00" * 300, b"GET /livez\r\n\r\n", b"\xff" * 99]
)
def test_garbage_on_the_health_port_is_a_400(site: Running, data: bytes) -> None:
    with socket.create_connection((HOST, site.health_port), timeout=PATIENCE) as connection:
        connection.sendall(data)
        assert answer(connection).status == 400


@pytest.mark.parametrize("operation", ["CREATE", "UPDATE", "DELETE"])
def test_requests_are_counted_by_what_they_were(tmp_path: Path, operation: str) -> None:
    new = eviction_request() if operation != "DELETE" else None
    old = eviction_request() if operation != "CREATE" else None
    with running(tmp_path) as site:
        site.call(review(operation, new, old, dryRun=True))
        labels = {
            "operation": operation,
            "resource": "evictionrequests",
            "subresource": "",
            "decision": "allow",
            "dry_run": "true",
        }
        assert site.metric(REQUESTS, **labels) == 1
        assert site.metric("usher_webhook_request_duration_seconds_count", **labels) == 1
        assert site.metric("usher_webhook_request_duration_seconds_bucket", le="+Inf") == 1
        assert site.metric("usher_webhook_request_duration_seconds_sum") > 0


def test_decisions_and_broken_rules_are_counted(tmp_path: Path) -> None:
    kind = ("lifecycle.k8s.io", "v1alpha1", "Eviction")
    soon = review(
        "UPDATE", eviction("2026-07-01T12:00:00Z"), eviction("2026-07-01T11:59:55Z"),
        kind=kind, subresource="status",
    )  # fmt: skip
    with running(tmp_path) as site:
        site.call(soon)
        site.call(review("CREATE", eviction_request(intent="x", requester="y")))
        site.call(review("CREATE", pod(), kind=("", "v1", "Pod")))
        site.call(review("CREATE", {}, kind=("acme.io", "v1", "Widget"), subresource="made-up"))
        site.call(data=b"{}")
        site.call(data=b"{}", method="GET")
        site.call(data=b"{}", target="/")
        site.call(data=b"{}", headers={})
        for decision, resource, subresource in (
            ("warn", "evictions", "status"),
            ("deny", "evictionrequests", ""),
            ("allow", "pods", ""),
            ("allow", "other", "other"),
        ):
            labels = {"decision": decision, "resource": resource, "subresource": subresource}
            assert site.metric(REQUESTS, **labels) == 1
        assert site.metric(REQUESTS, decision="error", resource="", operation="") == 4
        for code in ("400", "404", "405", "415"):
            assert site.metric("usher_webhook_errors_total", code=code) == 1
        assert site.metric(REQUESTS) == 8
        violations = "usher_webhook_violations_total"
        assert site.metric(violations, rule="heartbeat-spacing", enforcement="warn") == 1
        assert site.metric(violations, enforcement="deny") == 2


def test_in_audit_mode_nothing_is_denied_and_all_is_counted(tmp_path: Path) -> None:
    with running(tmp_path, policy=Policy(audit_only=True)) as site:
        response = site.call(review("CREATE", eviction_request(intent="x"))).response
        assert response["allowed"] is True
        assert "warnings" not in response
        assert response["auditAnnotations"]["verdict"] == "allow"
        assert '"audit"' in response["auditAnnotations"]["violations"]
        assert site.metric(REQUESTS, decision="allow") == 1
        assert site.metric("usher_webhook_violations_total", enforcement="audit") == 1


@pytest.mark.parametrize("enforcement", list(Enforcement))
def test_guards_are_enforced_as_the_policy_says(tmp_path: Path, enforcement: Enforcement) -> None:
    kind = ("lifecycle.k8s.io", "v1alpha1", "Eviction")
    policy = Policy(dict.fromkeys(GUARDS, enforcement))
    soon = review(
        "UPDATE", eviction("2026-07-01T12:00:00Z"), eviction("2026-07-01T11:59:55Z"),
        kind=kind, subresource="status",
    )  # fmt: skip
    with running(tmp_path, policy=policy) as site:
        response = site.call(soon).response
        assert response["allowed"] is (enforcement != Enforcement.DENY)
        assert ("warnings" in response) is (enforcement == Enforcement.WARN)
        assert ("rules" in response["auditAnnotations"]) is (enforcement != Enforcement.OFF)
        if enforcement == Enforcement.DENY:
            assert response["status"]["code"] in (403, 422)


@pytest.mark.parametrize("accept", ["", "text/plain", "application/openmetrics-text"])
def test_metrics_are_written_in_the_format_that_was_asked(site: Running, accept: str) -> None:
    site.call(heartbeat())
    reply = site.health("/metrics", Accept=accept)
    assert reply.status == 200
    assert b"usher_webhook_requests_total" in reply.body
    if "openmetrics" in accept:
        assert reply.headers["Content-Type"].startswith("application/openmetrics-text")
        families = list(text_string_to_metric_families(reply.body.decode()))
        assert all(family.name.startswith(("usher_", "process_")) for family in families)
        assert all(family.documentation for family in families)
    else:
        assert reply.headers["Content-Type"].startswith("text/plain")


@pytest.mark.parametrize(
    "accept", ["application/openmetrics-text;version=x", "text/plain;version=.", ",;=", "\xff"]
)
def test_a_strange_wish_is_no_trouble(site: Running, accept: str) -> None:
    assert site.health("/metrics", Accept=accept).status == 200


def test_labels_hold_nothing_that_a_caller_chose(site: Running) -> None:
    site.call(creation(uid="SECRET", name="SECRET", namespace="SECRET", subresource="SECRET"))
    site.call(review("CREATE", {}, kind=("SECRET", "SECRET", "SECRET"), resource="SECRET"))
    assert b"SECRET" not in site.health("/metrics").body


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (Status(), "has not started"),
        (Status(is_serving=True), "does not know the API server's time yet"),
        (Status(is_serving=True, knows_time=True, is_draining=True), "shutting down"),
    ],
)
async def test_a_server_that_is_not_ready_says_why(
    tmp_path: Path, status: Status, reason: str
) -> None:
    write_pair(tmp_path, issue_serving(issue_authority(today()), NAMES, today()))
    certificate = ServingCertificate(
        Settings(certificate=tmp_path / "tls.crt", key=tmp_path / "tls.key")
    )
    check = SelfCheck(certificate, (HOST, 1))
    health = Health(status, certificate, today, check)
    assert await health.not_ready() == [reason]


def test_figures_of_the_process_are_shown(site: Running) -> None:
    assert site.metric("process_resident_memory_bytes") > 0
    assert site.metric("usher_build_info") == 1


def test_a_half_read_answer_is_no_trouble(site: Running) -> None:
    for _ in range(10):
        with socket.create_connection((HOST, site.health_port), timeout=PATIENCE) as connection:
            connection.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n" * 20)
    assert eventually(lambda: site.health("/livez").status == 200)
    assert site.call(creation(), headers=JSON).status == 200


class Ignorant(Timely):
    """A cluster that does not tell the time before it is to."""

    def __init__(self) -> None:
        self.tells = threading.Event()
        self.time = IgnorantTime(self.tells)
        self.clock_ahead = timedelta(seconds=-61)

    async def ask_time(self) -> None:
        if not self.tells.is_set():
            raise Unreachable("connection refused")


class IgnorantTime(StoppedTime):
    def __init__(self, tells: threading.Event) -> None:
        self._tells = tells

    @property
    def is_known(self) -> bool:  # type: ignore[override]
        return self._tells.is_set()


def test_who_does_not_know_the_time_is_not_ready(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("webhook.app.TIME_AGAIN_SECONDS", 0.01)
    cluster = Ignorant()
    with running(tmp_path, cluster=cluster, ready=503) as site:  # type: ignore[arg-type]
        eventually(
            lambda: b"does not know the API server's time yet" in site.health("/readyz").body
        )
        assert site.health("/livez").status == 200
        cluster.tells.set()
        eventually(lambda: site.health("/readyz").status == 200)
        assert site.metric("usher_webhook_clock_ahead_seconds") == -61
        cluster.tells.clear()  # whoever knew it once counts on
        assert site.health("/readyz").status == 200
