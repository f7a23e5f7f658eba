"""What ``usher nodes`` reads from a cluster: nodes, pods, own requests, and budgets."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import click

from cli.exits import ClusterError, InputError
from cli.nodes.reading import Dump, Found
from cli.progress import counter
from cluster.client import Cluster
from cluster.configuration import ConfigurationError
from cluster.failures import ClusterFailure, Denied, Gone, Missing, Unauthenticated
from cluster.key import Key
from cluster.leader_election import NOTE
from cluster.resources import (
    DISRUPTION_BUDGETS,
    EVICTION_REQUESTS,
    LEASES,
    NODES,
    PODS,
    Resource,
)
from controller.node_health.planning.budget import StoredBudgets
from rules.api import API_VERSION
from rules.decode import DecodeError, decode_model, load
from rules.texts import printable

_USER_AGENT: Final = "usher-nodes"
_ROLE: Final = "docs/node-health.md has a role with all that is needed"


@dataclass(frozen=True, slots=True)
class Live:
    """A cluster as it stands."""

    dump: Dump
    now: datetime
    """By the clock of the API server, which nodes and budgets go by."""


def read_live(kubeconfig: Path | None, requester: str, lease: Key) -> Live:
    """The nodes, pods and requests of ``requester`` in the cluster, and the budgets in ``lease``.

    ``kubeconfig`` None means the service account of the pod around us. What may be missing is said
    on standard error. Raises InputError, ClusterError.
    """
    try:
        return asyncio.run(_read(kubeconfig, requester, lease))
    except ConfigurationError as error:
        reason = str(error).rstrip(".")
        raise InputError(
            f"{reason}. Outside of a cluster give --kubeconfig, or a FILE with a dump of it."
        ) from None
    except Denied as denied:
        raise ClusterError(_without(denied)) from None
    except Gone:
        raise ClusterError(
            "the cluster changed while it was read page by page; try again"
        ) from None
    except (ClusterFailure, OSError) as failure:
        raise ClusterError(
            printable(f"the API server can't be read: {failure}. Is it up, and the address right?")
        ) from None


async def _read(kubeconfig: Path | None, requester: str, lease: Key) -> Live:
    found = Found(requester)
    async with Cluster(kubeconfig, _USER_AGENT) as cluster:
        await _all(cluster, NODES, found.node)
        if not found.nodes:
            raise ClusterError("the cluster has no nodes: there is nothing to show")
        await _all(cluster, PODS, found.pod)
        try:
            await _all(cluster, EVICTION_REQUESTS, found.request)
        except Missing:
            _say(
                f"the API {API_VERSION} is not served, so that nobody has been asked to leave; "
                "to have it: usher crds | kubectl apply --server-side -f -"
            )
        await _disruption_budgets(cluster, found)
        state = await _budgets(cluster, lease)
        return Live(found.live(state), cluster.time.now())


async def _all(cluster: Cluster, resource: Resource, take: Callable[[Any], None]) -> None:
    """Give all objects to ``take``, page by page: whole ones would need much memory."""
    with counter(f"reading {resource.name}") as count:
        read = 0
        async for page in cluster.pages(resource):
            for item in page.items:
                try:
                    take(item)
                except DecodeError as error:
                    name = item.get("metadata", {}).get("name")
                    raise ClusterError(printable(f"{resource.name} '{name}': {error}")) from None
            read += len(page.items)
            count(read)


async def _disruption_budgets(cluster: Cluster, found: Found) -> None:
    try:
        await _all(cluster, DISRUPTION_BUDGETS, found.disruption_budget)
        found.know_disruption_budgets()
    except Denied as denied:
        _say(f"which budgets would refuse is not known: {_without(denied)}")


async def _budgets(cluster: Cluster, lease: Key) -> StoredBudgets | None:
    """What zones may spend, as the controller told last; None: nobody knows."""
    name = f"{lease.namespace}/{lease.name}"
    try:
        metadata = (await cluster.get(LEASES, lease))["metadata"]
        note = (metadata.get("annotations") or {}).get(NOTE)
        if note is not None:
            return decode_model(StoredBudgets, load(note.encode()))
        _say(f"the Lease {name} tells no budgets: does a controller run with --node-health?")
    except Missing:
        _say(f"there is no Lease {name}: no controller runs, or --lease-name is another")
    except Denied as denied:
        _say(f"budgets are not known: {_without(denied)}")
    except DecodeError as error:
        _say(printable(f"the budgets in the Lease {name} can't be read: {error}"))
    return None


def _without(denied: Denied) -> str:
    role = "" if isinstance(denied, Unauthenticated) else f"; {_ROLE}"
    return printable(f"{denied.explanation} ({denied}){role}")


def _say(what: str) -> None:
    click.echo(what, err=True)
