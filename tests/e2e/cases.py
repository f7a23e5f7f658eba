"""The third level of ``tests/cases``: each case as a write to a real API server.

The stored object of a case is put past the API server into its storage, because most of them could
not be written now; the change is an ordinary write. What must come of it depends on the mode, see
:func:`check`.
"""

from collections.abc import Iterable, Iterator
from datetime import timedelta
from typing import Final

from rules.catalog import GUARDS
from rules.times import format_time, parse_time
from tests.cases import NOW, Case, Wanted
from tests.e2e.api import Answer, Cause, Object
from tests.e2e.cluster import Cluster, is_namespaced, path_of, resource_of
from tests.e2e.times import now, shifted
from tests.e2e.usher import WEBHOOK

_UID: Final = "5d0b8a3e-0c57-4d3c-9a51-7a3f8f6f2c01"
_POLICIES: Final = ("ResponderPolicy", "ClusterResponderPolicy")
_KINDS: Final = ("Eviction", "EvictionRequest", "Pod", *_POLICIES)
_CRASH: Final = "(the reference crashes)"
"""In the names of cases that Kubernetes itself does not survive."""
_POD_FIELDS: Final = ("evictionResponders", "schedulingGroup")
"""What pods have natively only."""


def impossible(cluster: Cluster, case: Case) -> str | None:
    """Why a case can't be a write in this mode; None for one that can."""
    if case.object["kind"] not in _KINDS:
        return "the webhook is registered for pods, not for workloads with pod templates"
    if case.old_object and _address(case.old_object) != _address(case.object):
        return "the URL of a write names the stored object"
    if cluster.is_native and _CRASH in case.name:
        return "the API server crashes (docs/deviations.md, renamed-into-duplicate)"
    if not cluster.is_native and any(field in case.object["spec"] for field in _POD_FIELDS):
        return "the API server drops these fields of a pod before anybody sees them"
    return None


def _address(document: Object) -> tuple[object, object]:
    return document["metadata"].get("name"), document["metadata"].get("namespace")


def documents(case: Case) -> tuple[Object, Object | None]:
    """The new and the stored object of a case, as if its instant were the present."""
    delta = now() - parse_time(NOW)
    new, stored = shifted(case.object, delta), shifted(case.old_object, delta)
    return new, stored


def store(cluster: Cluster, namespace: str, new: Object, stored: Object | None) -> None:
    """Put ``stored`` into the cluster and make ``new`` a write of it."""
    place = {"namespace": namespace} if is_namespaced(new) else {"name": _unique(new, namespace)}
    new["metadata"] |= place
    if stored is None:
        return
    meta = {"uid": _UID, "creationTimestamp": format_time(now() - timedelta(hours=1))}
    stored["metadata"] = {**meta, **stored["metadata"], **place}
    version = cluster.etcd.put(resource_of(stored), stored)
    new["metadata"] |= {"uid": stored["metadata"]["uid"], "resourceVersion": version}


def _unique(document: Object, namespace: str) -> str:
    """A name that no other case has: what is in no namespace outlasts the test."""
    return f"{document['metadata']['name']}-{namespace}"


def write(cluster: Cluster, namespace: str, case: Case) -> Answer:
    """Make the write of a case; what is in no namespace does not stay, as others would see it."""
    new, stored = documents(case)
    store(cluster, namespace, new, stored)
    if stored is None:
        answer = cluster.create(namespace, new)
    else:
        answer = cluster.replace(namespace, new, case.subresource)
    if not is_namespaced(new) and (stored or answer.ok):
        path = path_of(new, namespace, new["metadata"]["name"])
        assert cluster.api("DELETE", path).ok
    return answer


def check(cluster: Cluster, case: Case, answer: Answer) -> None:
    """Assert that a case was answered as wanted.

    Refusals come from three places, and whoever is asked first hides the others: natively the API
    server for all built-in rules; with CustomResourceDefinitions, which policies have always, the
    API server for what schema and CEL can say, each of it at a wanted field or next to it; the
    webhook, exactly as wanted.
    """
    refused = {wanted for wanted in case.wanted if wanted.enforcement == "deny"}
    if not refused:
        assert answer.ok, answer.message
        missing = [w for w in case.wanted if not any(_names(w, text) for text in answer.warnings)]
        assert not missing, answer.warnings
        return
    assert not answer.ok
    is_native = cluster.is_native and case.object["kind"] not in _POLICIES
    if WEBHOOK in answer.message:
        assert not (is_native and any(_is_judged_natively(case, w) for w in refused))
        assert answer.causes == {(w.type, w.field) for w in refused}, answer.message
    elif is_native:
        built_in = [w for w in refused if _is_judged_natively(case, w)]
        assert answer.causes == set(_native_causes(built_in)), answer.message
    else:
        assert answer.causes, answer.message
        for _, field in answer.causes:
            assert any(_is_near(field, w.field) for w in refused), answer.message


def _is_judged_natively(case: Case, wanted: Wanted) -> bool:
    has_list = case.object["kind"] != "Pod" or "evictionResponders" in case.object["spec"]
    return wanted.rule not in GUARDS and has_list


def _native_causes(refused: Iterable[Wanted]) -> Iterator[Cause]:
    for wanted in refused:
        # Natively a pod's spec is refused as a whole (docs/deviations.md, pod-field).
        is_pod = wanted.rule == "fixed-pod-responders"
        yield ("FieldValueForbidden", "spec") if is_pod else (wanted.type, wanted.field)


def _is_near(field: str, wanted: str) -> bool:
    """Whether one field is the other or stands within it. Old API servers leave out indexes."""
    near, far = sorted((field, wanted), key=len)
    return far.startswith(near) or near == _without_indexes(far)


def _without_indexes(field: str) -> str:
    return "".join(part.partition("]")[2] if i else part for i, part in enumerate(field.split("[")))


def _names(wanted: Wanted, warning: str) -> bool:
    return warning.startswith(f"{wanted.field}: ")
