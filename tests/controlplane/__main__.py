"""Command line: ``python -m tests.controlplane build | up | path``."""

import argparse
import contextlib
import signal
import sys
from collections.abc import Sequence

from tests.controlplane.binaries import BINARIES
from tests.controlplane.build import ASSETS_VARIABLE, CACHE_VARIABLE, BuildError, binary_path
from tests.controlplane.identities import IDENTITIES
from tests.controlplane.mode import Mode
from tests.controlplane.plane import ControlPlane
from tests.controlplane.process import ProcessError

_DESCRIPTION = """\
A real Kubernetes control plane from Go modules, no containers.

Programs are built once and kept in a cache. Needs Go, or a folder with ready-made programs.
"""
_EPILOG = f"""\
environment:
  {CACHE_VARIABLE}    folder for built programs (default: ~/.cache/usher-tests)
  {ASSETS_VARIABLE}  folder with etcd, kube-apiserver and kubectl to use instead

examples:
  python -m tests.controlplane build
  python -m tests.controlplane up --mode native
  $(python -m tests.controlplane path kubectl) version --client
"""
_UP_EPILOG = """\
modes:
  native     1.37.2 with the built-in lifecycle.k8s.io/v1alpha1 API
  crd        1.37.2 with the built-in API off, so that the group can be served by CRDs
  crd-1.34   1.34.4, the oldest supported release
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return the exit status."""
    options = _parser().parse_args(arguments)
    try:
        if options.command == "build":
            _build(options.names)
        elif options.command == "path":
            print(binary_path(options.name))
        else:
            _up(Mode(options.mode), options.port, options.nodes)
    except (BuildError, ProcessError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def _parser() -> argparse.ArgumentParser:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(
        prog="python -m tests.controlplane",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=raw,
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    build = commands.add_parser("build", help="build what tests need, or what is named")
    build.add_argument("names", nargs="*", metavar="NAME", help=f"one of: {', '.join(BINARIES)}")

    up = commands.add_parser(
        "up", help="start a control plane and keep it until Ctrl-C", epilog=_UP_EPILOG
    )
    up.formatter_class = raw
    up.add_argument("--mode", choices=list(Mode), default=Mode.NATIVE, help="default: %(default)s")
    up.add_argument("--port", type=int, help="port of the API server (default: a free one)")
    up.add_argument(
        "--nodes", type=int, default=0, help="so many nodes that run pods, and controllers"
    )

    path = commands.add_parser("path", help="print the path of a program, building it if needed")
    path.add_argument("name", choices=list(BINARIES), metavar="NAME", help=", ".join(BINARIES))
    return parser


def _build(names: Sequence[str]) -> None:
    unknown = [name for name in names if name not in BINARIES]
    if unknown:
        raise BuildError(f"no program {', '.join(unknown)}; there are {', '.join(BINARIES)}")
    usual = [name for name, binary in BINARIES.items() if binary.toolchain is None]
    for name in names or usual:
        print(f"{name}: {binary_path(name)}")


def _up(mode: Mode, port: int | None, nodes: int) -> None:
    # A supervisor's SIGTERM must clean up as Ctrl-C does.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with ControlPlane(mode, port=port, audit=True) as plane:
        if nodes:
            plane.start_controller_manager()
            plane.start_kubelet(*(f"node-{number}" for number in range(nodes)))
        print(f"A {mode} control plane serves {plane.url}. In another terminal:\n")
        print(f"  export KUBECONFIG={plane.kubeconfig()}\n")
        print("Kubeconfigs of all identities (grant rights to those without by RBAC):")
        for user in IDENTITIES:
            print(f"  {user}: {plane.kubeconfig(user)}")
        print("\nCtrl-C stops it and removes everything.", flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            signal.pause()


if __name__ == "__main__":
    sys.exit(main())
