"""What is kept of the cluster, what a plan sees of it, and who is woken by which change."""

import tracemalloc
from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from cluster.key import Key
from cluster.store import Change, Entry, entry_of
from controller.eviction.plan import Sync, plan
from controller.eviction.planning.deferral import INTERIM_DELAY, with_deferral
from controller.eviction.planning.snapshot import Pod, Snapshot
from controller.eviction.routing import EVICTOR, Item, Router
from controller.eviction.view import View, pod_of, read_eviction, read_pod, read_request
from rules.api import EVICTOR as EVICTOR_NAME
from rules.api import RESPONDERS_ANNOTATION
from rules.decode import decode_model
from rules.mutation import Mode
from rules.times import format_time
from tests.controller import objects
from tests.controller.objects import NAMESPACE, Document
from tests.controller.store import START

UID = objects.uid(1)
EVICTION, REQUEST = Key(NAMESPACE, "pod-1-web"), Key(NAMESPACE, "drain")


def pod(**spec: Any) -> Document:
    document = objects.pod("web", 1)
    document["spec"] |= spec
    return document


TARGET = objects.target_of(pod())


def eviction(name: str = EVICTION.name, **status: Any) -> Document:
    return {**objects.eviction(name, TARGET, 3, format_time(START)), "status": status}


def active() -> Document:
    """The status of an Eviction whose evictor is Active."""
    return {
        "observedGeneration": 1,
        "targetResponders": [{"name": EVICTOR_NAME, "priority": 100, "state": "Active"}],
        "responders": [{"name": EVICTOR_NAME, "startTime": format_time(START)}],
    }


def request(intent: str = "Eviction", **metadata: Any) -> Document:
    document = objects.request("drain", TARGET, 2, format_time(START), "a.io/b", intent)
    document["metadata"] |= metadata
    return document


def view(*, pods: Any = (), evictions: Any = (), requests: Any = ()) -> View:
    made = View()
    made.pods.replace([entry_of(p, read_pod(p)) for p in pods], 1)
    made.evictions.replace([entry_of(e, read_eviction(e)) for e in evictions], 1)
    made.requests.replace([entry_of(r, read_request(r)) for r in requests], 1)
    return made


def owned(*labels: str, manager: str = "usher-controller") -> Document:
    """An entry of managedFields."""
    fields = {"f:metadata": {"f:labels": {f"f:{label}": {} for label in labels}}}
    return {"manager": manager, "operation": "Apply", "fieldsV1": fields}


def labelled(fields: list[Document], **labels: str) -> Document:
    document = eviction()
    document["metadata"] |= {"labels": labels, "managedFields": fields}
    return document


def test_a_label_of_somebody_else_is_no_requester() -> None:
    theirs = [owned("ours"), owned("theirs", manager="kubectl-label")]
    document = labelled(theirs, ours="requester", theirs="requester", other="requester-responder")
    labels = read_eviction(document).metadata.labels
    assert labels == {"ours": "requester", "other": "requester-responder"}


def test_where_nobody_is_known_to_own_a_label_it_is_ours() -> None:
    assert read_eviction(labelled([], a="requester")).metadata.labels == {"a": "requester"}


def test_a_label_of_somebody_else_is_not_taken_away_for_ever() -> None:
    document = labelled([owned(manager="kubectl-label")], **{"team.io/a": "requester"})
    document["metadata"]["ownerReferences"] = []
    seen = view(evictions=[document]).snapshot(NAMESPACE, read_eviction(document), {})
    assert plan(Sync.METADATA, EVICTION, seen, START).writes == ()


def items(*works: str, key: Key = EVICTION) -> list[Item]:
    return [Item(work, key, UID) for work in works]


# --- what is kept -------------------------------------------------------------------------------


def test_a_pod_means_the_same_before_and_after_it_is_cut_down() -> None:
    ended = {"name": "c", "state": {"terminated": {"finishedAt": format_time(START)}}}
    documents = [
        pod(),
        pod(schedulingGroup={"podGroupName": "g"}),
        pod(initContainers=[{"name": "proxy", "restartPolicy": "Always", "image": "x"}]),
        objects.pod("web", 1, [("a.io/b", 5000)]),
        {**pod(), "status": {"phase": "Failed", "containerStatuses": [ended]}},
    ]
    for document in documents:
        cut = pod_of(read_pod(document).kept)
        assert cut == replace(decode_model(Pod, document), status=cut.status)
    assert pod_of(read_pod(documents[-1]).kept) == decode_model(Pod, documents[-1])


@pytest.mark.parametrize(
    ("mode", "places"),
    [
        (Mode.NATIVE, {"field"}),
        (Mode.CRD, {"annotation"}),
        (Mode.AUTO, {"field", "annotation"}),
    ],
)
def test_the_mode_says_which_declarations_of_responders_count(mode: Mode, places: set[str]) -> None:
    document = pod(evictionResponders=[{"name": "a.io/b", "priority": 5000}])
    document["metadata"]["annotations"] = {RESPONDERS_ANNOTATION: "[]"}
    cut = pod_of(read_pod(document, mode).kept)
    kept = {"field": cut.spec.eviction_responders, "annotation": cut.metadata.annotations}
    assert {place for place, declared in kept.items() if declared} == places


def test_most_of_a_pod_is_forgotten() -> None:
    document = pod(containers=[{"name": "c", "env": "x" * 10_000}])
    document["metadata"]["annotations"] = {"a": "x" * 10_000}
    document["metadata"]["managedFields"] = ["x" * 10_000]
    assert len(read_pod(document).kept) < 150


def test_what_is_kept_of_pods_takes_no_more_memory_than_it_is_long() -> None:
    documents = [pod(containers=[{"name": "c"}]) for _ in range(1000)]
    tracemalloc.start()
    try:
        kept = [read_pod(document) for document in documents]
        size, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert size < 400 * len(kept)


def test_changes_that_do_not_count_do_not_show() -> None:
    waiting = {**pod(), "status": {"phase": "Pending"}}
    assert read_pod(waiting) == read_pod(pod())


# --- what a plan sees ---------------------------------------------------------------------------


def test_a_snapshot_has_what_a_plan_depends_on() -> None:
    other = objects.eviction("pod-4-web", objects.target_of(objects.pod("x", 7)), 8, "")
    other["metadata"].pop("creationTimestamp")
    stranger = objects.eviction("pod-1-x", objects.target_of(objects.pod("x", 7)), 9, "")
    stranger["metadata"].pop("creationTimestamp")
    seen = view(pods=[pod()], evictions=[eviction(), other, stranger], requests=[request()])
    about = seen.requests.get(REQUEST)
    assert about is not None
    memory = {objects.uid(3): START, "another": START}
    snapshot = seen.snapshot(NAMESPACE, about.value, memory)
    assert {e.metadata.name for e in snapshot.evictions} == {EVICTION.name, "pod-4-web"}
    assert [p.metadata.name for p in snapshot.pods] == ["web"]
    assert snapshot.eviction_requests == (about.value,)
    assert snapshot.terminal_times == {objects.uid(3): START}


def test_long_names_are_found_after_the_cut() -> None:
    long = "a" * 253
    target = {"pod": {"name": long, "uid": UID}}
    named = objects.eviction(f"pod-1-{long}"[:253], target, 3, format_time(START))
    asking = objects.request("drain", target, 2, format_time(START), "a.io/b", "Eviction")
    asking["spec"]["target"]["pod"]["uid"] = objects.uid(5)
    seen = view(evictions=[named], requests=[asking])
    about = seen.requests.get(REQUEST)
    assert about is not None
    assert len(seen.snapshot(NAMESPACE, about.value, {}).evictions) == 1


# --- who is woken -------------------------------------------------------------------------------


def change(old: Document | None, new: Document | None, read: Any) -> Change[Any]:
    def entry(document: Document | None) -> Entry[Any] | None:
        return entry_of(document, read(document)) if document else None

    return Change(entry(old), entry(new))


def test_a_pod_wakes_its_eviction() -> None:
    router = Router(view(evictions=[eviction(**active())], requests=[request()]))
    deleting = pod()
    deleting["metadata"]["deletionTimestamp"] = format_time(START)
    woken = list(router.pod(change(pod(), deleting, read_pod)))
    assert woken == items(EVICTOR, Sync.EVICTION)
    woken = list(router.pod(change(deleting, None, read_pod)))
    assert woken == items(EVICTOR, Sync.EVICTION) + items(Sync.REQUEST, key=REQUEST)


def test_a_pod_wakes_no_eviction_that_has_ended() -> None:
    ended = eviction(conditions=[{"type": "Failed", "status": "True", "reason": "X"}])
    assert list(Router(view(evictions=[ended])).pod(change(pod(), None, read_pod))) == []


def test_an_eviction_wakes_its_requests_when_its_outcome_changes() -> None:
    router = Router(view(evictions=[eviction()], requests=[request()]))
    started = eviction(**active())
    woken = list(router.eviction(change(eviction(), started, read_eviction)))
    assert woken == items(Sync.EVICTION, EVICTOR)
    failed = eviction(conditions=[{"type": "Failed", "status": "True", "reason": "X"}])
    woken = list(router.eviction(change(eviction(), failed, read_eviction)))
    assert set(woken) >= set(items(Sync.REQUEST, key=REQUEST))
    woken = list(router.eviction(change(None, eviction(), read_eviction)))
    assert set(woken) >= set(items(Sync.METADATA)) | set(items(Sync.REQUEST, key=REQUEST))


def test_a_lost_label_is_put_back() -> None:
    labelled = eviction()
    labelled["metadata"]["labels"] = {"a.io/b": "requester"}
    woken = Router(view()).eviction(change(labelled, eviction(), read_eviction))
    assert set(woken) >= set(items(Sync.METADATA))


def test_an_eviction_that_is_gone_wakes_its_duplicates() -> None:
    router = Router(view(evictions=[eviction("pod-2-web")]))
    woken = list(router.eviction(change(eviction(), None, read_eviction)))
    assert woken == items(Sync.EVICTION, key=Key(NAMESPACE, "pod-2-web"))


def test_a_request_wakes_the_eviction() -> None:
    router = Router(view(evictions=[eviction()]))
    withdrawn = router.request(change(request(), request("Withdrawn"), read_request))
    own = items(Sync.REQUEST, key=REQUEST)
    assert list(withdrawn) == [*own, *items(Sync.EVICTION, Sync.METADATA)]
    gone = router.request(change(request(), None, read_request))
    assert list(gone) == items(Sync.EVICTION, Sync.METADATA)
    leaving = request(deletionTimestamp=format_time(START))
    both = set(router.request(change(request(), leaving, read_request)))
    assert both >= set(items(Sync.EVICTION, Sync.METADATA))


def test_a_change_of_mind_wakes_the_evictor() -> None:
    router = Router(view(evictions=[eviction(**active())]))
    back = router.request(change(request("Withdrawn"), request(), read_request))
    assert set(back) >= set(items(EVICTOR, Sync.EVICTION))


def test_who_starts_looks_at_everything() -> None:
    router = Router(view(evictions=[eviction(**active())], requests=[request()]))
    assert set(router.everything()) == {
        *items(Sync.EVICTION, Sync.METADATA, EVICTOR),
        *items(Sync.REQUEST, key=REQUEST),
    }


# --- what can wait ------------------------------------------------------------------------------


def deferred(seen: View, after: timedelta, *, sync: Sync = Sync.REQUEST) -> Any:
    """What is left of the plan for the only request, or the only Eviction."""
    key = REQUEST if sync == Sync.REQUEST else EVICTION
    store: Any = seen.requests if sync == Sync.REQUEST else seen.evictions
    snapshot: Snapshot = seen.snapshot(NAMESPACE, store.get(key).value, {})
    now = START + after
    planned = with_deferral(sync, plan(sync, key, snapshot, now), key, snapshot, now)
    return [write.resource for write in planned.writes], planned.requeue_after


def test_a_young_request_waits_for_its_eviction() -> None:
    assert deferred(view(pods=[pod()], requests=[request()]), timedelta(hours=1)) == (
        ["evictions"],
        INTERIM_DELAY,
    )
    seen = view(pods=[pod()], evictions=[eviction()], requests=[request()])
    assert deferred(seen, timedelta(seconds=1)) == ([], INTERIM_DELAY - timedelta(seconds=1))
    assert deferred(seen, INTERIM_DELAY) == (["evictionrequests"], None)


def test_an_outcome_does_not_wait() -> None:
    status = {"conditions": [{"type": "TargetEvicted", "status": "True", "reason": "PodDeleted"}]}
    seen = view(evictions=[eviction(**status)], requests=[request()])
    assert deferred(seen, timedelta(seconds=1)) == (["evictionrequests"], None)


def test_awaiting_the_last_report_is_not_written() -> None:
    seen = view(evictions=[eviction(**active())], requests=[request()])
    second = timedelta(seconds=1)
    assert deferred(seen, second, sync=Sync.EVICTION) == ([], 5 * second)
