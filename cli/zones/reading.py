"""From dumps of a cluster and a timeline's file to what is planned with."""

import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from cli.documents import Document, read_documents
from cli.exits import InputError
from cli.manifests import Manifest, read_manifests
from cli.sources import STANDARD_INPUT, Source, find_sources
from cli.suggestions import nearest
from cluster.key import Key
from controller.planning.node_health import REQUESTER, NodeHealthSnapshot
from controller.planning.node_pods import NodePod, OwnRequest, PodObject, Pods
from controller.simulation import Timeline, TimelineEvent
from controller.zones import Node, NodeObject
from rules.api import GROUP, EvictionRequest
from rules.decode import DecodeError, decode_model, load, unknown_fields
from webhook.review import printable

DEFAULT_TOLERATION: Final = timedelta(seconds=300)
"""What API servers give to pods that say nothing about failed nodes (the admission plugin
DefaultTolerationSeconds)."""
_DUMP_HELP: Final = "make one with 'kubectl get nodes,pods -A -o json'"
_TIMELINE_WORDS: Final = [
    info.alias or name
    for model in (Timeline, TimelineEvent)
    for name, info in model.model_fields.items()
]


@dataclass(frozen=True, slots=True)
class Dump:
    """A cluster, as somebody has dumped it."""

    snapshot: NodeHealthSnapshot
    knows_pods: bool
    """Else each node is taken to have one pod with the default tolerations."""


@dataclass(slots=True)
class _Found:
    nodes: list[Node]
    pods: list[NodePod]
    requests: list[OwnRequest]


def read_dump(paths: Iterable[str]) -> Dump:
    """The nodes, pods and requests of ours in the files; other kinds are left alone.

    Raises InputError.
    """
    found = _Found([], [], [])
    for source in find_sources(paths):
        for value in _objects(source):
            try:
                _take(value, found)
            except DecodeError as error:
                name = f"{value.get('kind')} '{_name(value)}'"
                raise InputError(printable(f"{source.name}: {name}: {error}")) from None
    if not found.nodes:
        raise InputError(f"the input must hold nodes; {_DUMP_HELP}")
    pods = found.pods or [_guessed(node) for node in found.nodes]
    snapshot = NodeHealthSnapshot(
        {node.name: node for node in found.nodes},
        Pods.of(pods),
        {request.pod_uid: request for request in found.requests},
    )
    return Dump(snapshot, knows_pods=bool(found.pods))


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


def _take(value: Any, found: _Found) -> None:
    group, _, _ = str(value.get("apiVersion", "")).rpartition("/")
    match group, value.get("kind"):
        case "", "Node":
            found.nodes.append(Node.of(decode_model(NodeObject, value)))
        case "", "Pod":
            found.pods.append(NodePod.of(decode_model(PodObject, value)))
        case group, "EvictionRequest" if group == GROUP:
            request = decode_model(EvictionRequest, value)
            if request.spec.requester == REQUESTER:
                found.requests.append(OwnRequest.of(request))
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
