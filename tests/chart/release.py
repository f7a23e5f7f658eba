"""A release of the chart, and what it has brought about in its cluster."""

import base64
import json
from collections.abc import Mapping
from typing import Any, Final

from certs.holdings import bundle_certificates
from tests.chart.cluster import CHART, NAMESPACE, RELEASE, Cluster, Result
from tests.e2e.objects import eviction, request
from tests.e2e.test_writes import finished_at_once
from tests.e2e.waiting import eventually

Values = Mapping[str, Any]
_REGISTRATION: Final = "/apis/admissionregistration.k8s.io/v1"
_KINDS: Final = ("validatingwebhookconfigurations", "mutatingwebhookconfigurations")
_OURS: Final = "labelSelector=app.kubernetes.io/part-of=usher"
SECRET: Final = f"/api/v1/namespaces/{NAMESPACE}/secrets/{RELEASE}-tls"
_EVICTIONS: Final = "/apis/lifecycle.k8s.io/v1alpha1/namespaces/default/evictions"
_DEFINITIONS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
MERGE_PATCH: Final = "application/merge-patch+json"
_PATIENCE: Final = "10m"
_LIAR_USER: Final = "viewer"
_LIAR: Final = {
    "clusterroles": {
        "metadata": {"name": "liar"},
        "rules": [
            {
                "apiGroups": ["lifecycle.k8s.io"],
                "resources": ["evictionrequests"],
                "verbs": ["create"],
            }
        ],
    },
    "clusterrolebindings": {
        "metadata": {"name": "liar"},
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": "ClusterRole",
            "name": "liar",
        },
        "subjects": [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": _LIAR_USER}],
    },
}
"""May make requests, but under no name."""


def flags(values: Values) -> list[str]:
    """Values as flags of helm."""
    return [f"--set-json={name}={json.dumps(value)}" for name, value in values.items()]


class Release:
    """The chart under the name ``usher``, handled by one of helm's versions."""

    def __init__(self, cluster: Cluster, program: str = "helm") -> None:
        self.cluster = cluster
        self._program = program

    def helm(self, *arguments: str, check: bool = True) -> Result:
        return self.cluster.helm(*arguments, program=self._program, check=check)

    def install(self, values: Values, *more: str) -> None:
        self.helm(
            *("install", RELEASE, str(CHART), "--create-namespace", *more),
            *("--timeout", _PATIENCE, *flags(values)),
        )

    def upgrade(self, values: Values, *more: str) -> None:
        self.helm(
            *("upgrade", RELEASE, str(CHART), "--reuse-values", *more),
            *("--timeout", _PATIENCE, *flags(values)),
        )

    def uninstall(self) -> None:
        self.helm("uninstall", RELEASE)

    def is_gone(self) -> bool:
        """Whether nothing is left of what judges or runs."""
        return not self.cluster.pods() and not self.configurations()

    def clear(self) -> None:
        """Remove whatever a test may have left behind."""
        self.helm("uninstall", RELEASE, "--ignore-not-found", check=False)
        for path in (*self.configurations(), SECRET):
            self.cluster.plane.request("DELETE", path)
        eventually(self.is_gone, "the pods are gone")

    # --- configurations -----------------------------------------------------------------------

    def configurations(self) -> list[str]:
        """Paths of the webhook configurations."""
        return [
            f"{_REGISTRATION}/{kind}/{each['metadata']['name']}"
            for kind in _KINDS
            for each in self.cluster.call("GET", f"{_REGISTRATION}/{kind}?{_OURS}")["items"]
        ]

    def webhooks(self) -> dict[str, dict[str, Any]]:
        """Every registered webhook, by name."""
        return {
            hook["name"]: hook
            for path in self.configurations()
            for hook in self.cluster.call("GET", path)["webhooks"]
        }

    def bundles(self) -> list[set[Any]]:
        """The CAs that each webhook is trusted by."""
        return [
            set(bundle_certificates(base64.b64decode(hook["clientConfig"].get("caBundle", ""))))
            for hook in self.webhooks().values()
        ]

    def is_trusted(self) -> bool:
        """Whether every webhook has CAs, and all have the same."""
        first, *others = self.bundles()
        return bool(first) and all(other == first for other in others)

    def inject(self, bundle: bytes, manager: str) -> None:
        """Write ``caBundle`` into every webhook, as somebody who has read the whole list."""
        text = base64.b64encode(bundle).decode()
        for path in self.configurations():
            patch = [
                {"op": "add", "path": f"/webhooks/{place}/clientConfig/caBundle", "value": text}
                for place, _ in enumerate(self.cluster.call("GET", path)["webhooks"])
            ]
            self.cluster.call(
                "PATCH",
                f"{path}?fieldManager={manager}",
                patch,
                content_type="application/json-patch+json",
            )

    # --- verdicts -----------------------------------------------------------------------------

    def write(self) -> str:
        """Write an Eviction; why that was refused, or ""."""
        document = eviction()
        document["metadata"] = {"generateName": "written-"}
        status, answer = self.cluster.plane.request("POST", _EVICTIONS, document)
        return "" if status == 201 else str(answer.get("message", answer))

    def lie(self) -> Result:
        """Ask for an eviction under a name of others; what kubectl says.

        The definitions and the API itself have nothing against it.
        """
        plane = self.cluster.plane
        for kind, body in _LIAR.items():
            plane.request("POST", f"/apis/rbac.authorization.k8s.io/v1/{kind}", body)
        run = plane.kubectl(
            *("create", "--dry-run=server", "-f", "-"),
            identity=_LIAR_USER,
            stdin=json.dumps(request("lie")),
        )
        return Result(run.returncode, run.stdout, run.stderr)

    def report_too_early(self) -> Result:
        """Write a status of an Eviction in which a responder is done at once; what kubectl says."""
        plane = self.cluster.plane
        plane.request("POST", _EVICTIONS, eviction())
        run = plane.kubectl(
            *("patch", "evictions", "pod-1-web-0", "--subresource=status", "--type=merge"),
            *("-p", json.dumps({"status": finished_at_once()}), "--dry-run=server"),
        )
        return Result(run.returncode, run.stdout, run.stderr)

    def await_verdicts(self) -> Result:
        """Wait until the webhook judges what is written, and return how it refuses a lie."""
        said: list[str] = []

        def refused() -> Result | None:
            found = self.lie()
            said.append(found.text)
            return found if "spec.requester: Forbidden" in found.errors else None

        try:
            return eventually(refused, "the webhook judges")
        except AssertionError as error:
            raise AssertionError(f"{error}: {said[-1]}\n{self.cluster.why()}") from None

    def is_free(self) -> bool:
        """Whether Evictions can be written, and nobody judges them."""
        return self.write() == "" and self.lie().status == 0

    def definitions(self) -> set[str]:
        """The groups of the definitions that are there."""
        return {each["spec"]["group"] for each in self.cluster.call("GET", _DEFINITIONS)["items"]}
