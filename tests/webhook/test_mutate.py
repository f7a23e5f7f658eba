"""``/mutate`` over HTTP: what comes back, what is asked, and what happens where nobody answers."""

import asyncio
import base64
import io
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from rules.facts import LivePod, Permission, PodLookup
from rules.mutation import Mode
from rules.request import User
from tests.rules.json_patch import apply_patch
from tests.rules.revising import ANNOTATION, policy
from tests.webhook.mutation import Mutator
from tests.webhook.reviews import (
    POD_UID,
    UID,
    Json,
    creation,
    eviction,
    eviction_request,
    pod,
    review,
)
from tests.webhook.running import Answer, Running, Timely, running
from tests.webhook.test_hostile import BAD_BODIES

POD = ("", "v1", "Pod")
EVICTION = ("lifecycle.k8s.io", "v1alpha1", "Eviction")
ENTRY = {"name": "db.acme.io/failover", "priority": 10000}
NAMELESS = {"pod": {"name": "web-0"}}


@dataclass
class FakeCluster(Timely):
    """A cluster with the pod web-0 and whatever policies a test gives it."""

    policies: dict[str, list[Json]] = field(default_factory=dict)
    """By namespace; "" for those of the cluster."""
    labels: dict[str, str] = field(default_factory=dict)
    native: bool = False
    silent: bool = False
    slow: bool = False
    asked: list[str] = field(default_factory=list)

    async def _ask(self, what: str) -> None:
        self.asked.append(what)
        if self.slow:
            await asyncio.sleep(60)
        if self.silent:
            raise ConnectionError("refused")

    async def has_permission(self, user: User, permission: Permission, name: str) -> bool:
        raise AssertionError(f"no mutation asks whether {user} has {permission} on {name}")

    async def find_pod(self, lookup: PodLookup) -> LivePod | None:
        await self._ask(f"pod {lookup.namespace}/{lookup.name}")
        return LivePod(POD_UID) if lookup.name == "web-0" else None

    async def list_pods(self, namespace: str) -> Mapping[str, str]:
        await self._ask(f"pods {namespace}")
        return {POD_UID: "web-0"}

    async def list_policies(self, namespace: str) -> list[Json]:
        await self._ask(f"policies {namespace}".rstrip())
        return self.policies.get(namespace, [])

    async def find_labels(self, namespace: str) -> Mapping[str, str]:
        await self._ask(f"labels {namespace}")
        return self.labels

    async def has_native_responders(self) -> bool:
        await self._ask("native")
        return self.native


@pytest.fixture(scope="module")
def shared() -> FakeCluster:
    return FakeCluster()


@pytest.fixture
def cluster(shared: FakeCluster) -> FakeCluster:
    """Return the cluster, empty again."""
    shared.__init__()  # type: ignore[misc]
    return shared


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, shared: FakeCluster) -> Iterator[Running]:
    """A server that forgets at once, in front of the cluster."""
    with pytest.MonkeyPatch.context() as patch:
        for memory in ("POLICY_SECONDS", "MODE_SECONDS"):
            patch.setattr(f"cluster.facts.{memory}", 0)
        with running(tmp_path_factory.mktemp("site"), cluster=shared) as site:
            yield site


def mutate(site: Running, call: Json, **how: Any) -> Answer:
    return site.call(call, target="/mutate?timeout=10s", **how)


def changed(site: Running, call: Json) -> Json:
    """Return the object of ``call`` as an API server changes it."""
    response = mutate(site, call).response
    assert response["allowed"] is True
    assert response["uid"] == UID
    assert response["patchType"] == "JSONPatch"
    patch = base64.b64decode(response["patch"], validate=True)
    document: Json = apply_patch(call["request"]["object"], patch)
    return document


def nameless(**changes: Any) -> Json:
    return review("CREATE", eviction_request(target=NAMELESS), **changes)


def new_pod(document: Json | None = None, **changes: Any) -> Json:
    return review("CREATE", document or pod(), kind=POD, **changes)


def crowded() -> Json:
    new = eviction()
    new["status"]["requesters"] = [
        {"name": f"r{number}.acme.io/x", "intent": "Withdrawn"} for number in range(101)
    ]
    return review("UPDATE", new, eviction(), kind=EVICTION, subresource="status")


# What comes back


def test_a_change_is_a_patch(site: Running, cluster: FakeCluster) -> None:
    answer = mutate(site, nameless())
    assert answer.status == 200
    assert answer.headers["Content-Type"] == "application/json"
    body = json.loads(answer.body)
    patch = base64.b64decode(body["response"].pop("patch"), validate=True)
    assert json.loads(patch) == [{"op": "add", "path": "/spec/target/pod/uid", "value": POD_UID}]
    assert body == {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "response": {
            "uid": UID,
            "allowed": True,
            "patchType": "JSONPatch",
            "auditAnnotations": {
                "mutations": "fill-target-uid",
                "changes": f"spec.target.pod.uid: {POD_UID}",
            },
        },
    }


@pytest.mark.parametrize(
    "call",
    [
        creation(),
        review("UPDATE", eviction_request(target=NAMELESS), eviction_request()),
        review("DELETE", None, eviction_request()),
        review("CONNECT", None, None),
        review("CREATE", eviction_request(target={"pod": {"name": "no-such-pod"}})),
        review("CREATE", pod(), kind=POD),
        review("UPDATE", pod(), pod(), kind=POD),
        review("CREATE", pod(), kind=POD, subresource="status"),
        review("CREATE", {"spec": 7}, kind=("acme.io", "v1", "Widget")),
        review("CREATE", {"spec": 7}, kind=("policy", "v1", "Eviction"), resource="pods"),
        review("CREATE", policy(), kind=("usher.dev", "v1alpha1", "ResponderPolicy")),
        review("CREATE", {"spec": {"template": pod()}}, kind=("apps", "v1", "Deployment")),
    ],
)
def test_without_a_change_there_is_neither_patch_nor_type(
    site: Running, cluster: FakeCluster, call: Json
) -> None:
    answer = mutate(site, call)
    assert answer.status == 200
    assert answer.response == {"uid": UID, "allowed": True}


def test_what_is_filled_in_is_admitted(site: Running, cluster: FakeCluster) -> None:
    call = nameless()
    call["request"]["userInfo"]["groups"] = ["system:masters"]
    assert site.call(call).response["allowed"] is False
    call["request"]["object"] = changed(site, call)
    assert site.call(call).response["allowed"] is True


def test_the_second_call_changes_nothing(site: Running, cluster: FakeCluster) -> None:
    cluster.policies["default"] = [policy("a", ("db.acme.io/failover", 10000))]
    for call in (nameless(), crowded(), new_pod()):
        call["request"]["object"] = changed(site, call)
        call["request"]["uid"] = "another"
        assert mutate(site, call).response == {"uid": "another", "allowed": True}


def test_requesters_are_trimmed(site: Running, cluster: FakeCluster) -> None:
    call = crowded()
    document = changed(site, call)
    assert document["status"]["requesters"] == call["request"]["object"]["status"]["requesters"][1:]
    assert cluster.asked == []


@pytest.mark.parametrize("name", ["web-0", ""])
def test_a_name_that_is_yet_to_be_generated_is_no_obstacle(
    site: Running, cluster: FakeCluster, name: str
) -> None:
    document = eviction_request(target=NAMELESS)
    document["metadata"] = {"generateName": "drain-", "namespace": "default"}
    call = review("CREATE", document, name=name or None)
    assert changed(site, call)["spec"]["target"]["pod"]["uid"] == POD_UID


def test_dry_runs_get_the_same_answer(site: Running, cluster: FakeCluster) -> None:
    dry, real = mutate(site, nameless(dryRun=True)), mutate(site, nameless())
    assert dry.body == real.body
    assert cluster.asked == ["pod default/web-0"] * 2


def test_nulls_are_absent(site: Running, cluster: FakeCluster) -> None:
    cluster.policies["default"] = [policy("a", ("db.acme.io/failover", 10000))]
    document = {"apiVersion": "v1", "kind": "Pod", "metadata": {"annotations": None}, "spec": {}}
    found = changed(site, new_pod(document))
    assert json.loads(found["metadata"]["annotations"][ANNOTATION]) == [ENTRY]


# Policies


@pytest.mark.parametrize("native", [True, False])
def test_where_responders_go_is_asked(site: Running, cluster: FakeCluster, *, native: bool) -> None:
    cluster.native = native
    cluster.policies["default"] = [policy("a", ("db.acme.io/failover", 10000))]
    document = changed(site, new_pod())
    assert (document["spec"].get("evictionResponders") == [ENTRY]) is native
    assert ("annotations" in document["metadata"]) is not native
    assert sorted(cluster.asked) == ["labels default", "native", "policies", "policies default"]


def test_where_responders_go_can_be_said(tmp_path: Path, cluster: FakeCluster) -> None:
    cluster.policies[""] = [policy("a", ("db.acme.io/failover", 10000), namespaceSelector={})]
    with running(tmp_path, cluster=cluster, mode=Mode.NATIVE) as site:
        assert changed(site, new_pod())["spec"]["evictionResponders"] == [ENTRY]
    assert "native" not in cluster.asked


def test_policies_apply_to_the_namespaces_that_they_select(
    site: Running, cluster: FakeCluster
) -> None:
    selector = {"matchLabels": {"team": "data"}}
    cluster.policies[""] = [policy("a", ("db.acme.io/failover", 10000), namespaceSelector=selector)]
    assert "patch" not in mutate(site, new_pod()).response
    cluster.labels = {"team": "data"}
    assert mutate(site, new_pod()).response["auditAnnotations"] == {
        "mutations": "register-responders",
        "changes": f"{ANNOTATION}: db.acme.io/failover (ClusterResponderPolicy a)",
    }


def test_answers_are_remembered_for_a_while(
    tmp_path: Path, cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    for memory in ("POLICY_SECONDS", "MODE_SECONDS"):
        monkeypatch.setattr(f"cluster.facts.{memory}", 3600)
    cluster.policies["default"] = [policy("a", ("db.acme.io/failover", 10000))]
    with running(tmp_path, cluster=cluster) as site:
        first = changed(site, new_pod())
        for _ in range(3):
            assert changed(site, new_pod()) == first
        assert len(cluster.asked) == 4
        assert site.metric("usher_webhook_facts_total", source="memory") == 12
        for _ in range(2):  # but never the pod whose UID is filled in
            changed(site, nameless())
    assert cluster.asked[4:] == ["pod default/web-0"] * 2


def test_a_policy_that_nobody_admits_is_no_policy(site: Running, cluster: FakeCluster) -> None:
    cluster.policies["default"] = [policy("a", ("x", 1)), {"spec": []}, 7]  # type: ignore[list-item]
    assert mutate(site, new_pod()).response == {"uid": UID, "allowed": True}


# Where nobody answers


@pytest.mark.parametrize("call", [nameless(), new_pod()])
def test_without_an_answer_there_is_no_half_of_a_change(
    site: Running, cluster: FakeCluster, log: io.StringIO, call: Json
) -> None:
    cluster.silent = True
    before = site.metric("usher_webhook_errors_total", code="500")
    answer = mutate(site, call)
    assert answer.status == 500
    assert answer.body.startswith(b"the cluster gave no answer")
    assert "Retry-After" not in answer.headers
    (line,) = map(json.loads, log.getvalue().splitlines())
    assert (line["event"], line["uid"]) == ("the cluster does not answer", UID)
    assert line["error"].endswith("?: refused")
    assert site.metric("usher_webhook_errors_total", code="500") == before + 1


def test_an_answer_that_comes_too_late_is_none(site: Running, cluster: FakeCluster) -> None:
    cluster.slow = True
    answer = site.call(nameless(), target="/mutate?timeout=600ms")
    assert answer.status == 500


def test_what_needs_no_cluster_goes_on_without_one(site: Running, cluster: FakeCluster) -> None:
    cluster.silent = True
    assert len(changed(site, crowded())["status"]["requesters"]) == 100


def test_offline_the_others_are_left_out(tmp_path: Path) -> None:
    with running(tmp_path) as site:
        for call, name in ((nameless(), "fill-target-uid"), (new_pod(), "register-responders")):
            response = mutate(site, call).response
            assert response == {
                "uid": UID,
                "allowed": True,
                "auditAnnotations": {"unanswered": name},
            }
            assert site.metric("usher_webhook_guards_unanswered_total", rule=name) == 1
        assert "patch" in mutate(site, crowded()).response


def test_what_is_off_is_not_done(tmp_path: Path, cluster: FakeCluster) -> None:
    with running(tmp_path, cluster=cluster, mutations=frozenset()) as site:
        for call in (nameless(), crowded(), new_pod()):
            assert mutate(site, call).response == {"uid": UID, "allowed": True}
    assert cluster.asked == []


@pytest.mark.parametrize("place", [{"namespace": "../.."}, {"namespace": ""}, {}])
def test_no_url_is_made_of_what_is_no_name(
    site: Running, cluster: FakeCluster, place: Json
) -> None:
    name = "web-0" if place else "../../../../api/v1/nodes/x"
    document = eviction_request(target={"pod": {"name": name, "uid": POD_UID}})
    call = review("CREATE", document, userInfo={"username": "x", "groups": ["system:masters"]})
    call["request"] |= place
    assert site.call(call).status == 200  # the guard target-exists asks, too
    assert mutate(site, call).response == {"uid": UID, "allowed": True}
    assert cluster.asked == []


# Beside it


def test_changes_are_counted_and_logged(
    site: Running, cluster: FakeCluster, log: io.StringIO
) -> None:
    labels = {"webhook": "mutating", "resource": "evictionrequests", "operation": "CREATE"}

    def counted(decision: str) -> float:
        return site.metric("usher_webhook_requests_total", decision=decision, **labels)

    made = site.metric("usher_webhook_mutations_total", mutation="fill-target-uid")
    before = counted("mutate"), counted("allow")
    mutate(site, nameless())
    mutate(site, creation())
    assert (counted("mutate"), counted("allow")) == (before[0] + 1, before[1] + 1)
    assert site.metric("usher_webhook_mutations_total", mutation="fill-target-uid") == made + 1
    (line,) = map(json.loads, log.getvalue().splitlines())
    assert line.pop("timestamp")
    assert line == {
        "event": "mutated",
        "level": "info",
        "mutations": ["fill-target-uid"],
        "changes": [f"spec.target.pod.uid: {POD_UID}"],
        "uid": UID,
        "user": "jane",
        "operation": "CREATE",
        "group": "lifecycle.k8s.io",
        "resource": "evictionrequests",
        "subresource": "",
        "namespace": "default",
        "name": "drain-web-0",
        "dry_run": False,
    }


def test_a_failure_of_ours_is_a_500(
    site: Running, log: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("webhook.endpoints.Draft", None)
    answer = mutate(site, creation())
    assert (answer.status, answer.body) == (500, b"internal error; see the log\n")
    assert json.loads(log.getvalue())["uid"] == UID
    log.truncate(0)  # the only traceback that a test may see


def test_endless_notes_are_cut(site: Running, cluster: FakeCluster) -> None:
    call = crowded()
    for requester in call["request"]["object"]["status"]["requesters"]:
        requester["name"] = "\x1b😀" * 4000
    annotations = mutate(site, call).response["auditAnnotations"]
    assert len(annotations["changes"].encode()) <= 10 * 1024
    assert annotations["changes"].endswith("…")
    assert "\x1b" not in annotations["changes"]


# Hostile input: as on /validate


@pytest.mark.parametrize("body", BAD_BODIES.values(), ids=BAD_BODIES)
def test_a_bad_body_is_a_400(site: Running, body: bytes) -> None:
    answer = site.call(data=body, target="/mutate")
    assert answer.status == 400
    assert answer.headers["Content-Type"] == "text/plain; charset=utf-8"
    assert answer.body.decode().removesuffix("\n").isprintable()


def test_other_methods_media_and_sizes_are_refused(site: Running) -> None:
    assert site.call(data=b"", target="/mutate", method="GET").status == 405
    assert site.call(creation(), target="/mutate", headers={}).status == 415
    assert site.call(data=b" " * 8 * 1024 * 1024, target="/mutate").status == 413


@pytest.mark.parametrize("start", range(0, 400, 100))
def test_any_mutation_of_a_review_is_answered(
    site: Running, cluster: FakeCluster, start: int
) -> None:
    cluster.policies["default"] = [policy("a", ("db.acme.io/failover", 10000))]
    for seed in range(start, start + 100):
        answer = site.call(data=Mutator(seed).body(), target="/mutate")
        assert answer.status in (200, 400), seed
        if answer.status == 200:
            assert {"patch", "patchType"} & answer.response.keys() in (
                set(),
                {"patch", "patchType"},
            )
