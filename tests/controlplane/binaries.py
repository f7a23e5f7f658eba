"""The programs of the test bed and how each is built from Go modules."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

TESTS = Path(__file__).resolve().parent.parent
"""The ``tests`` folder, root of the main Go module."""

_STRIP = ("-s", "-w")
_STAGES = (
    "node/fast/node-initialize",
    "node/heartbeat/node-heartbeat",
    "pod/fast/pod-ready",
    "pod/fast/pod-complete",
    "pod/fast/pod-delete",
)
"""What kwok makes of nodes and pods: they are up at once, and pods go when they are deleted."""


def _version_flags(version: str) -> tuple[str, ...]:
    """Stamp a Kubernetes version; kubectl and helm can't parse the unstamped default."""
    package = "k8s.io/component-base/version"
    major, minor, _ = version.split(".")
    stamps = {"gitVersion": f"v{version}", "gitMajor": major, "gitMinor": minor}
    return tuple(f"-X {package}.{name}={value}" for name, value in stamps.items())


def _helm_flags(version: str, kubernetes: str) -> tuple[str, ...]:
    """Stamp helm 3, and the Kubernetes that it takes charts to be for where it asks none."""
    module = "helm.sh/helm/v3"
    major, minor = kubernetes.split(".")
    stamps = {"internal/version.version": f"v{version}"}
    for package in ("pkg/chartutil", "pkg/lint/rules"):
        stamps[f"{package}.k8sVersionMajor"] = major
        stamps[f"{package}.k8sVersionMinor"] = minor
    return tuple(f"-X {module}/{name}={value}" for name, value in stamps.items())


@dataclass(frozen=True, slots=True)
class Tool:
    """A program of another Go module, in the version that ``go.mod`` pins."""

    package: str
    module: str
    files: tuple[str, ...] = ()
    """Files of that module, relative to its root, that belong beside the program."""


@dataclass(frozen=True, slots=True)
class Binary:
    """One program. ``sources`` are its own folders, relative to ``module``."""

    name: str
    title: str
    module: Path
    sources: tuple[str, ...]
    first_build_seconds: int
    linker_flags: tuple[str, ...] = _STRIP
    asset: str | None = None
    """File name under ``KUBEBUILDER_ASSETS`` that may stand in for it."""
    tool: Tool | None = None
    """What to build if it is somebody else's program; there are no sources then."""
    toolchain: str | None = None
    """Release of Go to fetch and build with, where an installed one would be too old.

    Such programs are built only when they are asked for by name: tests do without.
    """

    @property
    def package(self) -> str:
        """Go package to build, relative to ``module`` if it is ours."""
        return self.tool.package if self.tool else f"./{self.sources[0]}"


_ALL = (
    Binary(
        name="kube-apiserver",
        title="kube-apiserver 1.37.2",
        module=TESTS,
        sources=("controlplane/cmd/kube-apiserver",),
        first_build_seconds=270,
        linker_flags=(*_STRIP, *_version_flags("1.37.2")),
        asset="kube-apiserver",
    ),
    Binary(
        name="kube-apiserver-1.34",
        title="kube-apiserver 1.34.4",
        module=TESTS / "controlplane/v1.34",
        sources=(".",),
        first_build_seconds=230,
        linker_flags=(*_STRIP, *_version_flags("1.34.4")),
    ),
    Binary(
        name="etcd",
        title="etcd 3.7.3",
        module=TESTS / "controlplane/etcd",
        sources=(".",),
        first_build_seconds=30,
        asset="etcd",
    ),
    Binary(
        name="kubectl",
        title="kubectl 1.37.2",
        module=TESTS,
        sources=("controlplane/cmd/kubectl",),
        first_build_seconds=60,
        linker_flags=(*_STRIP, *_version_flags("1.37.2")),
        asset="kubectl",
    ),
    Binary(
        name="kube-controller-manager",
        title="kube-controller-manager 1.37.2",
        module=TESTS,
        sources=("controlplane/cmd/kube-controller-manager",),
        first_build_seconds=105,
        linker_flags=(*_STRIP, *_version_flags("1.37.2")),
    ),
    Binary(
        name="kwok",
        title="kwok 0.8.0",
        module=TESTS / "controlplane/kwok",
        sources=(),
        first_build_seconds=120,
        tool=Tool(
            package="sigs.k8s.io/kwok/cmd/kwok",
            module="sigs.k8s.io/kwok",
            files=tuple(f"kustomize/stage/{stage}.yaml" for stage in _STAGES),
        ),
    ),
    Binary(
        name="helm",
        title="helm 4.3.1",
        module=TESTS / "controlplane/helm",
        sources=(),
        first_build_seconds=60,
        linker_flags=(*_STRIP, "-X helm.sh/helm/v4/internal/version.version=v4.3.1"),
        tool=Tool(package="helm.sh/helm/v4/cmd/helm", module="helm.sh/helm/v4"),
    ),
    Binary(
        name="helm-3",
        title="helm 3.22.0",
        module=TESTS / "controlplane/helm3",
        sources=(),
        first_build_seconds=60,
        linker_flags=(*_STRIP, *_helm_flags("3.22.0", kubernetes="1.37")),
        tool=Tool(package="helm.sh/helm/v3/cmd/helm", module="helm.sh/helm/v3"),
    ),
    Binary(
        name="oracle",
        title="verdict oracle for 1.37.2",
        module=TESTS,
        sources=("oracle", "oracle/reference"),
        first_build_seconds=75,
    ),
    Binary(
        name="gowebhook",
        title="Go webhook for benchmarks",
        module=TESTS,
        sources=("bench/gowebhook", "oracle/reference"),
        first_build_seconds=55,
    ),
    Binary(
        name="reference-controllers",
        title="the controllers of 1.38.0-beta.0",
        module=TESTS / "controller/reference",
        sources=(".",),
        first_build_seconds=150,
        toolchain="go1.27.3",
    ),
)

BINARIES: Mapping[str, Binary] = {binary.name: binary for binary in _ALL}
"""Every binary by name."""
