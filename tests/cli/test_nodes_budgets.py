"""``usher nodes``: pods on failed nodes that a PodDisruptionBudget would keep there."""

import json
from pathlib import Path
from typing import Any, Final

import pytest

from tests.cli.conftest import Usher
from tests.cli.test_nodes_outages import node

COUNTED: Final = {"observedGeneration": 1, "currentHealthy": 1, "desiredHealthy": 2}


def failed() -> list[dict[str, Any]]:
    first, *others = [node("a", f"{number:02}") for number in range(9)]
    ready = {"type": "Ready", "status": "Unknown", "lastTransitionTime": "2026-07-01T11:00:00Z"}
    return [{**first, "status": {"conditions": [ready]}}, *others]


def pod(name: str = "db-1", on: str = "a-00", ready: str = "False", **more: Any) -> Any:
    metadata = {"name": name, "namespace": "db", "uid": name, "labels": {"app": "db"}}
    status = {"phase": "Running", "conditions": [{"type": "Ready", "status": ready}]}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata | more.pop("metadata", {}),
        "spec": {"nodeName": on, **more.pop("spec", {})},
        "status": status | more,
    }


def budget(name: str = "db", policy: str | None = None, **status: Any) -> dict[str, Any]:
    spec = {"selector": {"matchLabels": {"app": "db"}}}
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name, "namespace": "db", "generation": 1},
        "spec": spec | ({"unhealthyPodEvictionPolicy": policy} if policy else {}),
        "status": {**COUNTED, "disruptionsAllowed": 0, **status},
    }


@pytest.fixture
def shown(usher: Usher, tmp_path: Path) -> Any:
    def run(*items: dict[str, Any], output: str = "json") -> Any:
        listed = {"apiVersion": "v1", "kind": "List", "items": [*failed(), *items]}
        (tmp_path / "cluster.json").write_text(json.dumps(listed))
        now = ("--now", "2026-07-01T12:00:00Z")
        done = usher("nodes", "cluster.json", *now, "-o", output)
        assert done.exit_code == 0, done.stderr
        return json.loads(done.stdout) if output == "json" else done.stdout

    return run


def test_two_dead_replicas_of_three(shown: Any) -> None:
    """The third one is healthy, and the budget wants two: the dead ones are kept for ever."""
    items = [pod("db-0", "a-05", "True"), pod("db-1"), pod("db-2"), budget()]
    wanted = "it wants 2 healthy pods, and 1 are"
    assert shown(*items)["refusedByBudgets"] == [
        {"namespace": "db", "name": name, "node": "a-00", "budget": "db", "reason": wanted}
        for name in ("db-1", "db-2")
    ]
    text = shown(*items, output="text")
    assert "Would not be evicted, because a PodDisruptionBudget refuses:" in text
    assert f"  db/db-1 on a-00: db: {wanted}\n" in text


@pytest.mark.parametrize(
    ("one", "guard"),
    [
        (pod(), budget(policy="AlwaysAllow")),
        (pod(), budget(currentHealthy=2)),
        (pod(), budget(policy="IfHealthyBudget", currentHealthy=2)),
        (pod(ready="True"), budget(disruptionsAllowed=1)),
        (pod(phase="Pending"), budget()),
        (pod(phase="Failed"), budget()),
        (pod(on="a-01"), budget()),
        (pod(metadata={"namespace": "other"}), budget()),
        (pod(metadata={"labels": {"app": "web"}}), budget()),
        (pod(metadata={"deletionTimestamp": "2026-07-01T12:00:00Z"}), budget()),
        (pod(spec={"tolerations": [{"operator": "Exists"}]}), budget()),
        (pod(), {**budget(), "spec": {}}),
    ],
)
def test_who_gets_away(shown: Any, one: Any, guard: Any) -> None:
    assert shown(one, guard)["refusedByBudgets"] == []


@pytest.mark.parametrize(
    ("one", "guards", "reason"),
    [
        (pod(ready="True"), [budget(policy="AlwaysAllow")], "it wants 2 healthy pods, and 1 are"),
        (pod(), [budget(policy="IfHealthyBudget")], "it wants 2 healthy pods, and 1 are"),
        (pod(), [budget(currentHealthy=0, desiredHealthy=0)], "it wants 0 healthy pods, and 0 are"),
        (pod(), [budget(observedGeneration=0)], "it has not been counted yet"),
        (
            pod(),
            [budget(policy="AlwaysAllow"), budget("other")],
            "a pod with more than one budget is never evicted",
        ),
    ],
)
def test_who_does_not(shown: Any, one: Any, guards: Any, reason: str) -> None:
    (refused,) = shown(one, *guards)["refusedByBudgets"]
    assert refused["reason"] == reason


def test_without_budgets_in_the_dump_nothing_is_known(shown: Any) -> None:
    assert shown(pod())["refusedByBudgets"] is None
    assert "PodDisruptionBudget" not in shown(pod(), output="text")
