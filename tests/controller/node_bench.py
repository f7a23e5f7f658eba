"""``make bench-nodes``: what it takes to plan the node-health evictions of a large cluster.

Nodes and pods are made as an API server would serve them, cut down as the controller keeps them,
and planned with again and again, turn by turn. Prints a table, writes build/bench-nodes.json.
"""

import argparse
import gc
import json
import os
import platform
import resource
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, NamedTuple

from rich.console import Console
from rich.table import Table

from cli.progress import track
from controller.node_health.planning.plan import NodeHealthSnapshot, plan_node_health
from controller.node_health.planning.pods import NodePod, OwnRequest, PodObject, Pods
from controller.node_health.planning.simulation import with_full_budgets
from controller.node_health.planning.zones import (
    DEFAULTS,
    READY,
    REGION_LABEL,
    ZONE_LABEL,
    Health,
    Node,
    NodeObject,
)
from rules.decode import decode_model
from rules.times import format_time
from tests.controller.nodes import SECOND, START, request

OUTPUT: Final = Path("build/bench-nodes.json")
_ZONES: Final = 3
_HOUR: Final = timedelta(hours=1)
"""After which every pod is due."""
_TICK: Final = 10 * SECOND
_STATUS: Final = Path("/proc/self/status")

Figures = dict[str, Any]


class Scenario(NamedTuple):
    """How many nodes have failed, and whether all their pods have been asked to leave already."""

    name: str
    failed: Callable[[int], int]
    """Of so many nodes."""
    asked: bool = False


SCENARIOS: Final = (
    Scenario("none", lambda _: 0),
    Scenario("one", lambda _: 1),
    Scenario("55 % of a zone", lambda total: total * 56 // (100 * _ZONES)),
    Scenario("a zone", lambda total: total // _ZONES),
    Scenario("a zone; asked", lambda total: total // _ZONES, asked=True),
    Scenario("all but one", lambda total: total - 1),
    Scenario("all but one; asked", lambda total: total - 1, asked=True),
    Scenario("all; asked", lambda total: total, asked=True),
)


def main() -> None:
    """Measure every scenario, and report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--pods", type=int, default=150_000)
    parser.add_argument("--ticks", type=int, default=25, help="how often each is planned")
    arguments = parser.parse_args()
    before = _megabytes()
    start = time.perf_counter()
    nodes = dict(_nodes(arguments.nodes))
    pods = Pods.of(_pods(arguments.pods, list(nodes)))
    reading = time.perf_counter() - start
    gc.collect()
    kept = _megabytes() - before
    runs = [
        measure(scenario, nodes, pods, arguments.ticks) for scenario in track(SCENARIOS, "planning")
    ]
    document = {
        "machine": {"cores": os.cpu_count(), "python": platform.python_version()},
        "nodes": len(nodes),
        "pods": len(pods.by_uid),
        "ticks": arguments.ticks,
        "readSeconds": reading,
        "keptMegabytes": kept,
        "peakMegabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "runs": runs,
    }
    OUTPUT.parent.mkdir(exist_ok=True)
    OUTPUT.write_text(json.dumps(document, indent=2) + "\n")
    _report(document)


def measure(scenario: Scenario, nodes: dict[str, Node], pods: Pods, ticks: int) -> Figures:
    """Plan ``ticks`` times, 10 seconds apart, as a controller would; every turn is carried out."""
    failed = scenario.failed(len(nodes))
    now = START + _HOUR
    states = {
        name: node if number < failed else replace(node, health=Health.READY)
        for number, (name, node) in enumerate(nodes.items())
    }
    asked = [
        request(pod)
        for name in (states if scenario.asked else ())
        if not states[name].is_healthy
        for pod in pods.by_node[name]
    ]
    requests: dict[str, OwnRequest] = {own.pod_uid: own for own in asked}
    seen = with_full_budgets(NodeHealthSnapshot(states, pods, requests), now, DEFAULTS)
    planning, processor, writes = [], [], 0
    for _ in range(ticks):
        start, busy = time.perf_counter(), time.process_time()
        plan = plan_node_health(seen, now)
        planning.append((time.perf_counter() - start) * 1000)
        processor.append((time.process_time() - busy) * 1000)
        writes += len(plan.withdrawals) + sum(len(turn.pods) for turn in plan.turns)
        created = {pod.uid: request(pod) for turn in plan.turns for pod in turn.pods}
        seen = replace(seen, budgets=plan.budgets, requests={**seen.requests, **created})
        now += _TICK
    return {
        "scenario": scenario.name,
        "failedNodes": failed,
        "requests": len(asked),
        "medianMilliseconds": statistics.median(planning),
        "maxMilliseconds": max(planning),
        "medianProcessorMilliseconds": statistics.median(processor),
        "writesPerTick": writes / ticks,
        "load": os.getloadavg()[0],
    }


def _nodes(count: int) -> Iterator[tuple[str, Node]]:
    """All of them unreachable, zone by zone."""
    condition = {"type": READY, "status": "Unknown", "lastTransitionTime": format_time(START)}
    for number in range(count):
        name = f"node-{number:05}"
        zone = "abc"[number * _ZONES // count]
        metadata = {"name": name, "labels": {REGION_LABEL: "eu-1", ZONE_LABEL: zone}}
        served = {"metadata": metadata, "spec": {}, "status": {"conditions": [condition]}}
        yield name, Node.of(decode_model(NodeObject, served))


def _pods(count: int, nodes: list[str]) -> Iterator[NodePod]:
    tolerations = [
        {"key": f"node.kubernetes.io/{key}", "operator": "Exists", "effect": "NoExecute"}
        | {"tolerationSeconds": 300}
        for key in ("not-ready", "unreachable")
    ]
    for number in track(range(count), "cutting down pods"):
        served = {
            "metadata": {
                "name": f"web-{number:06}",
                "namespace": f"team-{number % 200}",
                "uid": f"{number:08x}-0000-4000-8000-000000000000",
            },
            "spec": {"nodeName": nodes[number % len(nodes)], "tolerations": tolerations},
            "status": {"phase": "Running"},
        }
        yield NodePod.of(decode_model(PodObject, served))


def _megabytes() -> float:
    """What the process holds now."""
    (line,) = (line for line in _STATUS.read_text().splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) / 1024


def _report(document: Figures) -> None:
    table = Table("failed", "nodes", "requests", "median ms", "max ms", "CPU ms", "writes", "load")
    for run in document["runs"]:
        table.add_row(
            run["scenario"],
            str(run["failedNodes"]),
            str(run["requests"]),
            *(
                f"{run[field]:.1f}"
                for field in (
                    "medianMilliseconds",
                    "maxMilliseconds",
                    "medianProcessorMilliseconds",
                    "writesPerTick",
                    "load",
                )
            ),
        )
    console = Console()
    console.print(table)
    console.print(
        f"{document['nodes']} nodes and {document['pods']} pods: {document['readSeconds']:.1f} s "
        f"to cut them down, {document['keptMegabytes']:.0f} MiB for what is kept of them; "
        f"peak of the process: {document['peakMegabytes']:.0f} MiB"
    )
    console.print("asked: all pods of the failed nodes have a request already")
    console.print("load: of the whole machine; CPU ms (the median) depend on it least")
    console.print(f"written to {OUTPUT}")


if __name__ == "__main__":
    main()
