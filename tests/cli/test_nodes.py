"""``usher nodes``, and docs/node-health.md: what it tells its readers to type does what it says."""

import json
import re
from pathlib import Path
from typing import Any, Final
from xml.etree import ElementTree as ET

import click
import pytest
import yaml

from cli.commands import nodes
from tests.cli.conftest import Usher
from tests.examples.shell import blocks, page, run_shell

PAGE: Final = page("node-health.md")
NOW: Final = ("--now", "2026-07-01T12:00:00Z")
FAILED: Final = {"a": 12, "b": 1, "c": 0}
EXISTS: Final = {"operator": "Exists", "tolerationSeconds": 300}


def node(zone: str, number: int) -> dict[str, Any]:
    status = "Unknown" if number < FAILED[zone] else "True"
    ready = {"type": "Ready", "status": status, "lastTransitionTime": "2026-07-01T11:50:00Z"}
    labels = {"topology.kubernetes.io/region": "eu-1", "topology.kubernetes.io/zone": zone}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": f"{zone}-{number:02}", "labels": labels},
        "status": {"conditions": [ready]},
    }


def pods(of: dict[str, Any]) -> list[dict[str, Any]]:
    """Two that leave after 300 seconds, and one that stays."""
    name = of["metadata"]["name"]
    return [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": f"{name}-{number}",
                "namespace": "default",
                "uid": f"{name}-{number}",
            },
            "spec": {"nodeName": name, "tolerations": [tolerates]},
            "status": {"phase": "Running"},
        }
        for number, tolerates in enumerate([EXISTS, EXISTS, {"operator": "Exists"}])
    ]


NODES: Final = [node(zone, number) for zone in FAILED for number in range(20)]
PODS: Final = [item for of in NODES for item in pods(of)]


def dump(items: list[dict[str, Any]], kind: str = "List") -> str:
    return json.dumps({"apiVersion": "v1", "kind": kind, "items": items})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "cluster.json").write_text(dump([*NODES, *PODS]))
    (outage,) = (block for block in blocks(PAGE, "yaml") if block.startswith("# outage.yaml"))
    (tmp_path / "outage.yaml").write_text(outage)
    return tmp_path


# --- the page -----------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    "shown", [text for b in blocks(PAGE, "console") for text in re.split(r"(?m)^\$ ", b)[1:]]
)
def test_what_a_command_prints(folder: Path, shown: str) -> None:
    command, _, printed = shown.partition("\n")
    run = run_shell(command, folder)
    assert (run.stdout, run.returncode) == (printed, 0), run.stderr


@pytest.mark.slow
def test_the_pictures(folder: Path) -> None:
    (script,) = (block for block in blocks(PAGE, "sh") if "svg" in block)
    run = run_shell(script, folder)
    assert run.returncode == 0, run.stderr
    pictures = [(folder / name).read_text() for name in ("outage.svg", "faster.svg")]
    assert pictures[0] != pictures[1]
    for picture in pictures:
        root = ET.fromstring(picture)
        texts = [element.text for element in root.iter() if element.tag.endswith("}text")]
        assert {"eu-1/a", "eu-1/b", "eu-1/c", "unhealthy nodes"} <= set(texts)


def test_the_picture_shows_who_is_evicted(usher: Usher, folder: Path) -> None:
    """15 nodes of the third zone have a turn; 10 of them recover, and 5 of 20 are left."""
    run = usher("nodes", "cluster.json", "--simulate", "outage.yaml", "-o", "svg")
    root = ET.fromstring(run.stdout)
    areas = [element.get("d", "") for element in root.iter() if element.get("class") == "evicted"]
    panels = [float(e.get("y", "0")) for e in root.iter() if e.get("height") == "110"]
    assert len(areas) == 1 + 3  # the legend has one, too
    assert areas[-1].endswith(f"V{panels[-1] + 110 * 15 / 20}V{panels[-1] + 110}Z")
    assert "30 pods asked to leave in 15 turns, 20 no longer" in run.stdout


def test_the_flags_of_the_page_exist_with_their_defaults() -> None:
    known = {
        option: parameter
        for parameter in nodes.command.params
        for option in parameter.opts
        if isinstance(parameter, click.Option)
    }
    rows = re.findall(r"^\| `(--[a-z-]+)` \| ([\d.]+) \|", PAGE, re.MULTILINE)
    assert len(rows) == 5
    for flag, default in rows:
        assert known[flag].default == float(default)


def test_help_mentions_every_option_and_its_timeline_is_one(usher: Usher, folder: Path) -> None:
    run = usher("nodes", "--help")
    for parameter in nodes.command.params:
        for option in parameter.opts if isinstance(parameter, click.Option) else ():
            assert option in run.stdout
            assert parameter.help
    assert "\n    usher nodes" in run.stdout
    example = re.search(r"A timeline:\n(.*?)\n\n", run.stdout, re.DOTALL)
    assert example
    (folder / "outage.yaml").write_text(example[1])
    assert usher("nodes", "cluster.json", "--simulate", "outage.yaml").exit_code == 0


# --- output -------------------------------------------------------------------------------------


def shown(usher: Usher, *arguments: str, stdin: str | None = None) -> dict[str, Any]:
    run = usher("nodes", *arguments, *NOW, "-o", "json", stdin=stdin)
    assert run.exit_code == 0, run.stderr
    content: dict[str, Any] = json.loads(run.stdout)
    return content


def test_json(usher: Usher, folder: Path) -> None:
    content = shown(usher, "cluster.json")
    assert (content["isDown"], content["podsKnown"]) == (False, True)
    zone = content["zones"][0]
    assert len(zone.pop("waiting")) == 11
    assert zone == {
        "region": "eu-1",
        "zone": "a",
        "state": "partial disruption",
        "nodes": 20,
        "unhealthyNodes": 12,
        "unhealthyFraction": 0.6,
        "evictionRate": 0.01,
        "budget": None,
        "next": "a-00",
    }
    assert content["evictions"][0] == {
        "time": "2026-07-01T12:00:00Z",
        "region": "eu-1",
        "zone": "a",
        "node": "a-00",
        "pods": 2,
    }
    for name in ("now", "until", *zone, "waiting", "since", "zoneChanges", "withdrawals", "pods"):
        assert f"`{name}`" in PAGE


def test_withdrawals_are_told(usher: Usher, folder: Path) -> None:
    content = shown(usher, "cluster.json", "--simulate", "outage.yaml")
    assert len(content["withdrawals"]) == 10
    text = usher("nodes", "cluster.json", "--simulate", "outage.yaml").stdout
    assert "2026-07-01T12:06:40Z  eu-1/c  c-00: 2 pods no longer asked\n" in text
    assert "12:00:00Z  eu-1/c  full disruption: 20 of 20 nodes unhealthy; 1 node in 10 s\n" in text


def test_flags_change_the_rates(usher: Usher, folder: Path) -> None:
    flags = ("--unhealthy-zone-threshold", "0.7", "--node-eviction-rate", "2")
    assert [zone["evictionRate"] for zone in shown(usher, "cluster.json", *flags)["zones"]] == [
        2
    ] * 3
    run = usher("nodes", "cluster.json", *NOW, *flags)
    assert "2 nodes/s" in run.stdout
    small = ("--large-cluster-size-threshold", "60")
    assert "stopped" in usher("nodes", "cluster.json", *NOW, *small).stdout
    slow = ("--secondary-node-eviction-rate", "0.02")
    assert "1 node in 50 s" in usher("nodes", "cluster.json", *NOW, *slow).stdout


def test_nothing_to_do_and_everything_down(usher: Usher) -> None:
    healthy = dump([node("c", number) for number in range(3)])
    assert "\nNothing would be evicted until 2026-07-01T13:00:00Z.\n" in (
        usher("nodes", "-", *NOW, stdin=healthy).stdout
    )
    down = dump([node("a", number) for number in range(3)])
    assert "the control plane that is cut off" in usher("nodes", "-", *NOW, stdin=down).stdout


def test_own_requests_are_not_made_again(usher: Usher) -> None:
    target = {"pod": {"name": "b-00-0", "uid": "b-00-0"}}
    spec = {"target": target, "requester": "node-health.usher.dev/controller", "intent": "Eviction"}
    request = {
        "apiVersion": "lifecycle.k8s.io/v1alpha1",
        "kind": "EvictionRequest",
        "metadata": {"name": "node-health-b-00-0", "namespace": "default"},
        "spec": spec,
    }
    others = request | {"spec": spec | {"requester": "a.io/b"}}
    renamed = request | {"metadata": {"name": "r", "namespace": "default"}}
    ours = ("--node-health-requester", "a.io/b")
    for listed, flags, wanted in (
        ([request], (), 1),
        ([request], ours, 2),
        ([others], (), 2),
        ([others], ours, 1),
        ([renamed], (), 2),
    ):
        items = [*NODES[20:], *PODS[60:], *listed]
        found = shown(usher, "-", *flags, stdin=dump(items))
        assert found["evictions"][0]["pods"] == wanted


def test_names_cannot_write_to_the_terminal(usher: Usher) -> None:
    evil = node("a", 0)
    evil["metadata"] |= {
        "name": "\x1b[31m<b>",
        "labels": {"topology.kubernetes.io/zone": "\x1b<z>"},
    }
    text = dump([evil, node("c", 1)])
    for output in ("text", "svg", "json"):
        assert "\x1b" not in usher("nodes", "-", *NOW, "-o", output, stdin=text).stdout
    assert "<z>" not in usher("nodes", "-", *NOW, "-o", "svg", stdin=text).stdout


# --- input --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        dump(NODES),
        dump([{"metadata": n["metadata"], "status": n["status"]} for n in NODES], "NodeList"),
        yaml.safe_dump({"apiVersion": "v1", "kind": "List", "items": NODES}),
        yaml.safe_dump_all(NODES),
        "\n  " + dump([*NODES, {"apiVersion": "v1", "kind": "Namespace"}, {"kind": "x/y"}]),
    ],
    ids=["json", "typed-list", "yaml", "documents", "other-kinds"],
)
def test_all_forms_of_a_dump(usher: Usher, text: str) -> None:
    run = usher("nodes", "-", *NOW, "-o", "json", stdin=text)
    assert run.exit_code == 0, run.stderr
    assert [zone["nodes"] for zone in json.loads(run.stdout)["zones"]] == [20, 20, 20]
    assert json.loads(run.stdout)["evictions"][0]["pods"] == 1
    assert run.stderr == "no pods in the input: one on each node is assumed\n"


def test_a_single_node(usher: Usher) -> None:
    text = json.dumps(node("c", 0))
    assert [zone["nodes"] for zone in shown(usher, "-", stdin=text)["zones"]] == [1]


def test_a_file_of_nodes_and_one_of_pods(usher: Usher) -> None:
    Path("nodes.json").write_text(dump(NODES))
    Path("pods.json").write_text(dump(PODS))
    assert shown(usher, "nodes.json", "pods.json")["podsKnown"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the input must hold nodes"),
        (dump([]), "the input must hold nodes; make one with 'kubectl get nodes,pods -A -o json'"),
        ("{", "<stdin>: must be valid JSON"),
        ("a: [", "<stdin>:1: must be valid YAML"),
        (dump([{"kind": "Node", "metadata": {"name": 1}}]), "must be a string"),
        (dump([{"kind": "Pod", "metadata": {"name": "p"}, "spec": 1}]), "Pod 'p': spec: must be"),
    ],
)
def test_bad_dumps(usher: Usher, text: str, message: str) -> None:
    run = usher("nodes", "-", stdin=text)
    assert run.exit_code == 2
    assert message in run.stderr


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "must hold one timeline"),
        ("events: []\n---\nevents: []", "must hold one timeline"),
        ("events: [", "t.yaml:1: must be valid YAML"),
        ("events: []\nevents: []", "t.yaml:2: the key 'events' stands here twice"),
        ("event: []", "t.yaml: event: no such field; did you mean 'events'?"),
        ("events: [{after: 1}]", "t.yaml: events[0].after: no such field"),
        ("events: 1", "t.yaml: events: must be a list"),
        ("events: [{state: down}]", "t.yaml: events[0].state: must be one of ready, not-ready"),
        ("- 1", "must be an object"),
    ],
)
def test_bad_timelines(usher: Usher, folder: Path, text: str, message: str) -> None:
    Path("t.yaml").write_text(text)
    run = usher("nodes", "cluster.json", "--simulate", "t.yaml")
    assert run.exit_code == 2
    assert message in run.stderr


def test_bad_usage(usher: Usher, folder: Path) -> None:
    for arguments, message in (
        (("--kubeconfig", "nowhere"), "Outside of a cluster give --kubeconfig, or a FILE"),
        (("cluster.json", "--kubeconfig", "x"), "leave it out, or the FILEs"),
        (("nowhere.json",), "no such file or directory"),
        (("cluster.json", "--simulate", "nowhere.yaml"), "No such file or directory"),
        (("-", "--simulate", "-"), "standard input can be read only once"),
        (("cluster.json", "--unhealthy-zone-threshold", "0"), "not in the range"),
    ):
        run = usher("nodes", *arguments, stdin="")
        assert run.exit_code == 2
        assert message in run.stderr
