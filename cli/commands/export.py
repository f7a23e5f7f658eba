"""``usher export``: EvictionRequests and Evictions of a cluster, as JSON lines."""

import asyncio
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Final

import click
import msgspec

from cli.exits import ClusterError, InputError
from cli.options import CONTEXT_SETTINGS, common_options
from cli.progress import counting
from cluster.client import Cluster
from cluster.configuration import ConfigurationError
from cluster.failures import ClusterFailure, Denied, Missing, Unauthenticated
from cluster.resources import EVICTION_REQUESTS, EVICTIONS
from rules.api import API_VERSION

_KINDS: Final = {EVICTION_REQUESTS: "EvictionRequest", EVICTIONS: "Eviction"}
_DROPPED: Final = ("managedFields", "resourceVersion", "selfLink")
"""Metadata that mean something to one API server only."""
_STANDARD_OUTPUT: Final = "-"

_EPILOG: Final = """\b
Examples:
  usher export evictions.jsonl --kubeconfig ~/.kube/config
  usher export - --namespace db | jq .metadata.name

\b
Each line is one object, EvictionRequests first: {"apiVersion", "kind", "metadata", "spec",
"status"}. 'usher restore' reads them.

Exit codes: 0 exported, 2 bad usage, 3 the cluster does not answer or does not serve the API.
"""


@click.command(name="export", context_settings=CONTEXT_SETTINGS, epilog=_EPILOG)
@click.argument("file", metavar="FILE|-")
@click.option(
    "--kubeconfig",
    type=click.Path(dir_okay=False, path_type=Path),
    help="How to reach the API server, and as whom.  [default: the pod's service account]",
)
@click.option("--namespace", default="", help="Only objects of this namespace.  [default: all]")
@common_options
def command(*, file: str, kubeconfig: Path | None, namespace: str, **_: Any) -> None:
    """Write EvictionRequests and Evictions of a cluster to FILE, with their status.

    For a switch of the cluster from CustomResourceDefinitions to the native API, which hides them,
    and for disasters. FILE must be new; it appears when everything is in it. See docs/modes.md.
    """
    with _new_file(file) as output, counting("Exporting") as count:
        counts = asyncio.run(_export(kubeconfig, namespace, output, count))
    found = ", ".join(f"{number} {kind}s" for kind, number in counts.items())
    click.echo(f"{found} exported", err=True)


async def _export(
    kubeconfig: Path | None, namespace: str, output: IO[bytes], count: Callable[[int], None]
) -> dict[str, int]:
    counts = dict.fromkeys(_KINDS.values(), 0)
    try:
        async with Cluster(kubeconfig, "usher-export") as cluster:
            for resource, kind in _KINDS.items():
                async for page in cluster.pages(resource, namespace):
                    for document in page.items:
                        output.write(msgspec.json.encode(_cleaned(kind, document)) + b"\n")
                    counts[kind] += len(page.items)
                    count(len(page.items))
    except ConfigurationError as error:
        raise InputError(f"{error}. Outside of a cluster give --kubeconfig.") from None
    except ClusterFailure as failure:
        raise ClusterError(explained(failure)) from None
    return counts


def _cleaned(kind: str, document: Mapping[str, Any]) -> dict[str, Any]:
    metadata = {key: value for key, value in document["metadata"].items() if key not in _DROPPED}
    # API servers leave version and kind out of the items of a list.
    return {**document, "apiVersion": API_VERSION, "kind": kind, "metadata": metadata}


def explained(failure: ClusterFailure) -> str:
    """What has failed, and the way out."""
    if isinstance(failure, Missing):
        return (
            f"the cluster does not serve {API_VERSION}. Install the CustomResourceDefinitions "
            "(usher crds | kubectl apply --server-side -f -) or turn the API on."
        )
    if isinstance(failure, Denied):
        rights = "" if isinstance(failure, Unauthenticated) else " See docs/modes.md."
        return f"{failure.explanation}: {failure}.{rights}"
    return f"{str(failure).rstrip('.')}. Try again when the API server answers."


@contextmanager
def _new_file(name: str) -> Iterator[IO[bytes]]:
    """A file that appears when the block has ended well; or standard output."""
    if name == _STANDARD_OUTPUT:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    path = Path(name)
    if path.exists():
        # Whoever repeats the command after the switch would replace everything by nothing.
        raise InputError(f"{path}: exists already. Choose another name, or move it away.")
    try:
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}-") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
            os.link(file.name, path)  # fails if somebody else has made it meanwhile
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}. Choose another place.") from None
