"""Command lines of the programs of a cluster, as far as a test bed needs them."""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.controlplane.credentials import Credentials
from tests.controlplane.ports import HOST

_GARBAGE_PERCENT: Final = "800"
"""At Go's own 100, collecting garbage is a quarter of what an API server's start costs."""


def environment() -> dict[str, str]:
    """Environment of every program of a cluster: ours, with less care for memory."""
    return {"GOGC": _GARBAGE_PERCENT, **os.environ}


def etcd_arguments(data: Path, client_port: int, peer_port: int) -> list[str]:
    """One member on loopback. It never syncs to disk: its data dies with the test."""
    client, peer = f"http://{HOST}:{client_port}", f"http://{HOST}:{peer_port}"
    return [
        f"--data-dir={data}",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=default={peer}",
        "--unsafe-no-fsync",
        "--log-level=warn",
    ]


@dataclass(frozen=True, slots=True)
class ApiserverOptions:
    """What differs between two starts of an API server."""

    port: int
    etcd_url: str
    credentials: Credentials
    token_file: Path
    feature_gates: Mapping[str, bool] = field(default_factory=dict)
    runtime_config: Mapping[str, bool] = field(default_factory=dict)
    audit_policy: Path | None = None
    audit_log: Path | None = None
    workloads: bool = False
    extra_arguments: Sequence[str] = ()


_FOR_WORKLOADS: Final = (
    # Pods have addresses of their own, and come from there.
    "--bind-address=0.0.0.0",
    # There is no kube-proxy: webhooks are called at the addresses behind their Services.
    "--enable-aggregator-routing=true",
)
_WITHOUT_WORKLOADS: Final = (
    f"--bind-address={HOST}",
    # Without a controller manager no namespace has the service account that it demands.
    "--disable-admission-plugins=ServiceAccount",
)


def apiserver_arguments(options: ApiserverOptions) -> list[str]:
    """Serve with RBAC and static tokens; without workloads on loopback alone."""
    keys = options.credentials
    arguments = [
        f"--etcd-servers={options.etcd_url}",
        f"--advertise-address={HOST}",
        f"--secure-port={options.port}",
        # A loopback address is no valid endpoint, and nobody looks for the default Service.
        "--endpoint-reconciler-type=none",
        "--service-cluster-ip-range=10.0.0.0/24",
        f"--tls-cert-file={keys.serving_certificate}",
        f"--tls-private-key-file={keys.serving_key}",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={keys.service_account_key}",
        f"--service-account-signing-key-file={keys.service_account_key}",
        f"--token-auth-file={options.token_file}",
        "--authorization-mode=RBAC",
    ]
    arguments += _FOR_WORKLOADS if options.workloads else _WITHOUT_WORKLOADS
    arguments += _switches("--feature-gates", options.feature_gates)
    arguments += _switches("--runtime-config", options.runtime_config)
    if options.audit_log and options.audit_policy:
        arguments += [
            f"--audit-log-path={options.audit_log}",
            f"--audit-policy-file={options.audit_policy}",
        ]
    return [*arguments, *options.extra_arguments]


def _switches(flag: str, values: Mapping[str, bool]) -> list[str]:
    pairs = [f"{name}={str(on).lower()}" for name, on in sorted(values.items())]
    return [f"{flag}={','.join(pairs)}"] if pairs else []


_CONTROLLERS = (
    "disruption-controller",
    "garbage-collector-controller",
    "namespace-controller",
    "pod-garbage-collector-controller",
)
"""The controllers without which a cluster would not end what evictions begin."""
_WORKLOAD_CONTROLLERS = (
    *_CONTROLLERS,
    "deployment-controller",
    "endpointslice-controller",
    "replicaset-controller",
    "root-ca-certificate-publisher-controller",
    "serviceaccount-controller",
)
"""And those that make pods of Deployments, and endpoints of pods."""


def controller_manager_arguments(
    port: int, kubeconfig: Path, keys: Credentials, *, workloads: bool
) -> list[str]:
    """A few of Kubernetes' controllers, each with its own service account as in a cluster."""
    controllers = _WORKLOAD_CONTROLLERS if workloads else _CONTROLLERS
    return [
        f"--kubeconfig={kubeconfig}",
        f"--controllers={','.join(controllers)}",
        f"--root-ca-file={keys.ca_certificate}",
        "--use-service-account-credentials",
        "--leader-elect=false",
        f"--bind-address={HOST}",
        f"--secure-port={port}",
        f"--tls-cert-file={keys.serving_certificate}",
        f"--tls-private-key-file={keys.serving_key}",
        # Tests ask for hundreds of deletions at once, and there are no other clients to spare.
        "--kube-api-qps=500",
        "--kube-api-burst=500",
    ]


def kubelet_arguments(port: int, kubeconfig: Path, stages: Sequence[Path]) -> list[str]:
    """The fake kubelet of every node that there is."""
    return [
        f"--kubeconfig={kubeconfig}",
        "--manage-all-nodes=true",
        f"--server-address={HOST}:{port}",
        *(f"--config={stage}" for stage in stages),
    ]


_WRITES: Final = ("create", "update", "patch", "delete", "deletecollection")


def audit_policy(*, bodies: bool = True) -> str:
    """Record who did what, and the bodies of what webhooks may see."""
    judged: list[dict[str, Any]] = [
        {"group": "lifecycle.k8s.io"},
        {"group": "", "resources": ["pods", "pods/eviction"]},
    ]
    written = {"level": "RequestResponse", "verbs": _WRITES, "resources": judged}
    return json.dumps(
        {
            "apiVersion": "audit.k8s.io/v1",
            "kind": "Policy",
            "omitStages": ["RequestReceived"],
            "rules": [
                {"level": "None", "users": ["system:apiserver"]},
                *([written] if bodies else []),
                {"level": "Metadata"},
            ],
        }
    )
