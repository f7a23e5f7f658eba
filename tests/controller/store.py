"""A model of what an API server stores: server-side apply, admission, garbage collection."""

import copy
import itertools
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any, Final

from controller.eviction.planning.snapshot import Snapshot
from controller.eviction.planning.writes import EVICTION_REQUESTS, EVICTIONS, Write
from rules.api import Eviction, EvictionRequest
from rules.catalog import GUARDS
from rules.decode import decode_model
from rules.evaluate import Inquiry, Policy, Verdict
from rules.facts import Answer, Facts, LivePod, Question, TargetLookup
from rules.request import STATUS, Operation, Request, User
from rules.rule import Enforcement
from rules.times import format_time
from tests.cases import fact_about
from tests.controller import objects
from tests.controller.objects import Document

START: Final = datetime.fromisoformat("2026-07-01T12:00:00+00:00")
_KEYS: Final = {
    "conditions": "type",
    "requesters": "name",
    "targetResponders": "name",
    "responders": "name",
    "ownerReferences": "uid",
}
CONTROLLER: Final = User("system:serviceaccount:usher-system:usher-controller")
POLICY: Final = Policy(
    dict.fromkeys(GUARDS, Enforcement.DENY), controllers=frozenset({CONTROLLER.name})
)
_SHAPES: Final[dict[str, type[Eviction | EvictionRequest]]] = {
    EVICTIONS: Eviction,
    EVICTION_REQUESTS: EvictionRequest,
}


class Store:
    """Objects by name, all in one namespace, and the clock that stamps them."""

    def __init__(self) -> None:
        self.now = START
        self.pods: dict[str, Document] = {}
        self.stored: dict[str, dict[str, Document]] = {EVICTIONS: {}, EVICTION_REQUESTS: {}}
        self.version = 0
        self._applied: dict[tuple[str, str, str], Document] = {}
        self._numbers = itertools.count(1)

    @property
    def evictions(self) -> dict[str, Document]:
        return self.stored[EVICTIONS]

    @property
    def requests(self) -> dict[str, Document]:
        return self.stored[EVICTION_REQUESTS]

    def snapshot(self, terminal_times: dict[str, datetime]) -> Snapshot:
        document = {
            "pods": list(self.pods.values()),
            "evictions": list(self.evictions.values()),
            "evictionRequests": list(self.requests.values()),
            "terminalTimes": dict(terminal_times),
        }
        return decode_model(Snapshot, document)

    # --- users ----------------------------------------------------------------------------------

    def create_pod(self, name: str, responders: Any = (), **spec: Any) -> None:
        self.pods[name] = objects.pod(name, next(self._numbers), responders)
        self.pods[name]["spec"] |= spec
        self.version += 1

    def delete_pod(self, name: str, grace: timedelta) -> None:
        metadata = self.pods[name]["metadata"]
        metadata.setdefault("deletionTimestamp", format_time(self.now + grace))
        self.version += 1

    def finish_pod(self, name: str, finished: datetime | None) -> None:
        terminated = {"finishedAt": format_time(finished)} if finished else {}
        statuses = [{"name": "c", "state": {"terminated": terminated}}]
        self.pods[name]["status"] = {"phase": "Succeeded", "containerStatuses": statuses}
        self.version += 1

    def remove_pod(self, name: str) -> None:
        del self.pods[name]
        self.version += 1

    def create_request(self, target: Document, requester: str, intent: str) -> str:
        number = next(self._numbers)
        name = f"request-{number}"
        self.requests[name] = objects.request(
            name, target, number, format_time(self.now), requester, intent
        )
        self.version += 1
        return name

    def flip_request(self, name: str, intent: str) -> None:
        request = self.requests[name]
        if request["spec"]["intent"] != intent:
            request["spec"]["intent"] = intent
            request["metadata"]["generation"] += 1
            self.version += 1

    def delete_request(self, name: str, *, held: bool) -> None:
        """Delete a request; one that a finalizer holds stays until it is deleted again."""
        metadata = self.requests[name]["metadata"]
        if held and "deletionTimestamp" not in metadata:
            metadata["deletionTimestamp"] = format_time(self.now)
        else:
            del self.requests[name]
        self.version += 1

    def collect_garbage(self) -> None:
        """Drop references to requests that are gone, and Evictions that only had such ones."""
        alive = {request["metadata"]["uid"] for request in self.requests.values()}
        for name, eviction in list(self.evictions.items()):
            owners = eviction["metadata"].get("ownerReferences", [])
            kept = [owner for owner in owners if owner["uid"] in alive]
            if owners and not kept:
                self.delete_eviction(name)
            elif len(kept) != len(owners):
                eviction["metadata"]["ownerReferences"] = kept
                self.version += 1

    def delete_eviction(self, name: str) -> None:
        del self.evictions[name]
        for subresource in ("", STATUS):
            self._applied.pop((EVICTIONS, name, subresource), None)
        self.version += 1

    def report(self, name: str, responder: str, changes: Document) -> Verdict:
        """A responder changes its entry in the Eviction ``name``, if admission lets it."""
        changed = copy.deepcopy(self.evictions[name])
        for entry in changed.get("status", {}).get("responders", []):
            if entry["name"] == responder:
                entry.update(changes)
        return self.update_status(name, changed)

    def update_status(self, name: str, changed: Document) -> Verdict:
        """Replace the status of the Eviction ``name``, if admission lets it."""
        verdict = self._judge(EVICTIONS, changed, self.evictions[name], STATUS)
        if verdict.allowed and changed != self.evictions[name]:
            self.evictions[name] = changed
            self.version += 1
        return verdict

    # --- the controller -------------------------------------------------------------------------

    def apply(self, write: Write) -> Verdict:
        """Forced server-side apply as the controller's field manager, with every guard on deny."""
        resource, name, subresource = write.resource, write.key.name, write.subresource
        stored = self.stored[resource].get(name)
        owner = (resource, name, subresource)
        document = copy.deepcopy(dict(write.apply))
        result = _merge(stored or {}, document, self._applied.get(owner, {}))
        verdict = self._judge(resource, result, stored, subresource, CONTROLLER)
        if verdict.allowed:
            self._applied[owner] = document
            if stored is None:
                number = next(self._numbers)
                result["metadata"] |= {"uid": objects.uid(number), "generation": 1}
                result["metadata"]["creationTimestamp"] = format_time(self.now)
            if result != stored:
                self.stored[resource][name] = result
                self.version += 1
        return verdict

    def _judge(
        self,
        resource: str,
        new: Document,
        old: Document | None,
        subresource: str,
        user: User | None = None,
    ) -> Verdict:
        """Judge a write; where no ``user`` is given, the guards about callers are left out."""
        shape = _SHAPES[resource]
        request = Request(
            operation=Operation.UPDATE if old else Operation.CREATE,
            subresource=subresource,
            object=decode_model(shape, new),
            old_object=decode_model(shape, old) if old else None,
            now=self.now,
            user=user,
        )
        inquiry = Inquiry(request, POLICY if user else Policy())
        known = {each: self._answer(each) for each in inquiry.questions()} if user else {}
        return inquiry.verdict(Facts(known))

    def _answer(self, question: Question) -> Answer:
        """The pod; nobody has a permission."""
        if not isinstance(question, TargetLookup):
            return None
        pods = {name: _live(pod) for name, pod in self.pods.items()}
        return fact_about(question, pods, lambda _: False)


def _live(pod: Document) -> LivePod:
    is_terminal = pod.get("status", {}).get("phase") in ("Succeeded", "Failed")
    return LivePod(pod["metadata"]["uid"], is_terminal=is_terminal)


def _merge(stored: Document, applied: Document, before: Document) -> Document:
    """``stored`` after ``applied``, by the manager that applied ``before`` last."""
    gone = [name for name in before if name not in applied]
    result = {name: value for name, value in stored.items() if name not in gone}
    for name in gone:
        if name in _KEYS and name in stored:
            result[name] = _merge_list(stored[name], [], before[name], _KEYS[name])
        elif isinstance(before[name], dict) and name in stored:
            result[name] = _merge(stored[name], {}, before[name])
    for name, value in applied.items():
        if name in _KEYS:
            result[name] = _merge_list(
                stored.get(name, []), value, before.get(name, []), _KEYS[name]
            )
        elif isinstance(value, dict):
            result[name] = _merge(stored.get(name, {}), value, before.get(name, {}))
        else:
            result[name] = value
    return result


def _merge_list(
    stored: list[Document], applied: list[Document], before: list[Document], key: str
) -> list[Document]:
    return list(_merged_items(stored, applied, {item[key]: item for item in before}, key))


def _merged_items(
    stored: list[Document], applied: list[Document], before: dict[str, Document], key: str
) -> Iterator[Document]:
    wanted = {item[key]: item for item in applied}
    for item in stored:
        if item[key] in wanted:
            yield _merge(item, wanted.pop(item[key]), before.get(item[key], {}))
        elif item[key] not in before:
            yield item
        elif rest := {n: v for n, v in item.items() if n not in before[item[key]]}:
            yield {key: item[key]} | rest  # somebody else has a share in it
    yield from wanted.values()
