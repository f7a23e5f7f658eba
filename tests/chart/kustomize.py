"""Writes charts/kustomize from the chart, for those without Helm.

python -m tests.chart.kustomize
"""

import sys
from collections.abc import Iterator
from typing import Any, Final

import yaml

from tests.chart.rendering import NAMESPACE, Object, render
from tests.examples.shell import ROOT

BASE: Final = ROOT / "charts" / "kustomize"
_FILES: Final = {
    "definitions.yaml": ("CustomResourceDefinition",),
    "rights.yaml": (
        *("ServiceAccount", "ClusterRole", "ClusterRoleBinding"),
        *("Role", "RoleBinding"),
    ),
    "workload.yaml": ("Deployment", "Service", "PodDisruptionBudget"),
    "webhooks.yaml": ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"),
}
_HEADER: Final = "# Made from the chart by `make kustomize`; change the chart instead.\n"
_POD_SECURITY: Final = "pod-security.kubernetes.io"
_MANAGED_BY: Final = "app.kubernetes.io/managed-by"


def files() -> dict[str, str]:
    """Name → content of every file that is made."""
    objects = [_without_helm(each) for each in _installed(render({}).objects)]
    kinds = {kind for group in _FILES.values() for kind in group}
    assert {each["kind"] for each in objects} <= kinds, "a kind that has no file yet"
    by_file = {
        name: [each for each in objects if each["kind"] in group] for name, group in _FILES.items()
    }
    namespace = {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": NAMESPACE, "labels": {f"{_POD_SECURITY}/enforce": "restricted"}},
    }
    kustomization = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": ["namespace.yaml", *by_file],
    }
    written = {"namespace.yaml": [namespace], "kustomization.yaml": [kustomization], **by_file}
    return {name: _HEADER + _documents(documents) for name, documents in written.items()}


def _installed(objects: list[Object]) -> Iterator[Object]:
    """Without what Helm runs at certain times only."""
    for each in objects:
        if "helm.sh/hook" not in each["metadata"].get("annotations", {}):
            yield each


def _without_helm(value: Any) -> Any:
    """``value`` without the marks that say it belongs to a release."""
    if isinstance(value, list):
        return [_without_helm(each) for each in value]
    if not isinstance(value, dict):
        return value
    kept = {
        key: _without_helm(each)
        for key, each in value.items()
        if not key.startswith("helm.sh/") and key != _MANAGED_BY
    }
    # An annotation may have been the only one.
    return {key: each for key, each in kept.items() if key != "annotations" or each}


def _documents(documents: list[Object]) -> str:
    return yaml.dump_all(documents, sort_keys=False, explicit_start=True, width=120)


def main() -> None:
    """Write the files."""
    BASE.mkdir(parents=True, exist_ok=True)
    for name, text in files().items():
        (BASE / name).write_text(text, encoding="utf-8")
        print(BASE / name, file=sys.stderr)


if __name__ == "__main__":
    main()
