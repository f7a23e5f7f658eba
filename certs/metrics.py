"""What an agent tells Prometheus. No caller makes up label values: their number is bounded."""

from collections.abc import Iterable
from typing import Final

from cryptography import x509
from prometheus_client import CollectorRegistry, Counter, Gauge, disable_created_metrics

from certs.holdings import Holdings
from certs.injection import Injected, Target

_PREFIX: Final = "usher_certs_"
CA: Final = "ca"
LEAF: Final = "leaf"


class Metrics:
    """Numbers of one agent, and the registry that shows them."""

    def __init__(self, *, has_server: bool) -> None:
        """``has_server``: whether the agent looks at what is served."""
        # When a counter began says nothing that anybody asks.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = registry = CollectorRegistry()
        self._not_before = Gauge(
            f"{_PREFIX}not_before_timestamp_seconds",
            "From when on a certificate of the store is valid (seconds since 1970).",
            ("certificate",),
            registry=registry,
        )
        self._not_after = Gauge(
            f"{_PREFIX}not_after_timestamp_seconds",
            "When a certificate of the store expires (seconds since 1970).",
            ("certificate",),
            registry=registry,
        )
        self._authorities = Gauge(
            f"{_PREFIX}authorities", "CAs of the store; two in a rotation.", registry=registry
        )
        self._in_sync = Gauge(
            f"{_PREFIX}ca_bundle_in_sync",
            "Whether the caBundles of a configuration were found as the store has the CAs.",
            ("resource", "name"),
            registry=registry,
        )
        self.served = Gauge(
            f"{_PREFIX}leaf_served",
            "Whether a handshake has shown the leaf of the store; for agents with --served.",
            registry=registry if has_server else None,
        )
        self.issued = Counter(
            f"{_PREFIX}issued",
            "Certificates that this agent has issued.",
            ("certificate",),
            registry=registry,
        )
        self.bundle_writes = Counter(
            f"{_PREFIX}ca_bundle_writes",
            "Configurations whose caBundles this agent has written.",
            registry=registry,
        )
        self.failures = Counter(
            f"{_PREFIX}failures",
            "What did not succeed and is tried again, by work and kind of failure.",
            ("work", "kind"),
            registry=registry,
        )
        for certificate in (CA, LEAF):
            self.issued.labels(certificate)

    def show(self, holdings: Holdings) -> None:
        """Show what the store holds."""
        self._authorities.set(len(holdings.authorities))
        serving = holdings.serving
        self._show(CA, holdings.newest)
        self._show(LEAF, serving.leaf if serving else None)

    def show_bundles(self, found: Iterable[Injected], out_of_step: Iterable[Injected]) -> None:
        """Show which configurations were found, and which of them have to be written."""
        behind: set[Target] = {each.target for each in out_of_step}
        self._in_sync.clear()  # one that is gone is out of step with nobody
        for each in found:
            target = each.target
            self._in_sync.labels(target.resource.name, target.name).set(target not in behind)

    def _show(self, role: str, certificate: x509.Certificate | None) -> None:
        begin = certificate.not_valid_before_utc.timestamp() if certificate else 0
        end = certificate.not_valid_after_utc.timestamp() if certificate else 0
        self._not_before.labels(role).set(begin)
        self._not_after.labels(role).set(end)
