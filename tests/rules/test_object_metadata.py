"""Metadata that an API server would refuse before any webhook sees it."""

from typing import Any

import pytest

from rules.decode import SHAPES, decode_object
from rules.evaluate import evaluate
from rules.request import Operation, Request
from rules.times import parse_time
from tests.cases import NOW, change, load_cases

SHAPE = SHAPES["lifecycle.k8s.io", "v1alpha1", "EvictionRequest"]
BASE = next(case for case in load_cases() if case.rule == "enum-values").object
STORED = change(BASE, {"metadata.uid": "u-1", "metadata.finalizers": ["acme.io/cleanup"]})
DELETED = change(STORED, {"metadata.deletionTimestamp": NOW, "metadata.labels": {"a b": "c"}})


def fields(new: dict[str, Any], old: dict[str, Any] | None, subresource: str = "") -> list[str]:
    request = Request(
        operation=Operation.UPDATE if old else Operation.CREATE,
        subresource=subresource,
        object=decode_object(SHAPE, new),
        old_object=decode_object(SHAPE, old) if old else None,
        now=parse_time(NOW),
    )
    return [f"{v.error.type.value[10:]} {v.error.field}" for v in evaluate(request).denied]


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        ({"metadata.namespace": "Team"}, ["Invalid metadata.namespace"]),
        ({"metadata.namespace": "a.b"}, ["Invalid metadata.namespace"]),
        ({"metadata.generateName": "a/b"}, ["Invalid metadata.generateName"]),
        ({"metadata.annotations": {"a": "x" * 262_144}}, ["TooLong metadata.annotations"]),
        ({"metadata.finalizers": ["orphan", "foregroundDeletion"]},
         ["Invalid metadata.finalizers"]),
        (
            {"metadata.ownerReferences": [
                {"apiVersion": "v1", "kind": "Node", "name": name, "uid": name, "controller": True}
                for name in ("a", "b")
            ]},
            ["Invalid metadata.ownerReferences"],
        ),
    ],
)  # fmt: skip
def test_create(changes: dict[str, Any], wanted: list[str]) -> None:
    assert fields(change(BASE, changes), None) == wanted


@pytest.mark.parametrize("subresource", ["", "status"])
@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        ({"metadata.name": "other"}, ["Invalid metadata.name"]),
        ({"metadata.name": "a%b"}, ["Invalid metadata.name", "Invalid metadata.name"]),
        ({"metadata.name": ""}, ["Required metadata.name", "Invalid metadata.name"]),
        ({"metadata.namespace": "other"}, ["Invalid metadata.namespace"]),
        ({"metadata.uid": "u-2"}, ["Invalid metadata.uid"]),
        ({"metadata.uid": ""}, []),
        ({"metadata.generateName": "a%"}, ["Invalid metadata.generateName"]),
    ],
)
def test_update(changes: dict[str, Any], wanted: list[str], subresource: str) -> None:
    assert fields(change(STORED, changes), STORED, subresource) == wanted


def test_a_finalizer_can_always_be_removed_from_an_object_that_is_being_deleted() -> None:
    assert fields(change(DELETED, {"metadata.finalizers": []}), DELETED) == []
    added = change(DELETED, {"metadata.finalizers": ["acme.io/cleanup", "acme.io/more"]})
    assert fields(added, DELETED) == ["Forbidden metadata.finalizers"]
