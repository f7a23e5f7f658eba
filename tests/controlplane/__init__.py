"""A real Kubernetes control plane (etcd and kube-apiserver) for tests and for people.

``ControlPlane`` starts one; ``python -m tests.controlplane --help`` does so from the command line;
``tests.controlplane.fixtures`` holds the pytest fixtures.
"""

from tests.controlplane.binaries import BINARIES, Binary
from tests.controlplane.build import BuildError, NoToolchainError, binary_path
from tests.controlplane.identities import IDENTITIES, Identity
from tests.controlplane.mode import Mode
from tests.controlplane.plane import ControlPlane
from tests.controlplane.process import ProcessError

__all__ = [
    "BINARIES",
    "IDENTITIES",
    "Binary",
    "BuildError",
    "ControlPlane",
    "Identity",
    "Mode",
    "NoToolchainError",
    "ProcessError",
    "binary_path",
]
