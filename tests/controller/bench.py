"""What many evictions at once cost: ``python -m tests.controller.bench [--mode MODE] COUNT…``.

So many pods and EvictionRequests are there before the controller starts. There is no kubelet: a
pod that nobody runs is gone as soon as it is evicted. Prints one line of JSON for each count.
"""

import argparse
import json
import os
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

from tests.controller.program import Program, Users, reasons, running
from tests.controlplane import Mode
from tests.e2e.cluster import running_cluster
from tests.e2e.waiting import eventually

_CLIENTS: Final = 6


def measure(mode: Mode, count: int) -> dict[str, Any]:
    """Seconds, processor seconds, memory at its peak, and writes for each eviction."""
    with (
        running_cluster(mode) as cluster,
        tempfile.TemporaryDirectory() as folder,
        ThreadPoolExecutor(_CLIENTS) as clients,
    ):
        users = Users(cluster)

        def prepare(number: int) -> None:
            users.request(users.create_pod(f"web-{number}"), f"drain-{number}")

        list(clients.map(prepare, range(count)))
        with running(cluster, Path(folder), "--log-level", "info") as program:
            program.wait_for_lead()
            began = time.monotonic()
            eventually(lambda: _evicted(users) == count, "all pods are evicted")
            seconds = time.monotonic() - began
            writes = program.metric("usher_controller_writes_total")
            return {
                "mode": str(mode),
                "evictions": count,
                "seconds": round(seconds, 1),
                "writesPerEviction": round(writes / count, 2),
                **_used(program),
            }


def _evicted(users: Users) -> int:
    # Asking is work for the API server as well, the more the more there is.
    time.sleep(1)
    return sum("PodDeleted" in reasons(request) for request in users.list("evictionrequests"))


def _used(program: Program) -> dict[str, Any]:
    proc = Path(f"/proc/{program.pid}")
    fields = (proc / "stat").read_text().rpartition(")")[2].split()
    ticks = int(fields[11]) + int(fields[12])
    peak = next(s for s in (proc / "status").read_text().splitlines() if s.startswith("VmHWM"))
    return {
        "processorSeconds": round(ticks / os.sysconf("SC_CLK_TCK"), 1),
        "peakMegabytes": round(int(peak.split()[1]) / 1024),
    }


def main() -> None:
    """Measure for each count that was asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--mode", type=Mode, choices=list(Mode), default=Mode.NATIVE)
    parser.add_argument("counts", type=int, nargs="*", default=[250, 1000])
    options = parser.parse_args()
    for count in options.counts:
        print(json.dumps(measure(options.mode, count)), flush=True)


if __name__ == "__main__":
    main()
