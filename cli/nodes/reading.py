"""From dumps of a cluster and a timeline's file to what is planned with."""

import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from msgspec import structs

from cli.exits import InputError
from cli.manifests.documents import Document, read_documents
from cli.manifests.objects import Manifest, read_manifests
from cli.manifests.sources import STANDARD_INPUT, Source, find_sources
from cli.nodes.budgets import (
    DisruptionBudget,
    GuardedObject,
    GuardedPod,
    Refusal,
    refusals,
)
from cli.progress import track
from cli.suggestions import nearest
from cluster.key import Key
from controller.node_health.planning.budget import StoredBudgets, restored
from controller.node_health.planning.plan import NodeHealthSnapshot, request_name
from controller.node_health.planning.pods import NodePod, OwnRequest, Pods
from controller.node_health.planning.simulation import Timeline, TimelineEvent
from controller.node_health.planning.zones import READY, Node, NodeObject
from rules.api import GROUP, ConditionStatus, EvictionRequest
from rules.decode import DecodeError, decode_model, load, unknown_fields
from rules.states import condition_of
from rules.texts import printable

DEFAULT_TOLERATION: Final = timedelta(seconds=300)
"""What API servers give to pods that say nothing about failed nodes (the admission plugin
DefaultTolerationSeconds)."""
_DUMP_HELP: Final = "make one with 'kubectl get nodes,pods -A -o json'"
_TIMELINE_WORDS: Final = [
    field.encode_name for model in (Timeline, TimelineEvent) for field in structs.fields(model)
]


@dataclass(frozen=True, slots=True)
class Dump:
    """A cluster, as somebody has dumped it or as it stands."""

    snapshot: NodeHealthSnapshot
    knows_pods: bool
    """Else each node is taken to have one pod with the default tolerations."""
    knows_budgets: bool = False
    """Whether the snapshot has the budgets of a controller."""
    refusals: tuple[Refusal, ...] | None = None
    """The pods that PodDisruptionBudgets would keep on failed nodes; None: these are not known."""


class Found:
    """What has been read until now, each object cut down at once. Raises DecodeError."""

    def __init__(self, requester: str) -> None:
        """``requester``: whose EvictionRequests count."""
        self.nodes: dict[str, Node] = {}
        self._requester = requester
        self._pods: list[NodePod] = []
        self._guarded: list[GuardedPod] = []
        self._guards: list[DisruptionBudget] | None = None
        self._requests: dict[str, OwnRequest] = {}

    def node(self, value: Any) -> None:
        """Take a node, as the API serves it."""
        node = Node.of(decode_model(NodeObject, value))
        self.nodes[node.name] = node

    def pod(self, value: Any) -> None:
        """Take a pod."""
        pod = decode_model(GuardedObject, value)
        place = NodePod.of(pod)
        self._pods.append(place)
        ready = condition_of(pod.status.conditions, READY)
        is_ready = ready is not None and ready.status == ConditionStatus.TRUE
        self._guarded.append(GuardedPod(place, pod.metadata.labels, pod.status.phase, is_ready))

    def disruption_budget(self, value: Any) -> None:
        """Take a PodDisruptionBudget."""
        self.know_disruption_budgets().append(decode_model(DisruptionBudget, value))

    def know_disruption_budgets(self) -> list[DisruptionBudget]:
        """Those that were taken; from now on it is known that there are no others."""
        if self._guards is None:
            self._guards = []
        return self._guards

    def request(self, value: Any) -> None:
        """Take an EvictionRequest, if it is one that the controller makes for a node's sake."""
        request = decode_model(EvictionRequest, value)
        own = OwnRequest.of(request)
        is_ours = request.spec.requester == self._requester
        if is_ours and own.key.name == request_name(own.pod_uid):
            self._requests[own.pod_uid] = own

    def dump(self) -> Dump:
        """All of it, as somebody has dumped it."""
        pods = self._pods or [_guessed(node) for node in self.nodes.values()]
        return Dump(
            self._snapshot(pods, StoredBudgets()),
            knows_pods=bool(self._pods),
            refusals=self._refusals(),
        )

    def live(self, state: StoredBudgets | None) -> Dump:
        """All of it, as it stands; ``state`` is what the controller has told, None: nothing."""
        snapshot = self._snapshot(self._pods, state or StoredBudgets())
        return Dump(
            snapshot,
            knows_pods=True,
            knows_budgets=state is not None,
            refusals=self._refusals(),
        )

    def _refusals(self) -> tuple[Refusal, ...] | None:
        if self._guards is None:
            return None
        return tuple(sorted(refusals(self.nodes, self._guarded, self._guards)))

    def _snapshot(self, pods: Iterable[NodePod], state: StoredBudgets) -> NodeHealthSnapshot:
        return NodeHealthSnapshot(
            self.nodes, Pods.of(pods), self._requests, restored(state), outage=state.outage
        )


def read_dump(paths: Iterable[str], requester: str) -> Dump:
    """The nodes, pods and requests of ``requester`` in the files; other kinds are left alone.

    Raises InputError.
    """
    found = Found(requester)
    for source in find_sources(paths):
        for value in track(_objects(source), f"reading {source.name}"):
            try:
                _take(value, found)
            except DecodeError as error:
                name = f"{value.get('kind')} '{_name(value)}'"
                raise InputError(printable(f"{source.name}: {name}: {error}")) from None
    if not found.nodes:
        raise InputError(f"the input must hold nodes; {_DUMP_HELP}")
    return found.dump()


def read_timeline(path: str) -> Timeline:
    """The timeline in the file ``path``, YAML or JSON. Raises InputError."""
    source = Source(path)
    documents = list(read_documents(source.name, _read(source)))
    if len(documents) != 1:
        raise InputError(f"{source.name}: must hold one timeline")
    (document,) = documents
    if not isinstance(document, Document):
        raise InputError(f"{source.name}:{document.line}: {printable(document.message)}")
    for problem in document.problems:
        raise InputError(f"{source.name}:{problem.line}: {printable(problem.message)}")
    for field in unknown_fields(Timeline, document.value):
        hint = nearest(field.rpartition(".")[2], _TIMELINE_WORDS)
        raise InputError(printable(f"{source.name}: {field}: no such field{hint}"))
    try:
        return decode_model(Timeline, document.value)
    except DecodeError as error:
        raise InputError(printable(f"{source.name}: {error}")) from None


def _take(value: Any, found: Found) -> None:
    group, _, _ = str(value.get("apiVersion", "")).rpartition("/")
    match group, value.get("kind"):
        case "", "Node":
            found.node(value)
        case "", "Pod":
            found.pod(value)
        case "policy", "PodDisruptionBudget":
            found.disruption_budget(value)
        case group, "EvictionRequest" if group == GROUP:
            found.request(value)
        case _:
            pass


def _objects(source: Source) -> Iterator[dict[str, Any]]:
    data = _read(source)
    if data.lstrip().startswith(b"{"):
        # Not as manifests are read: a large cluster's dump is larger than those may be.
        try:
            yield from _items(load(data))
        except DecodeError as error:
            raise InputError(printable(f"{source.name}: {error}")) from None
        return
    for part in read_manifests(source.name, data):
        if not isinstance(part, Manifest):
            raise InputError(f"{source.name}:{part.line}: {printable(part.message)}")
        if isinstance(part.value, dict):
            yield part.value


def _items(value: dict[str, Any]) -> Iterator[dict[str, Any]]:
    kind = str(value.get("kind", ""))
    items = value.get("items")
    if not kind.endswith("List") or not isinstance(items, list):
        yield value
        return
    # API servers leave both out in typed lists, kubectl does not.
    typed = {"apiVersion": value.get("apiVersion"), "kind": kind.removesuffix("List")}
    yield from (typed | item for item in items if isinstance(item, dict))


def _read(source: Source) -> bytes:
    try:
        if source.path == STANDARD_INPUT:
            return sys.stdin.buffer.read()
        return Path(source.path).read_bytes()
    except OSError as error:
        raise InputError(f"{source.name}: {error.strerror}") from None


def _name(value: Any) -> str:
    metadata = value.get("metadata")
    return str(metadata.get("name", "")) if isinstance(metadata, dict) else ""


def _guessed(node: Node) -> NodePod:
    return NodePod(Key("", node.name), node.name, node.name, DEFAULT_TOLERATION, DEFAULT_TOLERATION)
