"""Each mutation: what it changes, what it leaves alone, what it asks."""

import importlib
import json
import pkgutil
import re
from typing import Any

import pytest

import rules.mutations
from rules.facts import (
    CLUSTER_POLICIES,
    NATIVE_RESPONDERS,
    Facts,
    LivePod,
    NamespaceLabels,
    PodLookup,
    Policies,
    Question,
)
from rules.mutate import MUTATIONS, Draft, MutationPolicy
from rules.mutation import Mode, Mutation
from rules.patch import Step
from tests.cases import change, load_cases
from tests.rules.revising import (
    ANNOTATION,
    CRD,
    NAMESPACE,
    NATIVE,
    UID,
    Json,
    facts,
    policy,
    read,
    request,
    revise,
    revised_pod,
)

BY_ID = {case.id: case for case in load_cases()}
REQUEST = BY_ID["target-exists: a pod that runs"].object
EVICTION = BY_ID["heartbeat-spacing: five seconds apart"].object
POD: Json = {"metadata": {"name": "db-0", "labels": {"app": "db"}}, "spec": {"containers": []}}
FAILOVER = ("db.acme.io/failover", 10000)
DRAIN = ("mesh.example.com/drain", 5000)
FAILOVER_ENTRY = {"name": FAILOVER[0], "priority": FAILOVER[1]}
DRAIN_ENTRY = {"name": DRAIN[0], "priority": DRAIN[1]}


def entries(pod: Json) -> Any:
    return pod["spec"].get("evictionResponders")


# The catalogue


@pytest.mark.parametrize(
    "name", [module.name for module in pkgutil.iter_modules(rules.mutations.__path__)]
)
def test_every_module_is_listed_under_its_own_name(name: str) -> None:
    mutation: Mutation[Any] = importlib.import_module(f"rules.mutations.{name}").MUTATION
    assert mutation.name == name.replace("_", "-")
    assert MUTATIONS[mutation.name] is mutation
    for section in ("Why:", "Source:", "Before:", "After:"):
        assert re.search(rf"^{section} ", mutation.doc, re.MULTILINE)


@pytest.mark.parametrize("name", MUTATIONS)
def test_each_can_be_turned_off(name: str) -> None:
    off = MutationPolicy(on=frozenset(MUTATIONS) - {name})
    asked, document = due(name)
    assert Draft(asked, document).questions() or Draft(asked, document).revision().steps
    assert Draft(asked, document, off).questions() == {}
    assert Draft(asked, document, off).revision().steps == ()


def due(name: str) -> tuple[Any, Json]:
    """Return a request on which the mutation acts, and its document."""
    if name == "fill-target-uid":
        document = nameless()
        return request("EvictionRequest", document), document
    if name == "trim-requesters":
        document = crowded(*["Withdrawn"] * 101)
        return request("Eviction", document, EVICTION, subresource="status"), document
    return request("Pod", POD), POD


@pytest.mark.parametrize("namespace", ["", "..", "a/b", "A"])
@pytest.mark.parametrize("name", MUTATIONS)
def test_what_no_namespace_can_hold_is_left_alone(name: str, namespace: str) -> None:
    asked, document = due(name)
    draft = Draft(asked._replace(namespace=namespace), document)
    assert (draft.questions(), draft.revision().steps) == ({}, ())


# fill-target-uid


def nameless(**changes: Any) -> Json:
    return change(REQUEST, changes.get("set", {}), changes.get("unset", ["spec.target.pod.uid"]))


def test_a_missing_uid_is_that_of_the_pod_that_lives() -> None:
    document = nameless()
    revision = revise(
        request("EvictionRequest", document), document, facts(pods={"web-0": LivePod(UID)})
    )
    assert revision.steps == (Step("/spec/target/pod/uid", UID),)
    assert [made.mutation for made in revision.made] == ["fill-target-uid"]
    assert UID in revision.made[0].note


def test_an_empty_uid_is_a_missing_one() -> None:
    document = nameless(set={"spec.target.pod.uid": ""}, unset=[])
    known = facts(pods={"web-0": LivePod(UID)})
    assert revise(request("EvictionRequest", document), document, known).steps


def test_where_there_is_no_such_pod_nothing_is_filled_in() -> None:
    document = nameless()
    assert revise(request("EvictionRequest", document), document).steps == ()


@pytest.mark.parametrize(
    "document",
    [
        REQUEST,
        nameless(set={"spec.target.pod.uid": "x"}, unset=[]),  # wrong, but not missing
        nameless(unset=["spec.target"]),
        nameless(unset=["spec"]),
        nameless(set={"spec.target.pod": {}}, unset=[]),
        nameless(set={"spec.target.pod": {"name": "../secrets"}}, unset=[]),
    ],
)
def test_nothing_is_asked_where_no_uid_is_to_be_filled_in(document: Json) -> None:
    draft = Draft(request("EvictionRequest", document), document)
    assert draft.questions() == {}
    assert draft.revision().steps == ()


def test_the_uid_of_a_stored_request_stays_as_it_is() -> None:
    document = nameless()
    draft = Draft(request("EvictionRequest", document, REQUEST), document)
    assert draft.questions() == {}
    assert draft.revision().steps == ()


def test_the_pod_must_be_looked_up() -> None:
    document = nameless()
    draft = Draft(request("EvictionRequest", document), document)
    assert draft.questions() == {PodLookup(NAMESPACE, "web-0"): True}
    assert draft.revision().unanswered == ("fill-target-uid",)


# trim-requesters


def crowded(*intents: str) -> Json:
    requesters = [
        {"name": f"r{number}.acme.io/drain", "intent": intent, "x-unknown": number}
        for number, intent in enumerate(intents)
    ]
    return change(EVICTION, {"status.requesters": requesters})


def trimmed(document: Json, old: Json = EVICTION) -> list[int] | None:
    """Return which requesters stay, None for no change."""
    asked = request("Eviction", document, old, subresource="status")
    steps = revise(asked, document).steps
    if not steps:
        return None
    (step,) = steps
    assert step.path == "/status/requesters"
    return [entry["x-unknown"] for entry in step.value]


WANTING, WITHDRAWN = "Eviction", "Withdrawn"


def test_the_first_withdrawn_ones_go_first() -> None:
    crowd = [WITHDRAWN, WANTING, WITHDRAWN, WANTING, *[WANTING] * 96, WITHDRAWN, WITHDRAWN]
    assert trimmed(crowded(*crowd)) == [1, *range(3, 102)]


def test_whoever_wants_the_eviction_is_never_dropped() -> None:
    crowd = [WANTING] * 101
    assert trimmed(crowded(*crowd)) is None
    assert trimmed(crowded(*crowd, WITHDRAWN)) == list(range(101))  # validation refuses these


@pytest.mark.parametrize("count", [0, 1, 100])
def test_what_fits_stays(count: int) -> None:
    assert trimmed(crowded(*[WITHDRAWN] * count)) is None


def test_a_list_that_does_not_change_stays() -> None:
    stored = crowded(*[WITHDRAWN] * 101)
    assert trimmed(change(stored, {"status.observedGeneration": 2}), stored) is None


def test_writes_of_the_main_resource_keep_their_status() -> None:
    document = crowded(*[WITHDRAWN] * 101)
    assert Draft(request("Eviction", document, EVICTION), document).revision().steps == ()


def test_the_dropped_ones_are_named() -> None:
    document = crowded(WITHDRAWN, *[WANTING] * 100)
    asked = request("Eviction", document, EVICTION, subresource="status")
    (made,) = revise(asked, document).made
    assert made.note == "status.requesters: dropped r0.acme.io/drain"


# register-responders


def test_natively_the_field_gets_the_responders() -> None:
    pod = revised_pod(POD, facts(policy("a", FAILOVER, DRAIN)), NATIVE)
    assert entries(pod) == [FAILOVER_ENTRY, DRAIN_ENTRY]
    assert "annotations" not in pod["metadata"]


def test_elsewhere_the_annotation_gets_them() -> None:
    pod = revised_pod(POD, facts(policy("a", FAILOVER)), CRD)
    assert json.loads(pod["metadata"]["annotations"][ANNOTATION]) == [FAILOVER_ENTRY]
    assert entries(pod) is None


@pytest.mark.parametrize("native", [True, False])
def test_where_they_go_can_be_asked(*, native: bool) -> None:
    pod = revised_pod(POD, facts(policy("a", FAILOVER), native=native), MutationPolicy())
    assert (entries(pod) is not None) is native
    assert ("annotations" in pod["metadata"]) is not native


def test_other_annotations_stay() -> None:
    annotated = change(POD, {"metadata.annotations": {"acme.io/x": "y"}})
    pod = revised_pod(annotated, facts(policy("a", FAILOVER)), CRD)
    assert pod["metadata"]["annotations"].keys() == {"acme.io/x", ANNOTATION}


def test_a_pod_that_has_the_field_keeps_to_it() -> None:
    own = change(POD, {"spec.evictionResponders": [DRAIN_ENTRY]})
    for how in (NATIVE, CRD, MutationPolicy()):
        assert entries(revised_pod(own, facts(policy("a", FAILOVER)), how)) == [
            DRAIN_ENTRY,
            FAILOVER_ENTRY,
        ]


def test_what_the_annotation_says_counts_natively_too() -> None:
    own = change(POD, {"metadata.annotations": {ANNOTATION: json.dumps([DRAIN_ENTRY])}})
    pod = revised_pod(own, facts(policy("a", FAILOVER)), NATIVE)
    assert entries(pod) == [DRAIN_ENTRY, FAILOVER_ENTRY]
    assert pod["metadata"] == own["metadata"]


@pytest.mark.parametrize("how", [NATIVE, CRD])
def test_the_pod_s_own_entries_win(how: MutationPolicy) -> None:
    own = [{"name": FAILOVER[0], "priority": 20000, "x-unknown": 1}]
    text = {"metadata.annotations": {ANNOTATION: json.dumps(own)}}
    field = {"spec.evictionResponders": own}
    pod = revised_pod(
        change(POD, field if how == NATIVE else text), facts(policy("a", FAILOVER, DRAIN)), how
    )
    found = (
        entries(pod) if how == NATIVE else json.loads(pod["metadata"]["annotations"][ANNOTATION])
    )
    assert found == [*own, DRAIN_ENTRY]


@pytest.mark.parametrize("how", [NATIVE, CRD])
def test_what_few_can_write_is_kept(how: MutationPolicy) -> None:
    own = [{"name": DRAIN[0], "priority": 5000, "x": [-(2**64) + 1, 2**64 - 1, 1e300, "\x7f😀"]}]
    text = {"metadata.annotations": {ANNOTATION: json.dumps(own)}}
    for where in (text, {"spec.evictionResponders": own}):
        pod = revised_pod(change(POD, where), facts(policy("a", FAILOVER)), how)
        found = entries(pod) or json.loads(pod["metadata"]["annotations"][ANNOTATION])
        assert found == [*own, FAILOVER_ENTRY]


def test_a_pod_that_has_them_all_stays_as_it_is() -> None:
    own = change(POD, {"spec.evictionResponders": [{"name": FAILOVER[0], "priority": 1000}]})
    assert revised_pod(own, facts(policy("a", FAILOVER))) == own


def test_the_more_specific_policy_wins_and_then_the_name() -> None:
    name = FAILOVER[0]
    known = facts(
        policy("a", (name, 1000), ("acme.io/cluster", 1000), namespaceSelector={}),
        policy("c", (name, 3000), ("acme.io/c", 1000)),
        policy("b", (name, 2000), ("acme.io/b", 1000)),
    )
    assert entries(revised_pod(POD, known)) == [
        {"name": name, "priority": 2000},
        {"name": "acme.io/b", "priority": 1000},
        {"name": "acme.io/c", "priority": 1000},
        {"name": "acme.io/cluster", "priority": 1000},
    ]


@pytest.mark.parametrize(
    ("spec", "applies"),
    [
        ({"podSelector": {"matchLabels": {"app": "db"}}}, True),
        ({"podSelector": {"matchLabels": {"app": "web"}}}, False),
        ({"namespaceSelector": {}}, True),
        ({"namespaceSelector": {"matchLabels": {"team": "data"}}}, True),
        ({"namespaceSelector": {"matchLabels": {"team": "web"}}}, False),
        ({"namespaceSelector": {}, "podSelector": {"matchLabels": {"app": "web"}}}, False),
    ],
)
def test_policies_apply_where_they_say(spec: Json, *, applies: bool) -> None:
    pod = revised_pod(POD, facts(policy("a", FAILOVER, **spec), labels={"team": "data"}))
    assert (entries(pod) is not None) is applies


@pytest.mark.parametrize(
    "changes",
    [
        {"spec.schedulingGroup": {"podGroupName": "g"}},
        {"metadata.annotations": {"kubernetes.io/config.mirror": "x"}},
    ],
)
def test_pods_that_cannot_be_evicted_are_left_alone(changes: Json) -> None:
    pod = change(POD, changes)
    draft = Draft(request("Pod", pod), pod)
    assert draft.questions() == {}
    assert draft.revision(facts(policy("a", FAILOVER))).steps == ()


@pytest.mark.parametrize("text", ["", "x", "null", "{}", "[7]", '[{"name": 7}]'])
@pytest.mark.parametrize("how", [NATIVE, CRD])
def test_an_annotation_that_cannot_be_read_is_left_to_validation(
    text: str, how: MutationPolicy
) -> None:
    pod = change(POD, {"metadata.annotations": {ANNOTATION: text}})
    assert revised_pod(pod, facts(policy("a", FAILOVER)), how) == pod


@pytest.mark.parametrize(("own", "added"), [(8, 2), (9, 1), (10, 0), (11, 0)])
def test_a_pod_has_ten_places(own: int, added: int) -> None:
    mine = [{"name": f"acme.io/own-{number}", "priority": 1000} for number in range(own)]
    pod = change(POD, {"spec.evictionResponders": mine})
    known = facts(policy("a", FAILOVER, DRAIN))
    assert len(entries(revised_pod(pod, known))) == own + added
    made = revise(request("Pod", pod), pod, known, NATIVE).made
    assert [f"no room for {DRAIN[0]}" in each.note for each in made] == [added == 1] * bool(added)


def test_the_policies_are_named() -> None:
    known = facts(policy("a", FAILOVER), policy("b", DRAIN, namespaceSelector={}))
    (made,) = revise(request("Pod", POD), POD, known, CRD).made
    assert made.note == (
        f"{ANNOTATION}: db.acme.io/failover (ResponderPolicy a), "
        "mesh.example.com/drain (ClusterResponderPolicy b)"
    )


ASKED: dict[Question, bool] = {
    Policies(NAMESPACE): True,
    CLUSTER_POLICIES: True,
    NamespaceLabels(NAMESPACE): True,
}


def test_all_that_is_asked_must_be_had() -> None:
    assert Draft(request("Pod", POD), POD, CRD).questions() == ASKED
    assert Draft(request("Pod", POD), POD).questions() == {**ASKED, NATIVE_RESPONDERS: True}
    own = change(POD, {"spec.evictionResponders": [DRAIN_ENTRY]})
    assert Draft(request("Pod", own), own).questions() == ASKED
    whole = facts(policy("a", FAILOVER))
    for missing in (*ASKED, NATIVE_RESPONDERS):
        known = Facts({key: answer for key, answer in whole.answers.items() if key != missing})
        revision = Draft(request("Pod", POD), POD).revision(known)
        assert (revision.steps, revision.unanswered) == ((), ("register-responders",))


@pytest.mark.parametrize(
    ("kind", "document", "old"),
    [
        ("Pod", POD, POD),
        ("Deployment", {"metadata": {"name": "db"}, "spec": {"template": POD}}, None),
        ("ResponderPolicy", policy("a", FAILOVER), None),
    ],
)
def test_only_new_pods_are_registered(kind: str, document: Json, old: Json | None) -> None:
    draft = Draft(request(kind, document, old), read(document), MutationPolicy(mode=Mode.CRD))
    assert draft.questions() == {}
    assert draft.revision(facts(policy("a", FAILOVER))).steps == ()
