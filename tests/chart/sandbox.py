"""What a container runtime does for a pod, with programs of this machine instead of images.

A pod is a network of its own with an address that this machine reaches. A container is a process
in it, as the user, on the file system, and without the rights that its security context says.
Everything hangs on processes: when these are gone, so are networks and mounts.
"""

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.controlplane.process import die_with_parent

ROOT: Final = Path(__file__).parents[2]
IMAGE_USER: Final = 65532
"""Whom an image's process runs as where the pod doesn't say."""
IMAGE_PATH: Final = f"{ROOT}/.venv/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""The search path of an image."""
_PROGRAMS: Final = ("chroot", "ip", "mount", "nsenter", "setpriv", "unshare")


def why_not() -> str:
    """Why pods can't run here; "" if they can."""
    missing = [program for program in _PROGRAMS if shutil.which(program) is None]
    if missing:
        return f"pods need {', '.join(missing)} (util-linux, iproute2)"
    if os.geteuid() != 0:
        return "pods need root, for networks and mounts of their own"
    return ""


@dataclass(frozen=True, slots=True)
class Mount:
    """A directory of this machine, or a file, at a place in the container."""

    source: Path
    target: str
    read_only: bool


@dataclass(frozen=True, slots=True)
class Container:
    """What to run, and how."""

    command: Sequence[str]
    environment: Mapping[str, str]
    mounts: Sequence[Mount]
    user: int
    group: int
    more_groups: Sequence[int]
    read_only: bool
    working_directory: str = "/"
    hosts: Mapping[str, str] = field(default_factory=dict)
    """Name → address, as a cluster's DNS would answer."""


class Network:
    """The network of one pod. ``host`` is this machine's address on it."""

    def __init__(self, name: str, interface: str, address: str, host: str) -> None:
        self.address = address
        self._holder = subprocess.Popen(
            ["unshare", "--net", "--uts", "sh", "-c", _HOLD, "sh", name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
            preexec_fn=die_with_parent,  # noqa: PLW1509 - one system call, no lock
        )
        assert self._holder.stdout is not None
        self._holder.stdout.readline()
        outside = (
            f"link add {interface} type veth peer name eth0 netns {self.pid}",
            f"addr add {host}/32 dev {interface}",
            f"link set {interface} up",
            f"route add {address}/32 dev {interface} src {host}",
        )
        inside = (
            "link set lo up",
            f"addr add {address}/32 dev eth0",
            "link set eth0 up",
            f"route add {host}/32 dev eth0",
        )
        _run(["ip", "-batch", "-"], outside)
        _run(["nsenter", f"--net={self.namespace}", "ip", "-batch", "-"], inside)

    @property
    def pid(self) -> int:
        """The process that the network hangs on."""
        return self._holder.pid

    @property
    def namespace(self) -> str:
        """Path of the network namespace."""
        return f"/proc/{self.pid}/ns/net"

    def start(self, container: Container, root: Path, log: Path) -> subprocess.Popen[bytes]:
        """Start a container; ``root`` is an empty directory for its root file system."""
        script = log.with_suffix(".sh")
        script.write_text(_script(container, root))
        with log.open("ab") as output:
            return subprocess.Popen(
                self.entered("unshare", "--mount", "sh", "-e", str(script)),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=dict(container.environment),
                start_new_session=True,
                preexec_fn=die_with_parent,  # noqa: PLW1509 - one system call, no lock
            )

    def entered(self, *command: str) -> list[str]:
        """A command in the pod's network, under the pod's name."""
        uts = f"--uts=/proc/{self.pid}/ns/uts"
        return ["nsenter", f"--net={self.namespace}", uts, *command]

    def close(self) -> None:
        """Take it down."""
        self._holder.kill()
        self._holder.communicate()


_HOLD: Final = """\
printf %s "$1" > /proc/sys/kernel/hostname
echo ready
exec cat
"""
"""Named and there; ends with whoever holds its standard input."""

_SYSTEM: Final = ("/usr", "/bin", "/lib", "/lib64", "/sbin")
_FILES: Final = ("/etc/ld.so.cache", "/etc/ssl", "/etc/localtime")


def _script(container: Container, root: Path) -> str:
    """Mount the file system, give up all rights, become the program."""
    lines = [
        f"mount -t tmpfs -o mode=755 tmpfs {root}",
        f"mkdir -p {root}/proc {root}/dev {root}/etc {root}/tmp",
        f"chmod 1777 {root}/tmp",
        f"mount --rbind /proc {root}/proc",
        f"mount --rbind /dev {root}/dev",
        f"mount -t tmpfs -o mode=1777 tmpfs {root}/dev/shm",
    ]
    for path in map(Path, _SYSTEM):
        if path.is_symlink():
            lines.append(f"ln -s {path.readlink()} {root}{path}")
        elif path.exists():
            lines += _bind(path, f"{root}{path}", read_only=True)
    for path in (*map(Path, _FILES), Path(sys.base_prefix), ROOT):
        if path.exists() and not path.is_relative_to("/usr"):
            lines += _bind(path, f"{root}{path}", read_only=True)
    hosts = {"localhost": "127.0.0.1", **container.hosts}
    for name, address in hosts.items():
        lines.append(f"echo {address} {name} >> {root}/etc/hosts")
    lines.append(f"echo hosts: files > {root}/etc/nsswitch.conf")
    for mount in container.mounts:
        lines += _bind(mount.source, f"{root}{mount.target}", read_only=mount.read_only)
    if container.read_only:
        lines.append(f"mount -o remount,ro {root}")
    lines += _as_the_user(container, root)
    return "\n".join(lines) + "\n"


def _bind(source: Path, target: str, *, read_only: bool) -> list[str]:
    place = shlex.quote(target)
    make = f"mkdir -p {place}" if source.is_dir() else f"mkdir -p $(dirname {place}); : > {place}"
    lines = [make, f"mount --bind {shlex.quote(str(source))} {place}"]
    return [*lines, f"mount -o remount,bind,ro {place}"] if read_only else lines


def _as_the_user(container: Container, root: Path) -> list[str]:
    groups = ",".join(map(str, container.more_groups))
    command = (
        *("chroot", str(root), "/usr/bin/env"),
        *("-C", container.working_directory),
        "/usr/bin/setpriv",
        *(f"--reuid={container.user}", f"--regid={container.group}"),
        f"--groups={groups}" if groups else "--clear-groups",
        *("--bounding-set=-all", "--inh-caps=-all", "--no-new-privs", "--pdeathsig=KILL"),
        *container.command,
    )
    return [f"exec {shlex.join(command)}"]


def terminate(process: subprocess.Popen[bytes]) -> None:
    """Ask the first process of a container to end, as a kubelet does."""
    process.send_signal(signal.SIGTERM)


def kill(process: subprocess.Popen[bytes]) -> None:
    """Kill a container with all of its processes, if there are any left."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def expand(text: str, environment: Mapping[str, str]) -> str:
    """Replace ``$(NAME)`` as kubelets do in commands; what is unknown stays."""
    return re.sub(r"\$\((\w+)\)", lambda found: environment.get(found[1], found[0]), text)


def _run(command: Sequence[str], lines: Sequence[str]) -> None:
    text = "\n".join(lines) + "\n"
    subprocess.run(command, input=text, text=True, check=True, capture_output=True)
