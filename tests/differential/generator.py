"""Random writes for the oracle: mostly lawful ones with a few things changed.

Every case starts from an object that could be stored, takes a lawful step, and then breaks zero to
three things chosen from all that the rules speak about. Sometimes the stored object is broken too,
as an object that predates a rule would be.
"""

import copy
import random
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from rules.times import format_time

Object = dict[str, Any]
Case = dict[str, Any]

NOW: Final = datetime(2026, 7, 1, 12, tzinfo=UTC)
EVICTOR: Final = "imperative-eviction.k8s.io/evictor"
# Offsets from now, in seconds: around every deadline of the rules, and far from them.
OFFSETS: Final = (
    0, 1, -1, 5, -5, 29, -29, 30, -30, 31, -31, 60, -60, -300, -1169, -1170, -1171, -1200, -1201,
    -1230, -3600, 3600, -86400, 315_359_999, 315_360_000, 315_360_001, 400_000_000,
)  # fmt: skip
NAMES: Final = (
    "example.com/bar", "example.com/baz", "y.example.com/bar", "fooexample.com/bar",
    "b.barexample.io/bar", "acme.io/a", "acme.io/B_2", "db.acme.io/failover", "z.acme.io/x.y-z",
    "mesh.acme.io/drain", "storage.example.com/detach", "a.b.c.d.example.org/k",
)  # fmt: skip
BAD_NAMES: Final = (
    "", "a", "/a", "a/", "A.io/a", "a.io/b/c", "a_b.io/c", "acme.io/-x", "acme.io/x-", "acme.io/ä",
    "acme.io/" + "n" * 63, "acme.io/" + "n" * 64, "d." * 125 + "io/x", "d." * 127 + "io/x",
    "k8s.io/x", "nodes.k8s.io/x", "kubernetes.io/x", "X.K8S.IO/x", " k8s.io/x", "k8s.io./x",
    "notk8s.io/x", "k8s.io.example/x", "acme.io/x\n", "a..b/c", "-a.io/x", "acme.io /x",
)  # fmt: skip
PRIORITIES: Final = (1000, 1000, 1001, 5000, 5000, 10_000, 10_000, 20_000, 100_000)
# Not the ends of int32: the reference orders by a difference of int32, which overflows there
# (docs/deviations.md, priority-overflow).
BAD_PRIORITIES: Final = (None, -1_000_000, -1, 0, 99, 100, 101, 999, 100_001, 2_000_000_000)
STATES: Final = ("Inactive", "Active", "Interrupted", "Canceled", "Completed")
PROCESSED: Final = STATES[2:]
LAWFUL_TEXTS: Final = ("", "working", "x" * 4000, "ä" * 4000)
TEXTS: Final = (*LAWFUL_TEXTS, None, "x" * 4001, "ä" * 4001, "🙂" * 1001)
REASONS: Final = (
    "AwaitingEviction", "PodDeleted", "PodTerminal", "Succeeded", "A:b,c_9", "a", "9a", "a-b",
    "a,", "", "R" * 1024, "R" * 1025,
)  # fmt: skip
POD_NAMES: Final = ("web-0", "a.b-c", "", "Web", "-a", "a-", "a" * 253, "a" * 254, "a_b", "web\n")
UIDS: Final = (
    "272ce49c-7064-51e5-0c98-57dd86b50043", "00000000-0000-0000-0000-000000000000", "",
    "272CE49C-7064-51e5-0c98-57dd86b50043", "272ce49c706451e50c9857dd86b50043",
    "272ce49c-7064-51e5-0c98-57dd86b5004", "272ce49c-7064-51e5-0c98-57dd86b5004g",
    "272ce49c-7064-51e5-0c98-57dd86b50043\n",
)  # fmt: skip


class Generator:
    """An endless source of cases; the same source of chance gives the same cases."""

    def __init__(self, chance: random.Random) -> None:
        self._random = chance
        self._choose = chance.choice

    def cases(self, count: int) -> list[Case]:
        """``count`` cases over all kinds, operations and subresources."""
        kinds: Sequence[Callable[[], Case]] = (
            self._eviction_status, self._eviction_status, self._eviction_status,
            self._eviction_main, self._request_main, self._request_status, self._pod,
        )  # fmt: skip
        return [self._choose(kinds)() for _ in range(count)]

    def lawful_update(self) -> Case:
        """A write to ``/status`` of an Eviction that an honest party makes."""
        stored = self._eviction()
        stored["status"] = self._lawful_status()
        changed = copy.deepcopy(stored)
        self._step(changed["status"])
        return _case("Eviction", "UPDATE", "status", changed, stored)

    # Writes, one method for each kind and subresource.

    def _eviction_status(self) -> Case:
        return self.status_update(aged=self._chance(0.1))

    def status_update(self, *, aged: bool = False) -> Case:
        """A write to ``/status`` of an Eviction; ``aged`` breaks the stored object too."""
        stored = self._eviction()
        stored["status"] = self._lawful_status()
        changed = copy.deepcopy(stored)
        self._step(changed["status"])
        if aged:
            # Older than a rule: what is broken stays broken, unless the writer repairs it.
            self._break(stored["status"], self._status_breakers())
            changed = self._choose((changed, copy.deepcopy(stored)))
        for _ in range(self._choose((0, 1, 1, 2, 3))):
            self._break(changed["status"], self._status_breakers())
        return _case("Eviction", "UPDATE", "status", changed, stored)

    def _request_status(self) -> Case:
        stored = self._request()
        stored["status"] = self._request_report()
        changed = copy.deepcopy(stored)
        breakers = (self._touch_conditions, self._touch_generation, self._touch_condition)
        for _ in range(self._choose((0, 1, 1, 2, 3))):
            self._break(changed["status"], breakers)
        return _case("EvictionRequest", "UPDATE", "status", changed, stored)

    def _eviction_main(self) -> Case:
        return self._main("Eviction", self._eviction())

    def _request_main(self) -> Case:
        return self._main("EvictionRequest", self._request())

    def _main(self, kind: str, stored: Object) -> Case:
        breakers = (self._touch_target, self._touch_spec, self._touch_metadata)
        changed = copy.deepcopy(stored)
        for _ in range(self._choose((0, 1, 1, 2, 3))):
            self._break(changed, breakers)
        if self._chance(0.5):
            for field in ("uid", "resourceVersion", "generation", "creationTimestamp"):
                changed["metadata"].pop(field, None)
            return _case(kind, "CREATE", "", changed, None)
        if self._chance(0.15):
            self._break(stored, (self._touch_target, self._touch_spec))
        return _case(kind, "UPDATE", "", changed, stored)

    def _pod(self) -> Case:
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": self._metadata("web-0"),
            "spec": {"containers": [{"name": "web", "image": "web"}]},
        }
        pod["spec"]["evictionResponders"] = self._pod_responders()
        if self._chance(0.2):
            pod["spec"]["schedulingGroup"] = {"podGroupName": "group"}
        if self._chance(0.6):
            for field in ("uid", "resourceVersion", "generation", "creationTimestamp"):
                del pod["metadata"][field]
            return _case("Pod", "CREATE", "", pod, None)
        pod["spec"].pop("schedulingGroup", None)  # no API server stores it beside responders
        stored = copy.deepcopy(pod)
        if self._chance(0.5):
            stored["spec"]["evictionResponders"] = self._pod_responders()
        return _case("Pod", "UPDATE", "", pod, stored)

    def _pod_responders(self) -> list[Object]:
        count = self._choose((0, 1, 1, 2, 3, 10, 11))
        names = self._random.sample(NAMES, count)
        responders = [{"name": name, "priority": self._choose(PRIORITIES)} for name in names]
        if responders and self._chance(0.4):
            self._touch_named(responders)
        return responders

    # Objects that could be stored.

    def _metadata(self, name: str) -> Object:
        return {
            "name": name,
            "namespace": "default",
            "uid": "0df5f996-a88a-faba-c7e4-de0cf1767f89",
            "resourceVersion": "7",
            "generation": 1,
            "creationTimestamp": "2026-07-01T08:00:00Z",
        }

    def _target(self) -> Object:
        return {"pod": {"name": "web-0", "uid": UIDS[0]}}

    def _eviction(self) -> Object:
        return {
            "apiVersion": "lifecycle.k8s.io/v1alpha1",
            "kind": "Eviction",
            "metadata": self._metadata("pod-1-web-0"),
            "spec": {"target": self._target()},
        }

    def _request(self) -> Object:
        return {
            "apiVersion": "lifecycle.k8s.io/v1alpha1",
            "kind": "EvictionRequest",
            "metadata": self._metadata("drain-web-0"),
            "spec": {
                "target": self._target(),
                "requester": self._choose(NAMES),
                "intent": self._choose(("Eviction", "Withdrawn")),
            },
        }

    def _request_report(self) -> Object:
        status: Object = {}
        if self._chance(0.7):
            status["observedGeneration"] = self._choose((1, 2, 3))
        status["conditions"] = [self._condition(), self._condition(type="Failed")]
        return status

    def _condition(self, **fields: Any) -> Object:
        return {
            "type": "TargetEvicted",
            "status": "False",
            "reason": "AwaitingEviction",
            "message": "",
            "lastTransitionTime": format_time(NOW - timedelta(seconds=20)),
        } | fields

    def _lawful_status(self) -> Object:
        """A status with some responders processed and, mostly, one of them Active."""
        conditions = [self._condition(), self._condition(type="Failed")]
        status: Object = {"conditions": conditions, "observedGeneration": self._choose((1, 2, 3))}
        requesters = self._random.sample(NAMES, self._choose((0, 1, 2, 3, 8)))
        status["requesters"] = [
            {"name": name, "intent": self._choose(("Eviction", "Withdrawn"))} for name in requesters
        ]
        if self._chance(0.2):
            return status  # not initialised
        names = self._random.sample(NAMES, self._choose((0, 1, 1, 2, 3, 5, 10)))
        responders = [{"name": name, "priority": self._choose(PRIORITIES)} for name in names]
        responders.append({"name": EVICTOR, "priority": 100})
        ordered = sorted(responders, key=_order)
        active = self._random.randrange(len(ordered) + 1)
        reports = {}
        for position, responder in enumerate(ordered):
            reports[responder["name"]] = self._lawful_report(responder, position, active)
        status["targetResponders"] = responders
        self._random.shuffle(responders)
        status["responders"] = [reports[responder["name"]] for responder in responders]
        if active == len(ordered) or self._chance(0.1):
            self._choose(conditions)["status"] = "True"
            for responder in responders:
                if responder["state"] == "Active":
                    responder["state"] = self._choose(("Interrupted", "Canceled"))
        return status

    def _lawful_report(self, responder: Object, position: int, active: int) -> Object:
        report: Object = {"name": responder["name"]}
        if position > active:
            responder["state"] = "Inactive"
            return report
        responder["state"] = self._choose(PROCESSED) if position < active else "Active"
        # Whoever was passed over without having completed had been silent.
        recent = () if responder["state"] in ("Interrupted", "Canceled") else (-5, -25, -40, -600)
        start = NOW + timedelta(seconds=self._choose((*recent, -1200, -7200)))
        report["startTime"] = format_time(start)
        if self._chance(0.5):
            heartbeat = NOW + timedelta(seconds=self._choose((*recent, -1171, -1200)))
            report["heartbeatTime"] = format_time(max(start, heartbeat))
        if responder["state"] == "Completed" or self._chance(0.2):
            report["completionTime"] = format_time(max(start, NOW - timedelta(seconds=10)))
        if self._chance(0.2):
            report["expectedCompletionTime"] = format_time(NOW + timedelta(minutes=5))
        if self._chance(0.2):
            report["message"] = self._choose(LAWFUL_TEXTS)
        return report

    def _step(self, status: Object) -> None:
        """What an honest party might write next."""
        targets = status.get("targetResponders")
        if not targets:
            self._initialise(status)
            return
        reports = {report["name"]: report for report in status["responders"]}
        ordered = sorted(targets, key=_order)
        active = next((i for i, r in enumerate(ordered) if r["state"] == "Active"), None)
        if active is None:
            return
        report = reports[ordered[active]["name"]]
        step = self._choose(("heartbeat", "complete", "hand over", "end", "nothing"))
        if step == "heartbeat":
            report["heartbeatTime"] = format_time(NOW)
        elif step == "complete":
            report.setdefault("completionTime", format_time(NOW))
        elif step in ("hand over", "end"):
            ordered[active]["state"] = self._choose(PROCESSED)
            if step == "end":
                self._choose(status["conditions"])["status"] = "True"
            elif active + 1 < len(ordered):
                ordered[active + 1]["state"] = "Active"
                reports[ordered[active + 1]["name"]]["startTime"] = format_time(NOW)

    def _initialise(self, status: Object) -> None:
        if self._chance(0.2):
            return
        names = self._random.sample(NAMES, self._choose((0, 1, 2, 4)))
        responders = [
            {"name": name, "priority": self._choose(PRIORITIES), "state": "Inactive"}
            for name in names
        ]
        responders.append({"name": EVICTOR, "priority": 100, "state": "Inactive"})
        first = min(responders, key=_order)
        first["state"] = self._choose(("Active", "Active", "Inactive"))
        status["targetResponders"] = responders
        status["responders"] = [{"name": responder["name"]} for responder in responders]
        for report in status["responders"]:
            if report["name"] == first["name"]:
                report["startTime"] = format_time(NOW)

    # What can be broken.

    def _chance(self, probability: float) -> bool:
        return self._random.random() < probability

    def _break(self, part: Object, breakers: Sequence[Callable[[Object], None]]) -> None:
        self._choose(breakers)(part)

    def _status_breakers(self) -> Sequence[Callable[[Object], None]]:
        return (
            self._touch_state, self._touch_state, self._touch_time, self._touch_time,
            self._touch_target_responder, self._touch_report, self._touch_lists,
            self._touch_requesters, self._touch_conditions, self._touch_condition,
            self._touch_generation,
        )  # fmt: skip

    def _item(self, status: Object, field: str) -> Object:
        """Some item of a list, or a throw-away one where the list is empty."""
        items = status.get(field)
        return self._choose(items) if items else {}

    def _touch_state(self, status: Object) -> None:
        states = (*STATES, *STATES, "", "active")
        self._item(status, "targetResponders")["state"] = self._choose(states)

    def _touch_time(self, status: Object) -> None:
        fields = ("startTime", "heartbeatTime", "expectedCompletionTime", "completionTime")
        report, field = self._item(status, "responders"), self._choose(fields)
        if self._chance(0.2):
            report.pop(field, None)
        else:
            report[field] = format_time(NOW + timedelta(seconds=self._choose(OFFSETS)))

    def _touch_target_responder(self, status: Object) -> None:
        if status.get("targetResponders"):
            self._touch_named(status["targetResponders"])

    def _touch_named(self, responders: list[Object]) -> None:
        responder = self._choose(responders)
        match self._choose(("name", "bad name", "priority", "bad priority", "twin")):
            case "name":
                responder["name"] = self._choose(NAMES)
            case "bad name":
                responder["name"] = self._choose(BAD_NAMES)
            case "priority":
                responder["priority"] = self._choose(PRIORITIES)
            case "bad priority":
                responder["priority"] = self._choose(BAD_PRIORITIES)
            case _:
                responders.append(copy.deepcopy(self._choose(responders)))

    def _touch_report(self, status: Object) -> None:
        report = self._item(status, "responders")
        if self._chance(0.7):
            report["message"] = self._choose(TEXTS)
        else:
            report["name"] = self._choose(NAMES + BAD_NAMES)

    def _touch_lists(self, status: Object) -> None:
        field = self._choose(("targetResponders", "responders", "both"))
        lists = [
            status.setdefault(name, [])
            for name in ("targetResponders", "responders")
            if field in (name, "both")
        ]
        change = self._choose(("drop", "swap", "grow", "clear"))
        name = self._choose(NAMES)
        for items in lists:
            if change == "clear":
                items.clear()
            elif change == "drop" and items:
                items.pop(0)
            elif change == "swap":
                items.reverse()
            elif change == "grow":
                items.append({"name": name, "priority": 1000, "state": "Inactive"})
        if change == "grow" and self._chance(0.3):
            for items in lists:
                items.extend({"name": f"a.io/{i}", "priority": 1, "state": "x"} for i in range(12))

    def _touch_requesters(self, status: Object) -> None:
        requesters = status.setdefault("requesters", [])
        match self._choose(("name", "intent", "twin", "many", "drop")):
            case "name":
                self._item(status, "requesters")["name"] = self._choose(NAMES + BAD_NAMES)
            case "intent":
                intent = self._choose(("Eviction", "Withdrawn", "", "eviction"))
                self._item(status, "requesters")["intent"] = intent
            case "twin":
                requesters.append({"name": self._choose(NAMES), "intent": "Eviction"})
            case "many":
                count = self._choose((90, 99, 100, 101))
                requesters.extend({"name": f"a.io/{i}", "intent": "Eviction"} for i in range(count))
            case _:
                requesters[:1] = []

    def _touch_conditions(self, status: Object) -> None:
        conditions = status.setdefault("conditions", [])
        match self._choose(("drop", "twin", "many", "clear", "end", "swap")):
            case "drop":
                conditions[:1] = []
            case "twin":
                type_ = self._choose(("TargetEvicted", "Failed", "acme.io/Mine"))
                conditions.append(
                    self._condition(type=type_, status=self._choose(("True", "False")))
                )
            case "many":
                count = self._choose((97, 98, 99, 100))
                conditions.extend(self._condition(type=f"a.io/{i}") for i in range(count))
            case "clear":
                conditions.clear()
            case "swap":
                conditions.reverse()
            case _:
                self._item(status, "conditions")["status"] = "True"

    def _touch_condition(self, status: Object) -> None:
        condition = self._item(status, "conditions")
        match self._choose(("type", "status", "reason", "message", "time", "generation")):
            case "type":
                types = ("", "a b", "Ready", "a.io/Ready", "A.io/x", "x" * 64, "a/b/c", "x" * 317)
                condition["type"] = self._choose(types)
            case "status":
                condition["status"] = self._choose(("True", "False", "Unknown", "", "true"))
            case "reason":
                condition["reason"] = self._choose(REASONS)
            case "message":
                sizes = (0, 10, 32 * 1024, 32 * 1024 + 1)
                condition["message"] = "m" * self._choose(sizes)
            case "time":
                condition["lastTransitionTime"] = self._choose((None, format_time(NOW)))
            case _:
                condition["observedGeneration"] = self._choose((-1, 0, 1))

    def _touch_generation(self, status: Object) -> None:
        status["observedGeneration"] = self._choose((None, -1, 0, 1, 2, 3, 9))

    def _touch_target(self, target: Object) -> None:
        spec = target["spec"]
        if self._chance(0.2):
            spec["target"] = self._choose(({}, {"pod": {}}))
        elif "pod" in spec["target"]:
            field = self._choose(("name", "uid"))
            spec["target"]["pod"][field] = self._choose(POD_NAMES if field == "name" else UIDS)

    def _touch_spec(self, target: Object) -> None:
        if target["kind"] == "EvictionRequest":
            field = self._choose(("requester", "intent"))
            values = (
                NAMES + BAD_NAMES if field == "requester" else ("Eviction", "Withdrawn", "", "x")
            )
            target["spec"][field] = self._choose(values)

    def _touch_metadata(self, target: Object) -> None:
        meta = target["metadata"]
        match self._choose(("name", "labels", "annotations", "finalizers", "owners", "namespace")):
            case "name":
                meta["name"] = self._choose(("ok", "Bad", "a_b", "a.b", "", "a" * 254))
                if not meta["name"]:
                    del meta["name"]
            case "labels":
                keys = ("app", "a.io/b", "a b", "A.io/b", "/x", "x/", "a/b/c", "k" * 64)
                values = ("", "v", "a b", "v" * 63, "v" * 64, "-v")
                meta["labels"] = {self._choose(keys): self._choose(values)}
            case "annotations":
                keys = ("note", "A.io/b", "a b", "/x", "k" * 64)
                sizes = (0, 5, 262_130, 262_144, 262_145)
                meta["annotations"] = {self._choose(keys): "x" * self._choose(sizes)}
            case "finalizers":
                names = ("a.io/b", "orphan", "foregroundDeletion", "kubernetes", "mine", "a b", "")
                meta["finalizers"] = self._random.sample(names, self._choose((1, 2, 3)))
            case "owners":
                meta["ownerReferences"] = [self._owner() for _ in range(self._choose((1, 2, 3)))]
            case _:
                pass  # another namespace is refused with 400 before any validation

    def _owner(self) -> Object:
        return {
            "apiVersion": self._choose(("v1", "apps/v1", "", "a/b/c", "a/", "/", "/v1")),
            "kind": self._choose(("Event", "Node", "")),
            "name": self._choose(("x", "")),
            "uid": self._choose(("u", "")),
            "controller": self._choose((None, True, False)),
        }


def _case(kind: str, operation: str, subresource: str, new: Object, old: Object | None) -> Case:
    return {
        "now": format_time(NOW),
        "kind": kind,
        "operation": operation,
        "subresource": subresource,
        "object": new,
        "oldObject": old,
    }


def _order(responder: Object) -> tuple[int, list[str], str]:
    domain, _, key = responder["name"].partition("/")
    return -(responder.get("priority") or 0), domain.split(".")[::-1], key
