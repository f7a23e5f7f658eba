"""``caBundle``: which CAs API servers trust when they call the webhook.

A bundle is always written as the whole of what the store holds, and only in the version of the
configuration that was read *before* the store. Whoever has seen an older store than another has
therefore seen an older configuration as well, and its late write is refused: a CA that is in
use never leaves a bundle by accident.
"""

import base64
import binascii
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from cryptography import x509

from certs.holdings import bundle, bundle_certificates
from cluster.client import Cluster, Document
from cluster.failures import Missing
from cluster.key import Key
from cluster.resources import (
    MUTATING_CONFIGURATIONS,
    VALIDATING_CONFIGURATIONS,
    Resource,
)

_MANAGER: Final = "usher-certs"
"""The field manager: it owns the bundles and nothing else, so that installers keep the rest."""
_API_VERSION: Final = "admissionregistration.k8s.io/v1"
_KINDS: Final = {
    VALIDATING_CONFIGURATIONS: "ValidatingWebhookConfiguration",
    MUTATING_CONFIGURATIONS: "MutatingWebhookConfiguration",
}


class Target(NamedTuple):
    """A configuration whose bundles are ours."""

    resource: Resource
    name: str

    def __str__(self) -> str:
        return f"{_KINDS[self.resource]} {self.name}"


class Injected(NamedTuple):
    """A configuration as it was read."""

    target: Target
    document: Document

    @property
    def bundles(self) -> dict[str, tuple[x509.Certificate, ...]]:
        """Webhook → the CAs in its bundle; none if it is empty or unreadable."""
        webhooks = self.document.get("webhooks") or ()
        return {webhook["name"]: _certificates(webhook) for webhook in webhooks}

    def agrees(self, authorities: Sequence[x509.Certificate]) -> bool:
        """Whether every webhook's bundle has these CAs and no others, in whatever order."""
        return all(set(found) == set(authorities) for found in self.bundles.values())


class Bundles:
    """The bundles of some configurations. Needs ``get`` and ``patch`` on each of them, by name."""

    def __init__(self, cluster: Cluster | None, targets: Iterable[Target]) -> None:
        """``cluster`` may be None where there are no targets."""
        self._cluster = cluster
        self._targets = tuple(targets)

    async def read(self) -> list[Injected]:
        """Every configuration that exists. Raises ClusterFailure."""
        found: list[Injected] = []
        if self._cluster is None:
            return found
        for target in self._targets:
            try:
                document = await self._cluster.get(target.resource, Key("", target.name))
            except Missing:
                continue  # nothing calls the webhook by it
            found.append(Injected(target, document))
        return found

    async def write(self, read: Injected, authorities: Sequence[x509.Certificate]) -> None:
        """Replace the bundles of a configuration, nothing else.

        Raises ClusterFailure; Conflict if somebody has written to it since it was read.
        """
        target, metadata = read.target, read.document["metadata"]
        content = base64.b64encode(bundle(authorities)).decode()
        patch: dict[str, Any] = {
            "apiVersion": _API_VERSION,
            "kind": _KINDS[target.resource],
            "metadata": {
                "name": target.name,
                "uid": metadata["uid"],
                "resourceVersion": metadata["resourceVersion"],
            },
            "webhooks": [
                {"name": name, "clientConfig": {"caBundle": content}} for name in read.bundles
            ],
        }
        if self._cluster is not None:
            key = Key("", target.name)
            await self._cluster.apply(target.resource, key, patch, manager=_MANAGER)


def _certificates(webhook: Document) -> tuple[x509.Certificate, ...]:
    content = (webhook.get("clientConfig") or {}).get("caBundle") or ""
    try:
        return bundle_certificates(base64.b64decode(content))
    except (binascii.Error, ValueError):
        return ()
