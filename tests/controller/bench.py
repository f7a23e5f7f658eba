"""``make bench-controller``: Usher's controller beside Kubernetes' own, in one run.

So many running pods, with an EvictionRequest each, are there before a controller starts; it is
measured from its start to the last TargetEvicted. Each has an API server (1.37.2, native) and a
fake kubelet of its own, one after the other. Prints a table, writes build/bench-controller.json.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from tests.controller.contenders import (
    CONTENDERS,
    Contender,
    peak_megabytes,
    processor_seconds,
    started,
)
from tests.controller.program import NODE, Users, reasons
from tests.controlplane import ControlPlane, Mode, binary_path
from tests.e2e.api import Object
from tests.e2e.cluster import Cluster

OUTPUT: Final = Path("build/bench-controller.json")
SIZES: Final = (250, 1000, 4000)
_CLIENTS: Final = 6
_PATIENCE_SECONDS: Final = 1800.0
_WRITES: Final = ("create", "patch", "update", "delete")

Figures = dict[str, Any]

_progress = Console(stderr=True)


def main() -> None:
    """Measure every size that was asked for, and report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "sizes", type=int, nargs="*", default=SIZES, help="numbers of pods (default: 250 1000 4000)"
    )
    sizes: Sequence[int] = parser.parse_args().sizes
    for name in ("reference-controllers", "kwok"):
        binary_path(name)
    runs: list[Figures] = []
    OUTPUT.parent.mkdir(exist_ok=True)
    for size in sizes:
        for contender in CONTENDERS:
            runs.append(measure(contender, size))
            # Large numbers take long: what is known by then outlasts an interruption.
            document = {"machine": _machine(), "runs": runs}
            OUTPUT.write_text(json.dumps(document, indent=2) + "\n")
    console = Console()
    console.print(_table(runs))
    console.print("writes: to the API server, for each eviction")
    console.print("growth: seconds for each eviction, in relation to the smallest number")
    console.print("load: of the whole machine at the end; compare runs of about the same")
    for flags in ((), ("--node-health",)):
        what = " ".join(("memory for 10,000 ended pairs and 20,000 pods", *flags))
        console.print(f"{what}: {_printed('memory', *flags)}")
    console.print("what one tenant waits for another one:")
    console.print(_printed("neighbours"))
    console.print(f"written to {OUTPUT}")


def _printed(module: str, *flags: str) -> str:
    """What a module beside this one measures, in a process of its own."""
    command = [sys.executable, "-m", f"tests.controller.{module}", *flags]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def measure(contender: Contender, size: int) -> Figures:
    """What ``size`` evictions cost one controller."""
    with (
        ControlPlane(Mode.NATIVE, audit=True, audit_bodies=False) as plane,
        tempfile.TemporaryDirectory() as folder,
    ):
        cluster = Cluster(plane)
        plane.start_kubelet(NODE)
        users = Users(cluster)
        _prepare(users, size, contender.name)
        began = datetime.now(UTC)
        with started(contender, plane.kubeconfig(), Path(folder)) as process:
            pid = process.pid
            assert pid is not None
            _wait(_pods_left, users, f"{contender.name}: pods of {size} left", process.ensure_alive)
            _wait(_unended, users, f"{contender.name}: requests left", process.ensure_alive)
            usage = {"processor": processor_seconds(pid), "megabytes": peak_megabytes(pid)}
        cluster.close()
        writes = _writes(plane, contender)
        last = max(_time(event) for event in writes if _is_about_a_request(event))
        return {
            "controller": contender.name,
            "evictions": size,
            "seconds": (last - began).total_seconds(),
            "writes": len(writes) / size,
            **usage,
            "load": os.getloadavg()[0],
            "kinds": dict(Counter(map(_kind, writes))),
        }


def _prepare(users: Users, size: int, name: str) -> None:
    _progress.print(f"{name}: making {size} pods and as many requests")

    def make(number: int) -> None:
        users.request(users.create_pod(f"web-{number}"), f"drain-{number}")

    with ThreadPoolExecutor(_CLIENTS) as clients:
        list(clients.map(make, range(size)))
    _wait(_idle, users, "pods to start", lambda: None)


def _wait(
    left: Callable[[Users], int], users: Users, what: str, check: Callable[[], object]
) -> None:
    """Wait until there is nothing left; asks rarely, for it is work for the API server as well."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while (number := left(users)) and time.monotonic() < deadline:
        check()
        _progress.print(f"{what}: {number}", end="\r")
        time.sleep(1)
    if number:
        raise TimeoutError(f"{what}: {number}")
    _progress.print(f"{what}: 0")


def _pods_left(users: Users) -> int:
    return _count(users, "")


def _idle(users: Users) -> int:
    return _count(users, "&fieldSelector=status.phase!=Running")


def _count(users: Users, selector: str) -> int:
    """How many pods there are, without fetching them."""
    page = users.call("GET", f"{users.path('pods')}?limit=1{selector}").body
    return len(page["items"]) + int(page["metadata"].get("remainingItemCount") or 0)


def _unended(users: Users) -> int:
    return sum("PodDeleted" not in reasons(each) for each in users.list("evictionrequests"))


def _writes(plane: ControlPlane, contender: Contender) -> list[Object]:
    return [
        event
        for event in plane.audit_events()
        if event.get("userAgent") == contender.user_agent
        and event["stage"] == "ResponseComplete"
        and event["verb"] in _WRITES
    ]


def _is_about_a_request(event: Object) -> bool:
    return bool(event["objectRef"]["resource"] == "evictionrequests")


def _time(event: Object) -> datetime:
    return datetime.fromisoformat(event["stageTimestamp"])


def _kind(event: Object) -> str:
    reference = event["objectRef"]
    resource = "/".join(filter(None, (reference["resource"], reference.get("subresource"))))
    return f"{event['verb']} {resource} {event['responseStatus']['code']}"


def _table(runs: Sequence[Figures]) -> Table:
    table = Table(
        "evictions", "controller", "seconds", "writes", "peak MB", "CPU s", "growth", "load"
    )
    first = {run["controller"]: run for run in reversed(runs)}
    for run in runs:
        smallest = first[run["controller"]]
        pace, least = (each["seconds"] / each["evictions"] for each in (run, smallest))
        table.add_row(
            str(run["evictions"]),
            run["controller"],
            *(f"{run[field]:.1f}" for field in ("seconds", "writes")),
            f"{run['megabytes']:.0f}",
            f"{run['processor']:.1f}",
            f"{pace / least:.2f}",
            f"{run['load']:.1f}",
        )
    return table


def _machine() -> Figures:
    return {"cores": os.cpu_count(), "python": platform.python_version()}


if __name__ == "__main__":
    main()
