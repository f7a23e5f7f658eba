"""``make bench-webhook``: Usher beside a webhook in Go, in one run.

They serve TLS on one core and answer the same 4.5 kB status-update review, one after the other,
several times; the load comes from another core. A third one ("bare") only decodes and admits. The
same with a review that breaks many rules, and with objects that grow. Then status PATCHes go
through a real API server without a webhook, with the one in Go, and with Usher. Prints tables,
writes build/bench.json.
"""

import argparse
import json
import os
import platform
import statistics
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from tests.bench.apiserver import Patches, create_eviction, registered
from tests.bench.load import Load, press
from tests.bench.review import USUAL, Size, refused, review
from tests.bench.servers import Server, ask, issue_certificates, running
from tests.controlplane import ControlPlane, Mode

CONNECTIONS: Final = (1, 8, 64)
OUTPUT: Final = Path("build/bench.json")
NAMES: Final = ("usher", "go")
LOADED: Final = (*NAMES, "bare")
SIZES: Final = (
    Size(responders=1), Size(), Size(responders=7), Size(responders=11),
    Size(conditions=25), Size(conditions=50), Size(conditions=100),
    *(Size(managed=kib * 1024) for kib in (64, 256, 1024)),
)  # fmt: skip
_MEMORY_STEPS: Final = 5
_progress: Final = Console(stderr=True)

Figures = dict[str, Any]
Rows = list[dict[str, Load]]


def main() -> None:
    """Run all benchmarks and report them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=6, help="of load in one run (default: 6)")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each kind (default: 3)")
    parser.add_argument("--patches", type=int, default=200, help="PATCHes a round (default: 200)")
    parser.add_argument(
        "--requests", type=int, default=1_000_000, help="for the memory figure; 0 leaves it out"
    )
    options = parser.parse_args()
    console = Console()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        issue_certificates(folder)
        figures: Figures = {"machine": _machine()}
        seconds, rounds = options.seconds, options.rounds
        figures["throughput"] = throughput(folder, seconds, rounds, console)
        figures["denials"] = denials(folder, seconds, rounds, console)
        figures["growth"] = growth(folder, seconds, console)
        figures["patches"] = patches(folder, options.patches, options.rounds, console)
        if options.requests:
            figures["memory"] = memory(folder, options.requests, console)
    OUTPUT.parent.mkdir(exist_ok=True)
    OUTPUT.write_text(json.dumps(figures, indent=2) + "\n")
    console.print(f"\nwritten to {OUTPUT}")


def throughput(folder: Path, seconds: int, rounds: int, console: Console) -> Figures:
    """Requests a second and latencies of the webhooks, and Usher's ratio to the others by pairs."""
    runs: dict[int, Rows] = {connections: [] for connections in CONNECTIONS}
    ready: dict[str, list[float]] = {name: [] for name in LOADED}
    for number in range(rounds):
        for connections in CONNECTIONS:
            loads = {}
            for name in LOADED:
                _progress.print(f"round {number + 1}: {name}, {connections} connections")
                with running(name, folder) as server:
                    ready[name].append(server.ready_seconds)
                    loads[name] = _press_admitted(server, folder, connections, seconds)
            runs[connections].append(loads)
    result = _table(runs, LOADED, console)
    result["ready_seconds"] = {name: _median(ready[name]) for name in LOADED}
    starts = ", ".join(f"{name} {value:.2f} s" for name, value in result["ready_seconds"].items())
    console.print(f"start to ready: {starts}")
    return result


def denials(folder: Path, seconds: int, rounds: int, console: Console) -> Figures:
    """The same for a review that is denied, with all causes; Usher logs each, Go logs none."""
    rows: Rows = []
    causes = {}
    for number in range(rounds):
        loads = {}
        for name in NAMES:
            _progress.print(f"round {number + 1}: {name}, denials")
            with running(name, folder) as server:
                body = refused(datetime.now(UTC))
                causes[name] = _causes(ask(server, folder, body))
                press(server, body, folder, connections=8, seconds=1)
                loads[name] = press(server, body, folder, connections=8, seconds=seconds)
        rows.append(loads)
    console.print("\ndenials: " + ", ".join(f"{n} with {c} causes" for n, c in causes.items()))
    return {**_table({8: rows}, NAMES, console), "causes": causes}


def _causes(answer: bytes) -> int:
    response = json.loads(answer)["response"]
    if response["allowed"]:
        raise RuntimeError(f"not denied: {response}")
    return len(response["status"]["details"]["causes"])


def growth(folder: Path, seconds: int, console: Console) -> Figures:
    """Processor time for a request as the object grows, in microseconds."""
    table = Table("responders", "conditions", "managedFields", "review KiB", *LOADED)
    rows = []
    for size in SIZES:
        _progress.print(f"growth: {size}")
        bytes_ = len(review(datetime.now(UTC), size))
        times = {}
        for name in LOADED:
            with running(name, folder) as server:
                times[name] = _press_admitted(server, folder, 8, seconds, size).processor
        rows.append({**asdict(size), "review_bytes": bytes_, **times})
        table.add_row(
            str(size.responders),
            str(size.conditions),
            f"{size.managed // 1024} KiB",
            f"{bytes_ / 1024:.1f}",
            *(f"{times[name]:.0f}" for name in LOADED),
        )
    console.print(table)
    return {"rows": rows}


def _table(runs: Mapping[int, Rows], names: Sequence[str], console: Console) -> Figures:
    table = Table("connections", "webhook", "req/s", "usher is", "p50 ms", "p99 ms", "µs", "errors")
    result: Figures = {}
    for connections, rows in runs.items():
        result[str(connections)] = {name: _summary(rows, name) for name in names}
        for name, figures in result[str(connections)].items():
            table.add_row(
                str(connections),
                name,
                f"{figures['per_second']:.0f}",
                f"{figures['usher_is']:.2f} times ({figures['least']:.2f}-{figures['most']:.2f})",
                *(f"{figures[field]:.2f}" for field in ("p50", "p99")),
                *(f"{figures[field]:.0f}" for field in ("processor", "errors")),
            )
    console.print(table)
    console.print("µs: the server's processor time for one request")
    return result


def _summary(rows: Rows, name: str) -> Figures:
    """Medians of the runs of webhook ``name``, and how many times as quick Usher was beside it."""
    fields = ("per_second", "p50", "p99", "errors", "processor")
    ratios = [row["usher"].per_second / row[name].per_second for row in rows]
    return {
        **{field: _median([asdict(row[name])[field] for row in rows]) for field in fields},
        "usher_is": _median(ratios),
        "least": min(ratios),
        "most": max(ratios),
    }


def _press_admitted(
    server: Server, folder: Path, connections: int, seconds: int, size: Size = USUAL
) -> Load:
    answer = json.loads(ask(server, folder, review(datetime.now(UTC), size)))
    if not answer["response"]["allowed"]:
        raise RuntimeError(f"{server.name} denies the review: {answer}")
    body = review(datetime.now(UTC), size)
    press(server, body, folder, connections=connections, seconds=1)
    body = review(datetime.now(UTC), size)
    return press(server, body, folder, connections=connections, seconds=seconds)


def patches(folder: Path, count: int, rounds: int, console: Console) -> Figures:
    """Medians of status PATCHes through an API server, by webhook, in milliseconds."""
    times: dict[str, list[float]] = {"none": [], "go": [], "usher": []}
    with ControlPlane(Mode.NATIVE) as plane, ExitStack() as stack:
        create_eviction(plane)
        servers = {name: stack.enter_context(running(name, folder)) for name in NAMES}
        for number in range(rounds):
            for name, found in times.items():
                _progress.print(f"round {number + 1}: status PATCHes, webhook: {name}")
                with registered(plane, servers.get(name), folder / "ca.crt"), Patches(plane) as way:
                    for _ in range(count // 10):
                        way.send()  # warms connections and caches, not counted
                    found.extend(way.send() for _ in range(count))
    medians = {name: _median(found) for name, found in times.items()}
    added = {name: medians[name] - medians["none"] for name in NAMES}
    table = Table("webhook", "median ms", "p99 ms", "added ms")
    for name, found in times.items():
        p99 = statistics.quantiles(found, n=100)[-1]
        table.add_row(
            name, f"{medians[name]:.2f}", f"{p99:.2f}", f"{medians[name] - medians['none']:.2f}"
        )
    console.print(table)
    return {"median_ms": medians, "added_ms": added, "ratio": added["usher"] / added["go"]}


def memory(folder: Path, requests: int, console: Console) -> Figures:
    """Resident memory of Usher while it answers many requests, in MiB."""
    steps = [{"requests": 0, "mib": 0.0}]
    with running("usher", folder) as server:
        steps[0]["mib"] = server.memory()
        for step in range(1, _MEMORY_STEPS + 1):
            while steps[-1]["requests"] < requests * step // _MEMORY_STEPS:
                body = review(datetime.now(UTC))
                done = press(server, body, folder, connections=8, seconds=10)
                steps.append(
                    {"requests": steps[-1]["requests"] + done.requests, "mib": server.memory()}
                )
            console.print(f"{steps[-1]['requests']:.0f} requests: {steps[-1]['mib']:.1f} MiB")
    return {"steps": steps}


def _median(values: Sequence[float]) -> float:
    return statistics.median(values)


def _machine() -> Figures:
    return {"cores": os.cpu_count(), "python": platform.python_version(), "load": os.getloadavg()}


if __name__ == "__main__":
    main()
