"""Guards that ask the cluster: what is asked, what is remembered, and what happens in silence."""

import asyncio
import io
import json
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from rules.evaluate import Policy
from rules.facts import LivePod, Permission, PodLookup
from rules.request import User
from rules.rule import Enforcement
from tests.webhook.reviews import POD_UID, creation, encoded, eviction, heartbeat, review
from tests.webhook.running import JSON, Running, Timely, answers, eventually, head, running

RESPONDER = "system:serviceaccount:acme:db"


class FakeCluster(Timely):
    """Answers from attributes, and notes what it was asked."""

    def __init__(self) -> None:
        self.granted: set[str] = set()
        self.pods: dict[str, LivePod] = {}
        self.reviews: list[str] = []
        self.lookups: list[str] = []
        self.lists: list[str] = []
        self.users: list[User] = []
        self.broken = False
        self.answering = threading.Event()
        self.answering.set()

    async def has_permission(self, user: User, permission: Permission, name: str) -> bool:
        self.reviews.append(f"{permission.verb} {name}")
        self.users.append(user)
        await self._come()
        return name in self.granted

    async def find_pod(self, lookup: PodLookup) -> LivePod | None:
        self.lookups.append(lookup.name)
        await self._come()
        return self.pods.get(lookup.name)

    async def list_pods(self, namespace: str) -> Mapping[str, str]:
        self.lists.append(namespace)
        await self._come()
        return {pod.uid: name for name, pod in self.pods.items()}

    async def _come(self) -> None:
        while not self.answering.is_set():  # noqa: ASYNC110 - another thread sets it
            await asyncio.sleep(0.01)
        if self.broken:
            raise ConnectionError("connection refused")


@pytest.fixture
def cluster() -> FakeCluster:
    return FakeCluster()


@pytest.fixture
def site(tmp_path: Path, cluster: FakeCluster) -> Iterator[Running]:
    with running(tmp_path, cluster=cluster) as site:
        yield site


def by(name: str, document: Any, *groups: str) -> Any:
    document["request"]["userInfo"] = {"username": name, "groups": list(groups)}
    return document


def ended() -> Any:
    """A controller ends an eviction, because it saw the pod go."""
    new = eviction()
    new["status"]["conditions"][0] |= {"status": "True", "reason": "PodDeleted"}
    new["status"]["targetResponders"][0]["state"] = "Interrupted"
    kind = ("lifecycle.k8s.io", "v1alpha1", "Eviction")
    document = review("UPDATE", new, eviction(), kind=kind, subresource="status")
    return by("system:kube-controller-manager", document)


@contextmanager
def waiting(site: Running, cluster: FakeCluster, document: Any) -> Iterator[Any]:
    """A request for whose verdict the cluster has not answered yet; yields its future."""
    cluster.answering.clear()
    asked = len(cluster.reviews)
    with ThreadPoolExecutor(1) as pool:
        pending = pool.submit(site.call, document)
        try:
            eventually(lambda: len(cluster.reviews) > asked)
            yield pending
        finally:
            cluster.answering.set()


@pytest.mark.slow
def test_a_granted_permission_is_asked_once(site: Running, cluster: FakeCluster) -> None:
    cluster.granted = {"db.acme.io/failover"}
    for _ in range(1000):
        assert site.call(by(RESPONDER, heartbeat())).response["allowed"]
    # A bound for slow machines: the answer is believed for a minute.
    assert 1 <= len(cluster.reviews) <= 10
    assert set(cluster.reviews) == {"respond db.acme.io/failover"}
    assert site.metric("usher_webhook_facts_total", source="memory") >= 990


def test_the_domain_is_asked_for_where_the_name_is_not_granted(
    site: Running, cluster: FakeCluster
) -> None:
    cluster.granted = {"db.acme.io/*"}
    assert site.call(by(RESPONDER, heartbeat())).response["allowed"]
    assert cluster.reviews == ["respond db.acme.io/failover", "respond db.acme.io/*"]


def test_a_refusal_says_who_and_what_is_missing(site: Running, cluster: FakeCluster) -> None:
    status = site.call(by(RESPONDER, heartbeat())).response["status"]
    assert (status["code"], status["reason"]) == (403, "Forbidden")
    (cause,) = status["details"]["causes"]
    assert RESPONDER in cause["message"]
    assert (
        '{apiGroups: ["lifecycle.k8s.io"], resources: ["evictionresponders"], '
        'resourceNames: ["db.acme.io/failover"], verbs: ["respond"]}' in cause["message"]
    )


def test_callers_are_told_apart(site: Running, cluster: FakeCluster) -> None:
    cluster.granted = {"db.acme.io/failover"}
    document = by(RESPONDER, heartbeat())
    site.call(document)
    document["request"]["userInfo"]["extra"] = {"authentication.kubernetes.io/pod-name": ["db-0"]}
    site.call(document)
    extra = (("authentication.kubernetes.io/pod-name", ("db-0",)),)
    assert cluster.users == [User(RESPONDER), User(RESPONDER, extra=extra)]


def test_the_truth_is_looked_up_every_time(site: Running, cluster: FakeCluster) -> None:
    cluster.pods = {"web-0": LivePod(POD_UID)}
    assert not site.call(ended()).response["allowed"]
    cluster.pods = {}
    assert site.call(ended()).response["allowed"]
    assert cluster.lookups == ["web-0", "web-0"]


def test_a_warning_may_be_some_seconds_old(tmp_path: Path, cluster: FakeCluster) -> None:
    cluster.granted = {"drain.acme.io/node-upgrade"}
    cluster.pods = {"web-0": LivePod(POD_UID, is_daemon=True)}
    policy = Policy(dict.fromkeys(("target-pair", "eviction-right"), Enforcement.OFF))
    with running(tmp_path, cluster=cluster, policy=policy) as site:
        for _ in range(2):
            response = site.call(by("drainer", creation())).response
            assert response["allowed"]
            assert len(response["warnings"]) == 1
    assert cluster.lookups == ["web-0"]
    assert cluster.reviews == ["request drain.acme.io/node-upgrade"]


def test_one_look_at_the_pod_answers_all_guards(site: Running, cluster: FakeCluster) -> None:
    cluster.granted = {"drain.acme.io/node-upgrade", "web-0"}
    cluster.pods = {"web-0": LivePod(POD_UID)}
    assert site.call(by("drainer", creation())).response["allowed"]
    assert cluster.lookups == ["web-0"]
    assert cluster.lists == []
    assert sorted(cluster.reviews) == ["create web-0", "request drain.acme.io/node-upgrade"]


def test_the_right_to_one_pod_is_no_right_to_the_one_with_the_uid(
    tmp_path: Path, cluster: FakeCluster
) -> None:
    cluster.granted = {"drain.acme.io/node-upgrade", "web-0"}
    cluster.pods = {"web-0": LivePod("another"), "db-0": LivePod(POD_UID)}
    policy = Policy({"target-pair": Enforcement.OFF})
    with running(tmp_path, cluster=cluster, policy=policy) as site:
        response = site.call(by("drainer", creation())).response
        assert "may not evict pod 'db-0', whose UID this is," in response["status"]["message"]
        cluster.granted |= {"db-0"}
        assert site.call(by("another drainer", creation())).response["allowed"]
    assert "create web-0" not in cluster.reviews


def test_a_pod_that_lives_under_another_name_is_not_gone(
    site: Running, cluster: FakeCluster
) -> None:
    cluster.pods = {"db-0": LivePod(POD_UID)}
    response = site.call(ended()).response
    assert "pod 'db-0' with UID" in response["status"]["message"]
    assert cluster.lookups == ["web-0", "db-0"]


def test_superusers_are_not_asked_about(site: Running, cluster: FakeCluster) -> None:
    assert site.call(by("admin", heartbeat(), "system:masters")).response["allowed"]
    assert cluster.reviews == []


def test_silence_is_no_verdict(site: Running, cluster: FakeCluster, log: io.StringIO) -> None:
    cluster.broken = True
    reply = site.call(by(RESPONDER, heartbeat()))
    assert reply.status == 500
    assert "Retry-After" not in reply.headers
    lines = [json.loads(line) for line in log.getvalue().splitlines()]
    (line,) = [line for line in lines if line["event"] == "the cluster does not answer"]
    assert line["uid"]
    assert "db.acme.io/failover" in line["error"]
    assert "connection refused" in line["error"]
    assert site.metric("usher_webhook_facts_total", source="failed") == 1
    cluster.broken, cluster.granted = False, {"db.acme.io/failover"}
    assert site.call(by(RESPONDER, heartbeat())).response["allowed"]


def test_a_slow_cluster_is_silent_before_the_caller_gives_up(
    site: Running, cluster: FakeCluster, log: io.StringIO
) -> None:
    cluster.answering.clear()
    reply = site.call(by(RESPONDER, heartbeat()), target="/validate?timeout=1s")
    assert reply.status == 500
    assert '"in time"' in log.getvalue()
    cluster.answering.set()


@pytest.mark.parametrize("deaf", [False, True])
def test_silence_leaves_a_warning_out_and_says_so(
    tmp_path: Path, cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch, *, deaf: bool
) -> None:
    monkeypatch.setattr("cluster.facts.WARNING_SECONDS", 0.1)
    cluster.broken = True
    if deaf:
        cluster.answering.clear()
    policy = Policy(
        {
            "requester-identity": Enforcement.AUDIT,
            "eviction-right": Enforcement.OFF,
            "target-pair": Enforcement.OFF,
        }
    )
    with running(tmp_path, cluster=cluster, policy=policy) as site:
        response = site.call(by("drainer", creation())).response
        assert response == {
            "uid": response["uid"],
            "allowed": True,
            "auditAnnotations": {
                "verdict": "allow",
                "unanswered": "requester-identity,target-exists",
            },
        }
        name = "usher_webhook_guards_unanswered_total"
        assert site.metric(name, rule="target-exists") == 1
        assert site.metric(name, rule="eviction-right") == 0
    assert "create web-0" not in cluster.reviews


@pytest.mark.parametrize(
    ("policy", "groups"),
    [(Policy(audit_only=True), ()), (Policy(break_glass={"breakers"}), ("breakers",))],
    ids=["audit only", "break glass"],
)
def test_who_is_only_audited_is_never_blocked(
    tmp_path: Path, cluster: FakeCluster, policy: Policy, groups: tuple[str, ...]
) -> None:
    with running(tmp_path, cluster=cluster, policy=policy) as site:
        refused = site.call(by("jane", heartbeat(), *groups)).response
        assert refused["allowed"]
        assert "warnings" not in refused
        assert refused["auditAnnotations"]["rules"] == "responder-identity"
        cluster.broken = True
        assert site.call(by("joe", heartbeat(), *groups)).response["allowed"]


def test_the_same_question_is_asked_once_at_a_time(site: Running, cluster: FakeCluster) -> None:
    cluster.granted = {"db.acme.io/failover"}
    cluster.answering.clear()
    with ThreadPoolExecutor(8) as pool:
        pending = [pool.submit(site.call, by(RESPONDER, heartbeat())) for _ in range(8)]
        eventually(lambda: site.metric("usher_webhook_in_flight") == 8)
        cluster.answering.set()
        assert all(reply.result().response["allowed"] for reply in pending)
    assert cluster.reviews == ["respond db.acme.io/failover"]


def test_too_many_that_wait_are_turned_away(tmp_path: Path, cluster: FakeCluster) -> None:
    with (
        running(tmp_path, cluster=cluster, concurrency=1) as site,
        waiting(site, cluster, by(RESPONDER, heartbeat())) as pending,
    ):
        assert site.call(by("jane", heartbeat())).status == 500
        assert site.metric("usher_webhook_shed_total") == 1
        cluster.answering.set()
        assert pending.result().status == 200


def test_who_does_not_wait_for_an_answer_gets_them_all_in_order(
    site: Running, cluster: FakeCluster
) -> None:
    bodies = [encoded(by(RESPONDER, heartbeat(uid=f"uid-{number}"))) for number in range(3)]
    requests = [
        head("POST", "/validate", {**JSON, "Content-Length": str(len(body))}) + body
        for body in bodies
    ]
    cluster.answering.clear()
    with site.connect() as connection:
        connection.sendall(requests[0] + requests[1])
        eventually(lambda: cluster.reviews)
        connection.sendall(requests[2])
        cluster.answering.set()
        replies = answers(connection, len(requests))
        assert [reply.response["uid"] for reply in replies] == ["uid-0", "uid-1", "uid-2"]


def test_who_goes_away_costs_nothing(site: Running, cluster: FakeCluster) -> None:
    body = encoded(by(RESPONDER, heartbeat()))
    cluster.answering.clear()
    with site.connect() as connection:
        connection.sendall(head("POST", "/validate", {**JSON, "Content-Length": str(len(body))}))
        connection.sendall(body)
        eventually(lambda: site.metric("usher_webhook_in_flight") == 1)
    eventually(lambda: site.metric("usher_webhook_in_flight") == 0)
    cluster.answering.set()
    assert site.call(by(RESPONDER, heartbeat())).status == 200


def test_a_drain_waits_for_verdicts(site: Running, cluster: FakeCluster) -> None:
    with waiting(site, cluster, by(RESPONDER, heartbeat())) as pending:
        site.shutdown()
        eventually(lambda: site.health("/readyz").status == 503)
        cluster.answering.set()
        assert pending.result().status == 200


def test_deletions_are_judged(site: Running, cluster: FakeCluster) -> None:
    stored = creation()["request"]["object"]
    document = by("jane", review("DELETE", None, stored))
    status = site.call(document).response["status"]
    assert status["reason"] == "Forbidden"
    assert status["details"]["kind"] == "evictionrequests"  # as NewForbidden has it
    # Deletions of a collection come without a name.
    document["request"]["name"] = ""
    assert (
        'evictionrequests.lifecycle.k8s.io "drain-web-0" is forbidden'
        in (site.call(document).response["status"]["message"])
    )
    cluster.granted = {"drain.acme.io/node-upgrade"}
    assert site.call(by("drainer", document)).response["allowed"]
