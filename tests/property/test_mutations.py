"""What holds of every mutation, whatever the object, the policies and the cluster."""

import copy
import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rules.api import MAX_POD_RESPONDERS, MAX_REQUESTERS
from rules.decode import DecodeError, decode_responders
from rules.evaluate import evaluate
from rules.facts import Facts, LivePod
from rules.mutate import MUTATIONS, MutationPolicy
from rules.mutation import Mode
from rules.patch import render
from rules.request import Request
from tests.property.test_decode import DOCUMENTS
from tests.rules.json_patch import apply_patch
from tests.rules.revising import ANNOTATION, UID, Json, facts, policy, read, request, revise
from tests.vectors import BUILT_IN_ONLY

pytestmark = pytest.mark.slow

NAMES = st.sampled_from([f"{chr(97 + number)}.acme.io/x" for number in range(14)])
ENTRIES = st.lists(
    st.builds(
        lambda name, priority, extra: {"name": name, "priority": priority, **extra},
        NAMES,
        st.integers(1000, 100_000) | st.integers(0, 999),
        st.just({}) | st.just({"x-unknown": [1]}),
    ),
    max_size=11,
)
LABELS = st.dictionaries(st.sampled_from(["app", "tier"]), st.sampled_from(["", "a", "b"]))
SELECTORS = st.builds(lambda labels: {"matchLabels": labels}, LABELS)
SETTINGS = st.builds(MutationPolicy, st.just(frozenset(MUTATIONS)), st.sampled_from(Mode))


@st.composite
def pods(draw: st.DrawFn) -> Json:
    """Return a pod, lawful or not, with fields that nobody knows."""
    metadata: Json = {"name": "db-0", "labels": draw(LABELS), "managedFields": [{"manager": "x"}]}
    spec: Json = {"containers": [{"name": "db", "x": {"~/": 1}}]}
    if draw(st.booleans()):
        spec["evictionResponders"] = draw(ENTRIES)
    annotations: dict[str, str] = draw(st.dictionaries(st.sampled_from(["a/b", "c~d"]), st.text()))
    if draw(st.booleans()):
        annotations[ANNOTATION] = draw(ENTRIES.map(json.dumps) | st.just("?"))
    if annotations or draw(st.booleans()):
        metadata["annotations"] = annotations
    if draw(st.integers(0, 9)) == 0:
        spec["schedulingGroup"] = {"podGroupName": "g"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "x": 1}


@st.composite
def clusters(draw: st.DrawFn) -> Facts:
    """Return what a cluster with up to six policies answers."""
    policies = []
    for number in range(draw(st.integers(0, 6))):
        spec = {"responders": draw(ENTRIES), "podSelector": draw(SELECTORS)}
        if draw(st.booleans()):
            spec["namespaceSelector"] = draw(SELECTORS)
        policies.append(policy(f"p{number}", **spec))
    return facts(*policies, labels=draw(LABELS), native=draw(st.booleans()))


def create(pod: Json, known: Facts, how: MutationPolicy) -> Json:
    document = read(pod)
    before = json.dumps(document)
    revision = revise(request("Pod", document), document, known, how)
    assert json.dumps(document) == before
    assert bool(revision.steps) is bool(revision.made)
    changed: Json = apply_patch(pod, render(revision.steps))
    return changed


def is_lawful(asked: Request) -> bool:
    return evaluate(asked, BUILT_IN_ONLY).allowed


def lists(pod: Json) -> list[list[Any]]:
    """Return both lists of a pod's responders; an unreadable annotation has none."""
    text = pod["metadata"].get("annotations", {}).get(ANNOTATION, "[]")
    annotated = json.loads(text) if text != "?" else []
    return [pod["spec"].get("evictionResponders", []), annotated]


@given(pods(), clusters(), SETTINGS)
def test_registering_twice_is_registering_once(
    pod: Json, known: Facts, how: MutationPolicy
) -> None:
    once = create(pod, known, how)
    assert create(once, known, how) == once


@given(pods(), clusters(), SETTINGS)
def test_a_lawful_pod_stays_lawful(pod: Json, known: Facts, how: MutationPolicy) -> None:
    created = create(pod, known, how)
    if is_lawful(request("Pod", read(pod))):
        assert is_lawful(request("Pod", read(created)))


@given(pods(), clusters(), SETTINGS)
def test_nothing_but_one_list_changes_and_it_only_grows(
    pod: Json, known: Facts, how: MutationPolicy
) -> None:
    created = create(pod, known, how)
    native, annotated = lists(pod)
    own = native or annotated
    grown = [(old, new) for old, new in zip(lists(pod), lists(created), strict=True) if old != new]
    assert len(grown) <= 1
    for _, new in grown:
        assert new[: len(own)] == own
        assert len(own) < len(new) <= MAX_POD_RESPONDERS
        assert "schedulingGroup" not in pod["spec"]
    for each in (old := copy.deepcopy(pod), created):
        each["spec"].pop("evictionResponders", None)
        annotations = each["metadata"].setdefault("annotations", {})
        annotations.pop(ANNOTATION, None)
    assert created == old


@given(pods(), clusters())
def test_both_carriers_get_the_same_list(pod: Json, known: Facts) -> None:
    native = create(pod, known, MutationPolicy(mode=Mode.NATIVE))
    crd = create(pod, known, MutationPolicy(mode=Mode.CRD))
    if native != pod and not lists(pod)[0]:
        text = crd["metadata"]["annotations"][ANNOTATION]
        assert json.loads(text) == native["spec"]["evictionResponders"]
        assert decode_responders(text)


@given(st.lists(st.sampled_from(["Eviction", "Withdrawn", "", "?"]), max_size=130))
def test_trimming_keeps_whoever_wants_the_eviction(intents: list[str]) -> None:
    document = {
        "metadata": {"name": "e"},
        "status": {
            "requesters": [
                {"name": f"r{number}.acme.io/x", "intent": intent, "x": number}
                for number, intent in enumerate(intents)
            ],
            "x": 1,
        },
    }

    def write(new: Json) -> Json:
        asked = request("Eviction", new, {"metadata": {"name": "e"}}, subresource="status")
        changed: Json = apply_patch(new, render(revise(asked, new).steps))
        return changed

    trimmed = write(document)
    assert write(trimmed) == trimmed
    kept = trimmed["status"].pop("requesters")
    withdrawn = intents.count("Withdrawn")
    assert len(kept) == max(min(len(intents), MAX_REQUESTERS), len(intents) - withdrawn)
    written = document["status"].pop("requesters")
    gone = [entry for entry in written if entry not in kept]
    assert kept == [entry for entry in written if entry in kept]
    firsts = [entry for entry in written if entry["intent"] == "Withdrawn"]
    assert gone == firsts[: len(gone)]
    assert trimmed == document


@given(st.sampled_from(["EvictionRequest", "Eviction", "Pod", "ResponderPolicy"]), DOCUMENTS)
def test_any_document_that_can_be_read_can_be_revised(kind: str, document: Json) -> None:
    known = facts(policy("a", ("acme.io/x", 1000)), pods={"x": LivePod(UID)})
    for old, subresource in ((None, ""), ({}, ""), ({}, "status")):
        with suppress(DecodeError):  # any other exception is a fault
            value = read(document)
            asked = request(kind, value, old, subresource=subresource)
            changed = apply_patch(value, render(revise(asked, value, known).steps))
            again = request(kind, changed, old, subresource=subresource)
            assert revise(again, changed, known).steps == ()
