"""What the controller remembers of a cluster, and how much memory that takes.

Run as a program it fills the informers of a controller from a made-up cluster, lists everything
anew, and prints what that took.
"""

import argparse
import asyncio
import gc
import json
import uuid
from collections.abc import AsyncGenerator, AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import Raw

from cluster.client import PAGE, Page
from cluster.key import Key
from cluster.resources import EVICTION_REQUESTS, EVICTIONS, PODS, Resource
from cluster.server_time import ServerTime
from controller.app import Controller, Settings
from controller.metrics import Metrics
from controller.node_health.reconciler import NodeHealth
from rules.api import API_VERSION, EVICTOR
from tests.controller.objects import Document

LISTS: Final = 3
"""How often everything is listed."""
_TIME: Final = "2026-11-{day:02}T10:{minute:02}:00Z"
_FIELDS: Final = [
    {
        "manager": manager,
        "operation": "Apply",
        "apiVersion": API_VERSION,
        "time": "2026-11-01T10:00:00Z",
        "fieldsType": "FieldsV1",
        "fieldsV1": {
            "f:metadata": {"f:labels": {"f:nodes.acme.io/drain": {}}, "f:ownerReferences": {}},
            "f:spec": {"f:target": {"f:pod": {".": {}, "f:name": {}, "f:uid": {}}}},
        },
    }
    for manager in ("usher-controller", "usher-evictor", "db-operator")
]


def _uid(kind: int, number: int) -> str:
    return str(uuid.uuid5(uuid.NAMESPACE_OID, f"{kind} {number}"))


def _metadata(kind: int, number: int, name: str) -> Document:
    return {
        "name": name,
        "namespace": f"team-{number % 40}",
        "uid": _uid(kind, number),
        "resourceVersion": str(10**8 + number * 4 + kind),
        "generation": 1,
        "creationTimestamp": _TIME.format(day=1 + number % 28, minute=number % 60),
        "managedFields": _FIELDS,
    }


def _pod_name(number: int) -> str:
    return f"checkout-service-{_uid(9, number)[:10]}-{number % 99991:05}"


def pod(number: int) -> Document:
    """A pod as a Deployment makes it, some 3 kB."""
    container = {"name": "app", "image": "registry.example.com/checkout:1.2.3", "env": ["x"] * 40}
    return {
        "metadata": _metadata(0, number, _pod_name(number)) | {"labels": {"app": "checkout"}},
        "spec": {"nodeName": f"node-{number % 300}", "containers": [container] * 2},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
    }


def _ended(number: int) -> Document:
    time = _TIME.format(day=1 + number % 28, minute=(number + 3) % 60)
    failed = {"type": "Failed", "status": "False", "reason": "Succeeded", "message": ""}
    evicted = {
        "type": "TargetEvicted",
        "status": "True",
        "reason": "PodDeleted",
        "message": "Target pod has been deleted.",
    }
    conditions = [{**each, "lastTransitionTime": time} for each in (failed, evicted)]
    return {"conditions": conditions, "observedGeneration": 1}


def eviction(number: int) -> Document:
    """An Eviction with three responders that has ended well; its pod is gone."""
    name = _pod_name(-number)
    owner = {"name": f"drain-{name}", "uid": _uid(2, number)}
    own = {"db.acme.io/failover": 10_000, "mesh.example.com/drain": 5_000, EVICTOR: 100}
    return {
        "metadata": _metadata(1, number, f"pod-1-{name}")
        | {
            "labels": {"nodes.acme.io/drain": "requester"} | dict.fromkeys(own, "responder"),
            "ownerReferences": [{"apiVersion": API_VERSION, "kind": "EvictionRequest", **owner}],
        },
        "spec": {"target": {"pod": {"name": name, "uid": _uid(3, number)}}},
        "status": _ended(number)
        | {
            "requesters": [{"name": "nodes.acme.io/drain", "intent": "Eviction"}],
            "targetResponders": [
                {"name": name, "priority": priority, "state": "Completed"}
                for name, priority in own.items()
            ],
            "responders": [
                {"name": name, "startTime": "2026-11-01T10:00:00Z", "message": "All is done."}
                for name in own
            ],
        },
    }


def request(number: int) -> Document:
    """The request of :func:`eviction`, which has been told its end."""
    name = _pod_name(-number)
    return {
        "metadata": _metadata(2, number, f"drain-{name}"),
        "spec": {
            "target": {"pod": {"name": name, "uid": _uid(3, number)}},
            "requester": "nodes.acme.io/drain",
            "intent": "Eviction",
        },
        "status": _ended(number),
    }


_MAKE: Final = {PODS: pod, EVICTIONS: eviction, EVICTION_REQUESTS: request}


class Cluster:
    """A cluster that has what is asked for, and never changes."""

    def __init__(self, pods: int, pairs: int) -> None:
        self._numbers = {PODS: pods, EVICTIONS: pairs, EVICTION_REQUESTS: pairs}
        self.time = ServerTime()
        self.clock_ahead = timedelta()

    async def encoded_pages(self, resource: Resource) -> AsyncGenerator[Page, None]:
        number = self._numbers.get(resource, 0)
        for first in range(0, number, PAGE):
            made = [_MAKE[resource](each) for each in range(first, min(first + PAGE, number))]
            items = [Raw(msgspec.json.encode(each)) for each in made]
            del made
            yield Page(items, str(10**9))
            await asyncio.sleep(0)
        if not number:
            yield Page([], str(10**9))

    async def watch(self, *_: Any) -> AsyncIterator[Any]:
        await asyncio.get_running_loop().create_future()
        yield None


async def _fill(pods: int, pairs: int, *, node_health: bool) -> dict[str, float]:
    cluster: Any = Cluster(pods, pairs)
    health = NodeHealth() if node_health else None
    settings = Settings(None, "me", Key("kube-system", "usher"), node_health=health)
    controller = Controller(cluster, settings, Metrics())
    measured = {"startMiB": _mib("VmRSS")}
    informers = controller._own_informers
    for number in range(LISTS):
        for informer in informers:
            await informer._list()
        if number == 0:
            measured["firstListMiB"] = _mib("VmHWM")
    gc.collect()
    return measured | {"peakMiB": _mib("VmHWM"), "restMiB": _mib("VmRSS")}


def _mib(what: str) -> float:
    """A figure of ``/proc/self/status`` (proc_pid_status(5)), in MiB."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{what}:"):
            return round(int(line.split()[1]) / 1024, 1)
    raise AssertionError(what)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pods", type=int, default=20_000)
    parser.add_argument("--pairs", type=int, default=10_000)
    parser.add_argument("--node-health", action="store_true")
    options = parser.parse_args()
    figures = asyncio.run(_fill(options.pods, options.pairs, node_health=options.node_health))
    print(json.dumps(figures))
