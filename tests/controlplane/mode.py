"""The three ways in which an API server can meet Usher."""

from collections.abc import Mapping
from enum import StrEnum


class Mode(StrEnum):
    """What serves ``lifecycle.k8s.io``, and in which release.

    ``NATIVE``: 1.37.2 with the built-in API. ``CRD``: 1.37.2 with the built-in API off.
    ``CRD_1_34``: the oldest supported release, which has no built-in API. In the two CRD modes
    nothing serves the group until a test installs the CustomResourceDefinitions.
    """

    NATIVE = "native"
    CRD = "crd"
    CRD_1_34 = "crd-1.34"

    @property
    def apiserver(self) -> str:
        """Name of the kube-apiserver binary (see ``binaries``)."""
        return "kube-apiserver-1.34" if self is Mode.CRD_1_34 else "kube-apiserver"

    @property
    def feature_gates(self) -> Mapping[str, bool]:
        """Feature gates that the mode needs."""
        return {"EvictionRequestAPI": True} if self is Mode.NATIVE else {}

    @property
    def runtime_config(self) -> Mapping[str, bool]:
        """API versions that the mode needs beyond the defaults."""
        return {"lifecycle.k8s.io/v1alpha1": True} if self is Mode.NATIVE else {}
