"""Pods: the annotation in every mode, the native field where there is one."""

import json

import pytest

from rules.api import EVICTOR, RESPONDERS_ANNOTATION
from tests.e2e.api import MERGE_PATCH, Object
from tests.e2e.cluster import Cluster, path_of
from tests.e2e.objects import FIRST, SECOND, pod
from tests.e2e.usher import WEBHOOK

pytestmark = pytest.mark.e2e

ANNOTATION = f"metadata.annotations[{RESPONDERS_ANNOTATION}]"
RESPONDERS = [{"name": FIRST, "priority": 10_000}, {"name": SECOND, "priority": 5000}]


def annotated(*responders: Object) -> Object:
    return pod(annotation=json.dumps(responders))


def test_a_pod_registers_responders(cluster: Cluster, namespace: str) -> None:
    answer = cluster.create(namespace, annotated(*RESPONDERS))
    assert answer.ok, answer.message
    assert answer.warnings == ()


def test_a_pod_without_responders_is_none_of_our_business(cluster: Cluster, namespace: str) -> None:
    assert cluster.create(namespace, pod()).ok


@pytest.mark.parametrize(
    ("responders", "causes"),
    [
        ([{"name": FIRST, "priority": 999}], {("FieldValueInvalid", f"{ANNOTATION}[0].priority")}),
        ([{"name": EVICTOR, "priority": 1000}], {("FieldValueInvalid", f"{ANNOTATION}[0].name")}),
        ([RESPONDERS[0], RESPONDERS[0]], {("FieldValueDuplicate", f"{ANNOTATION}[1]")}),
        ([{"name": FIRST}], {("FieldValueRequired", f"{ANNOTATION}[0].priority")}),
    ],
    ids=["band", "domain", "twice", "priority"],
)
def test_the_annotation_is_judged_like_the_field(
    responders: list[Object], causes: set[tuple[str, str]], cluster: Cluster, namespace: str
) -> None:
    answer = cluster.create(namespace, annotated(*responders))
    assert WEBHOOK in answer.message
    assert answer.causes == causes


def test_kubectl_says_what_an_unreadable_annotation_lacks(cluster: Cluster, namespace: str) -> None:
    document = pod(annotation=FIRST)
    result = cluster.kubectl(namespace, "create", "-f", "-", document=document)
    assert f"{ANNOTATION}: Invalid value" in result.stderr
    assert "must be a JSON list" in result.stderr


def test_responders_are_fixed_and_the_rest_is_not(cluster: Cluster, namespace: str) -> None:
    assert cluster.create(namespace, annotated(*RESPONDERS)).ok
    path = path_of(pod(), namespace, "web-0")

    def patch(metadata: Object) -> set[tuple[str, str]]:
        body = {"metadata": metadata}
        answer = cluster.api("PATCH", path, body, content_type=MERGE_PATCH)
        return set() if answer.ok else answer.causes

    assert patch({"labels": {"app": "web"}}) == set()
    fewer = json.dumps(RESPONDERS[:1])
    assert patch({"annotations": {RESPONDERS_ANNOTATION: fewer}}) == {
        ("FieldValueInvalid", ANNOTATION)
    }


def test_a_status_write_of_a_pod_may_not_change_its_responders(
    cluster: Cluster, namespace: str
) -> None:
    assert cluster.create(namespace, annotated(*RESPONDERS)).ok
    path = path_of(pod(), namespace, "web-0", "status")

    def patch(body: Object) -> set[tuple[str, str]]:
        answer = cluster.api("PATCH", path, body, content_type=MERGE_PATCH)
        assert answer.ok or WEBHOOK in answer.message
        return set() if answer.ok else answer.causes

    assert patch({"status": {"phase": "Running"}}) == set()
    for text in (json.dumps(RESPONDERS[:1]), "unreadable", None):
        annotations = {RESPONDERS_ANNOTATION: text}
        assert patch({"metadata": {"annotations": annotations}}) == {
            ("FieldValueInvalid", ANNOTATION)
        }
    assert patch({"metadata": {"annotations": {"acme.io/seen": "true"}}}) == set()


def test_the_native_field(cluster: Cluster, namespace: str) -> None:
    if not cluster.is_native:
        pytest.skip("other API servers drop the field before anybody sees it")
    answer = cluster.create(namespace, pod(evictionResponders=RESPONDERS))
    assert answer.ok, answer.message
    assert answer.body["spec"]["evictionResponders"] == RESPONDERS
    bad = pod("web-1", evictionResponders=[{"name": FIRST, "priority": 999}])
    answer = cluster.create(namespace, bad)
    assert WEBHOOK not in answer.message
    assert answer.causes == {("FieldValueInvalid", "spec.evictionResponders[0].priority")}


def test_the_field_is_dropped_where_it_does_not_exist(cluster: Cluster, namespace: str) -> None:
    if cluster.is_native:
        pytest.skip("natively the field exists")
    answer = cluster.create(namespace, pod(evictionResponders=RESPONDERS))
    assert answer.ok, answer.message
    assert "evictionResponders" not in answer.body["spec"]
