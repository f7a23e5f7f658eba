"""Who may write: each attack, first on a cluster without Usher, then with it; honest writers."""

import copy
import json
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from rules.api import RESPONDERS_ANNOTATION
from tests.e2e import rbac
from tests.e2e.api import (
    APPLY,
    JSON,
    JSON_PATCH,
    MERGE_PATCH,
    STRATEGIC_PATCH,
    Answer,
    Object,
)
from tests.e2e.cluster import Cluster, path_of
from tests.e2e.objects import FIRST, REQUESTER, condition, eviction, initial_status, pod, request
from tests.e2e.times import ago
from tests.e2e.usher import WEBHOOK, Registration, registered, running_usher

pytestmark = pytest.mark.e2e

WEBHOOK_USER: Final = "viewer"
CONTROLLER: Final = "controller"
RESPONDER: Final = "responder-a"
DRAINER: Final = "drainer"
INTRUDER: Final = "responder-b"
NOBODY: Final = "00000000-0000-4000-8000-000000000000"
"""A UID that nothing has."""
OTHER: Final = "db-0"
"""A pod that the intruder may evict."""


@pytest.fixture(scope="module")
def guards(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registration]:
    """A webhook that asks this cluster."""
    rbac.grant_everywhere(cluster, WEBHOOK_USER, *rbac.ASK)
    kubeconfig = cluster.plane.kubeconfig(WEBHOOK_USER)
    flags = ("--kubeconfig", str(kubeconfig), "--controllers", CONTROLLER)
    with (
        running_usher(tmp_path_factory.mktemp("guards"), *flags) as usher,
        registered(cluster, "guards", usher.authority, usher.port) as registration,
    ):
        yield registration


class Scene:
    """A namespace with a pod that is being evicted, and people in it."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self.cluster = cluster
        self.namespace = namespace
        self._grant()
        self.uid: str = self._must(cluster.create(namespace, pod()))["metadata"]["uid"]
        self.request = self.aimed(request())
        self._must(cluster.create(namespace, self.request))
        self.eviction = self.aimed(eviction())
        stored = self._must(cluster.create(namespace, self.eviction))
        stored["status"] = initial_status()
        self._must(cluster.replace(namespace, stored, "status"))

    def _grant(self) -> None:
        """Everybody may do here what Kubernetes itself asks for; names are given to the honest."""
        for user, own in (
            (RESPONDER, [rbac.respond(FIRST)]),
            (DRAINER, [rbac.EVICT, rbac.request(REQUESTER)]),
            (
                INTRUDER,
                [
                    rbac.respond("mesh.example.com/*"),
                    rbac.request("jane.acme.io/laptop"),
                    {**rbac.EVICT, "resourceNames": [OTHER]},
                ],
            ),
            (CONTROLLER, []),
        ):
            rbac.grant(self.cluster, self.namespace, user, rbac.WRITE_STATUS, rbac.EDIT, *own)

    def aimed(self, document: Object) -> Object:
        """``document`` with the pod of this scene as its target."""
        document["spec"]["target"]["pod"]["uid"] = self.uid
        return document

    def stored(self, document: Object) -> Object:
        """The object as it is now."""
        return self._must(self.cluster.api("GET", self._path(document)))

    def send(
        self, method: str, document: Object, body: object, user: str, subresource: str = ""
    ) -> Answer:
        """Write to an object; ``method`` is one of :data:`WRITES`."""
        verb, content_type = WRITES[method]
        path = self._path(document, subresource)
        query = f"?fieldManager={user}&force=true" if method == "apply" else ""
        return self.cluster.api(verb, path + query, body, identity=user, content_type=content_type)  # type: ignore[arg-type]

    def must_create(self, document: Object) -> Object:
        """Create what a test needs, as a superuser."""
        return self._must(self.cluster.create(self.namespace, document))

    def create(self, document: Object, user: str) -> Answer:
        path = path_of(document, self.namespace)
        return self.cluster.api("POST", path, document, identity=user)

    def delete(self, document: Object, user: str) -> Answer:
        return self.cluster.api("DELETE", self._path(document), identity=user)

    def _path(self, document: Object, subresource: str = "") -> str:
        return path_of(document, self.namespace, document["metadata"]["name"], subresource)

    @staticmethod
    def _must(answer: Answer) -> Object:
        assert answer.ok, answer.message
        body: Object = answer.body
        return body


WRITES: Final = {
    "put": ("PUT", JSON),
    "merge": ("PATCH", MERGE_PATCH),
    "json": ("PATCH", JSON_PATCH),
    "apply": ("PATCH", APPLY),
    "strategic": ("PATCH", STRATEGIC_PATCH),
}


@pytest.fixture
def scene(cluster: Cluster, guards: Registration) -> Scene:
    return Scene(cluster, guards.new_namespace())


@pytest.fixture
def unguarded(cluster: Cluster) -> Scene:
    """The same where nobody asks Usher."""
    if not cluster.is_native:
        pytest.skip("shows what Kubernetes itself admits; the definitions alone judge less")
    return Scene(cluster, cluster.new_namespace())


@dataclass(frozen=True)
class Change:
    """A change of a stored object: as its new ``status`` or ``spec``, and as what is applied."""

    kind: str
    part: str
    edit: Callable[[Object], None]
    """Changes the part in place."""
    fields: Callable[[Object], Object]
    """The fields that server-side apply has to say, from the changed part."""

    def write(self, scene: Scene, method: str, user: str) -> Answer:
        if method == "strategic" and not scene.cluster.is_native:
            pytest.skip("definitions know no strategic merge patch")
        document = scene.eviction if self.kind == "Eviction" else scene.request
        stored = scene.stored(document)
        changed = copy.deepcopy(stored)
        self.edit(changed[self.part])
        part = changed[self.part]
        body: object = {
            "put": changed,
            "merge": {self.part: part},
            "json": [{"op": "replace", "path": f"/{self.part}", "value": part}],
            "apply": {
                "apiVersion": document["apiVersion"],
                "kind": document["kind"],
                "metadata": {"name": document["metadata"]["name"]},
                self.part: self.fields(part),
            },
            "strategic": {self.part: self.fields(part)},
        }[method]
        subresource = "status" if self.part == "status" else ""
        return scene.send(method, document, body, user, subresource)


def claim_the_end(status: Object) -> None:
    status["conditions"][0] = condition("TargetEvicted", "True", "PodDeleted")
    status["targetResponders"][0]["state"] = "Interrupted"


def finish(status: Object) -> None:
    status["responders"][0]["completionTime"] = ago()


def keep(status: Object) -> None:
    status["responders"][0]["heartbeatTime"] = ago()


def first_report(status: Object) -> Object:
    return {"responders": [status["responders"][0]]}


CLAIM = Change(
    "Eviction",
    "status",
    claim_the_end,
    lambda status: {
        "conditions": [status["conditions"][0]],
        "targetResponders": [status["targetResponders"][0]],
    },
)
FINISH = Change("Eviction", "status", finish, first_report)
KEEP = Change("Eviction", "status", keep, first_report)
WITHDRAW = Change(
    "EvictionRequest",
    "spec",
    lambda spec: spec.update(intent="Withdrawn"),
    lambda spec: spec,
)

ATTACKS: Final = {
    "claiming that a live pod is gone": (
        CLAIM,
        {"status.conditions", "status.targetResponders", "status.conditions[0].status"},
    ),
    "finishing another's responder": (FINISH, {"status.responders[0]"}),
    "keeping another Active": (KEEP, {"status.responders[0]"}),
    "withdrawing a drain": (WITHDRAW, {"spec.requester"}),
}


def forbidden(answer: Answer) -> set[str]:
    """The fields for which Usher has forbidden a write."""
    assert (answer.code, answer.body["reason"]) == (403, "Forbidden"), answer.message
    assert WEBHOOK in answer.message
    assert {reason for reason, _ in answer.causes} == {"FieldValueForbidden"}
    return {field for _, field in answer.causes}


@pytest.mark.parametrize("method", WRITES)
@pytest.mark.parametrize("attack", ATTACKS)
def test_the_hole(unguarded: Scene, attack: str, method: str) -> None:
    change, _ = ATTACKS[attack]
    answer = change.write(unguarded, method, INTRUDER)
    assert answer.ok, answer.message


@pytest.mark.parametrize("method", WRITES)
@pytest.mark.parametrize("attack", ATTACKS)
def test_the_hole_is_closed(scene: Scene, attack: str, method: str) -> None:
    change, fields = ATTACKS[attack]
    assert forbidden(change.write(scene, method, INTRUDER)) == fields


def in_another_name(scene: Scene) -> Object:
    document = scene.aimed(request("forged"))
    document["spec"]["requester"] = "vpa.example.com/resize"
    return document


def test_anybody_asks_in_any_name(unguarded: Scene) -> None:
    assert unguarded.create(in_another_name(unguarded), INTRUDER).ok
    assert unguarded.delete(unguarded.request, INTRUDER).ok


def test_nobody_asks_in_another_s_name(scene: Scene) -> None:
    fields = forbidden(scene.create(in_another_name(scene), INTRUDER))
    assert fields == {"spec.requester", "spec.target.pod"}
    assert forbidden(scene.delete(scene.request, INTRUDER)) == {"spec.requester"}


def test_a_name_alone_is_no_right_to_evict(scene: Scene) -> None:
    document = scene.aimed(request("own"))
    document["spec"]["requester"] = "jane.acme.io/laptop"
    assert forbidden(scene.create(document, INTRUDER)) == {"spec.target.pod"}
    document["spec"]["intent"] = "Withdrawn"
    assert forbidden(scene.create(document, INTRUDER)) == {"spec.target.pod"}


@pytest.mark.parametrize("method", WRITES)
def test_honest_writers(scene: Scene, method: str) -> None:
    for change, user in ((KEEP, RESPONDER), (WITHDRAW, DRAINER), (FINISH, RESPONDER)):
        answer = change.write(scene, method, user)
        assert answer.ok, answer.message
    hand_over = Change(
        "Eviction",
        "status",
        lambda status: (
            status["targetResponders"][0].update(state="Completed"),
            status["targetResponders"][1].update(state="Active"),
            status["responders"][1].update(startTime=ago()),
        )[0],
        lambda status: {
            "targetResponders": status["targetResponders"][:2],
            "responders": [status["responders"][1]],
        },
    )
    answer = hand_over.write(scene, method, CONTROLLER)
    assert answer.ok, answer.message


def test_applying_again_what_is_stored_changes_nothing(scene: Scene) -> None:
    same = Change("Eviction", "status", lambda _: None, lambda status: status)
    answer = same.write(scene, "apply", INTRUDER)
    assert answer.ok, answer.message


def test_the_truth_may_be_told(scene: Scene) -> None:
    assert forbidden(CLAIM.write(scene, "put", CONTROLLER)) == {"status.conditions[0].status"}
    answer = scene.delete({**pod(), "apiVersion": "v1"}, "admin")
    assert answer.ok, answer.message
    answer = CLAIM.write(scene, "put", CONTROLLER)
    assert answer.ok, answer.message


def test_a_name_and_a_uid_of_two_pods_open_no_way(scene: Scene) -> None:
    """A right to one pod, the UID of another: to have it evicted, or to have it declared gone."""
    scene.must_create(pod(OTHER))
    crossed = scene.aimed(request("crossed"))
    crossed["spec"]["requester"] = "jane.acme.io/laptop"
    crossed["spec"]["target"]["pod"]["name"] = OTHER
    for intent in ("Eviction", "Withdrawn"):
        crossed["spec"]["intent"] = intent
        answer = scene.create(crossed, INTRUDER)
        assert answer.code == 422, answer.message
        assert answer.causes == {
            ("FieldValueForbidden", "spec.target.pod"),
            ("FieldValueInvalid", "spec.target.pod.uid"),
        }
        # Whoever may evict both is told which UID the name has.
        answer = scene.create(crossed, "admin")
        assert answer.causes == {("FieldValueInvalid", "spec.target.pod.uid")}
        assert "the UID of the pod that has this name now" in answer.message
    ghost = scene.aimed(request("ghost"))
    ghost["spec"]["target"]["pod"]["name"] = "ghost"
    answer = scene.create(ghost, DRAINER)
    assert answer.causes == {("FieldValueInvalid", "spec.target.pod.name")}
    assert "'web-0', the name of the pod with this UID" in answer.message


def test_nobody_declares_a_pod_gone_that_lives_under_another_name(scene: Scene) -> None:
    document = scene.aimed(eviction("e1"))
    document["spec"]["target"]["pod"]["name"] = "ghost"
    for user in (INTRUDER, CONTROLLER, "admin"):
        answer = scene.create(document, user)
        assert ("FieldValueInvalid", "spec.target.pod.name") in answer.causes, answer.message
    scene.cluster.etcd.put("evictions", _stored(document, scene.namespace))
    stored = scene.stored(document)
    stored["status"] = initial_status()
    assert scene.send("put", document, stored, CONTROLLER, "status").ok
    scene.eviction = document
    answer = CLAIM.write(scene, "put", CONTROLLER)
    assert forbidden(answer) == {"status.conditions[0].status"}
    assert "pod 'web-0' with UID" in answer.message


def _stored(document: Object, namespace: str) -> Object:
    meta = {"uid": NOBODY, "creationTimestamp": ago(), "namespace": namespace}
    return {**document, "metadata": {**document["metadata"], **meta}}


OWNED: Final[Object] = {
    "metadata": {
        "ownerReferences": [
            {"apiVersion": "v1", "kind": "ConfigMap", "name": "gone", "uid": NOBODY}
        ]
    }
}
HELD: Final[Object] = {"metadata": {"finalizers": ["acme.io/hold"]}}


@pytest.mark.parametrize(("body", "fields"), [(OWNED, "ownerReferences"), (HELD, "finalizers")])
def test_nobody_else_says_when_an_object_is_deleted(
    scene: Scene, body: Object, fields: str
) -> None:
    answer = scene.send("merge", scene.request, body, INTRUDER)
    assert forbidden(answer) == {"spec.requester"}
    assert "may not change intent, owner references or finalizers" in answer.message
    answer = scene.send("merge", scene.eviction, body, INTRUDER)
    assert forbidden(answer) == {f"metadata.{fields}"}
    for user, document in ((DRAINER, scene.request), (CONTROLLER, scene.eviction)):
        answer = scene.send("merge", document, body, user)
        assert answer.ok, answer.message


def test_evictions_come_and_go_with_controllers_only(scene: Scene) -> None:
    for user in (INTRUDER, DRAINER, RESPONDER):
        for name in ("mine", "pod-999999999999999999-web-0"):
            answer = scene.create(scene.aimed(eviction(name)), user)
            assert forbidden(answer) == {"metadata.name"}
            assert "create an EvictionRequest" in answer.message
        assert forbidden(scene.delete(scene.eviction, user)) == {"metadata.name"}
    path = path_of(scene.eviction, scene.namespace)
    everything = scene.cluster.api("DELETE", path, identity=INTRUDER)
    assert forbidden(everything) == {"metadata.name"}
    assert scene.stored(scene.eviction)["status"]["responders"]
    answer = scene.delete(scene.eviction, CONTROLLER)
    assert answer.ok, answer.message
    answer = scene.create(scene.aimed(eviction("pod-2-web-0")), CONTROLLER)
    assert answer.ok, answer.message


def test_requests_come_and_go_with_the_right_names(scene: Scene) -> None:
    document = scene.aimed(request("another"))
    del document["metadata"]["name"]
    document["metadata"]["generateName"] = "another-"
    created = scene.create(document, DRAINER)
    assert created.ok, created.message
    answer = scene.delete(created.body, DRAINER)
    assert answer.ok, answer.message


def test_targets_that_do_not_exist_are_warned_about(scene: Scene) -> None:
    document = request("lost")
    document["spec"]["target"]["pod"] = {"name": "web-9", "uid": NOBODY}
    answer = scene.create(document, DRAINER)
    assert answer.ok, answer.message
    assert any("spec.target.pod.name" in warning for warning in answer.warnings)


def test_what_has_lost_its_owner_can_be_collected(scene: Scene) -> None:
    collector = "system:kube-controller-manager"
    rbac.grant(scene.cluster, scene.namespace, collector, rbac.EDIT)
    document = scene.aimed(request("held", finalizers=["acme.io/hold"]))
    assert scene.create(document, DRAINER).ok
    answer = scene.delete(document, collector)
    assert answer.ok, answer.message
    # Whoever holds it lets it go, whatever the name on it.
    free = {"metadata": {"finalizers": None}}
    answer = scene.send("merge", document, free, INTRUDER)
    assert answer.ok, answer.message


def test_kubectl_prints_who_what_and_the_way_out(scene: Scene) -> None:
    changed = scene.stored(scene.eviction)
    changed["status"]["responders"][0]["message"] = "mine"
    result = scene.cluster.plane.kubectl(
        *("-n", scene.namespace, "replace", "--subresource=status", "-f", "-"),
        identity=INTRUDER,
        stdin=json.dumps(changed),
    )
    assert result.returncode != 0
    assert f"'{INTRUDER}' may not respond as '{FIRST}'" in result.stderr
    assert (
        '{apiGroups: ["lifecycle.k8s.io"], resources: ["evictionresponders"], '
        f'resourceNames: ["{FIRST}"], verbs: ["respond"]}}' in result.stderr
    )


def test_audit_sees_all_and_stops_nobody(cluster: Cluster, tmp_path: Path) -> None:
    flags = ("--kubeconfig", str(cluster.plane.kubeconfig(WEBHOOK_USER)))
    audit = ("--enforce", "responder-identity=audit")
    rbac.grant_everywhere(cluster, WEBHOOK_USER, *rbac.ASK)
    with (
        running_usher(tmp_path, *flags, *audit) as usher,
        registered(cluster, "audit", usher.authority, usher.port) as registration,
    ):
        scene = Scene(cluster, registration.new_namespace())
        answer = KEEP.write(scene, "put", INTRUDER)
        assert answer.ok, answer.message
        assert answer.warnings == ()
        (line,) = [line for line in usher.log() if line["event"] == "audited"]
        assert (line["rules"], line["user"]) == (["responder-identity"], INTRUDER)
    noted = [
        event["annotations"].get(f"{WEBHOOK}/rules")
        for event in cluster.plane.audit_events()
        if event["user"]["username"] == INTRUDER
        and event.get("objectRef", {}).get("namespace") == scene.namespace
        and "annotations" in event
    ]
    assert "responder-identity" in noted


@contextmanager
def deaf() -> Iterator[int]:
    """A port whose callers are never answered."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


@contextmanager
def closed() -> Iterator[int]:
    """A port where nobody listens."""
    with deaf() as port:
        pass
    yield port


@pytest.mark.parametrize("policy", ["Fail", "Ignore"])
@pytest.mark.parametrize("silence", [deaf, closed])
def test_in_silence_the_failure_policy_decides(
    cluster: Cluster, tmp_path: Path, policy: str, silence: Callable[[], Iterator[int]]
) -> None:
    with silence() as port:  # type: ignore[attr-defined]
        document = json.loads(cluster.plane.kubeconfig(WEBHOOK_USER).read_text())
        document["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{port}"
        kubeconfig = tmp_path / "kubeconfig"
        kubeconfig.write_text(json.dumps(document))
        # Without the time it is not ready. Without that guard the objects can be made at all.
        flags = ("--kubeconfig", str(kubeconfig), "--enforce", "target-pair=off")
        with (
            running_usher(tmp_path / "usher", *flags, readiness=False) as usher,
            registered(cluster, "silence", usher.authority, usher.port, policy) as registration,
        ):
            scene = Scene(cluster, registration.new_namespace())
            answer = KEEP.write(scene, "put", RESPONDER)
            assert answer.ok is (policy == "Ignore"), answer.message
            if policy == "Fail":
                assert answer.code == 500
            events = [line["event"] for line in usher.log()]
            assert "the cluster does not answer" in events
            # What needs no answer goes on.
            annotated = pod("other", annotation="[]")
            assert RESPONDERS_ANNOTATION in annotated["metadata"]["annotations"]
            assert cluster.create(scene.namespace, annotated).ok
