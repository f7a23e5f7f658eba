"""docs/controller.md names what there is: flags, metrics, Events, rights."""

import json
import re
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import click
import yaml

from cli.main import usher as group
from controller.eviction.planning import occurrences as eviction_occurrences
from controller.eviction.view import View
from controller.metrics import Metrics, StateCollector
from controller.node_health.metrics import NodeMetrics, ZoneCollector
from controller.node_health.planning import occurrences as node_occurrences
from tests.controller.rights import NODE_HEALTH, PERMISSIONS
from tests.e2e.api import Object
from tests.examples.shell import blocks, page, run_shell

PAGE: Final = page("controller.md")


def _rows(heading: str) -> list[list[str]]:
    """The cells of the table whose first header is ``heading``."""
    (table,) = re.findall(rf"^\| {heading} \|.*\n\|[-|]+\n((?:\|.*\n)+)", PAGE, re.MULTILINE)
    return [re.split(r"(?<!\\)\|", row)[1:-1] for row in table.splitlines()]


def test_flags_and_defaults() -> None:
    command = group.get_command(click.Context(group), "controller")
    assert command is not None
    told = {}
    for names, default, _ in _rows("flag"):
        for name in re.findall(r"--[a-z-]+", names):
            told[name] = default.strip().replace("`", "").removesuffix(" s")
    options = [each for each in command.params if isinstance(each, click.Option)]
    flags = {name for each in options for name in (*each.opts, *each.secondary_opts)}
    assert set(told) == flags
    for option in options:
        default, name = option.default, option.opts[-1]
        if isinstance(default, bool):
            assert told[name] == ("on" if default else "off")
        elif isinstance(default, tuple):
            assert told[name] == ", ".join(default)
        elif isinstance(default, int | float):
            assert float(told[name]) == default
        elif isinstance(default, str):
            assert told[name] == default


def test_metrics() -> None:
    metrics = Metrics()
    metrics.registry.register(
        StateCollector(View(), lambda: (0, 0), dict, lambda: datetime.now(UTC), lambda: True)
    )
    NodeMetrics(metrics.registry)
    metrics.registry.register(ZoneCollector(lambda: None, lambda: datetime.now(UTC)))
    named = {
        family.name + ("_total" if family.type == "counter" else "")
        for family in metrics.registry.collect()
    }
    table = PAGE.partition("| name | what |")[2].partition("\n\n")[0]
    told = {name for row in table.splitlines() for name in re.findall(r"`(\w+_\w+)`", row)}
    assert told == named


def test_events() -> None:
    modules = (eviction_occurrences, node_occurrences)
    source = "".join(Path(module.__file__).read_text(encoding="utf-8") for module in modules)
    told = {reason for row in _rows("reason") for reason in re.findall(r"`(\w+)`", row[0])}
    assert told == set(re.findall(r"Occurrence\(\"(\w+)\"", source))


def rights() -> list[Object]:
    """The documents of the page's section about rights, without those of certain flags."""
    return list(yaml.safe_load_all(blocks(PAGE, "yaml")[0]))


def test_rights() -> None:
    assert _rules(rights()) == sorted(PERMISSIONS, key=str)


def test_rights_of_node_health() -> None:
    _, block = blocks(PAGE, "yaml")
    assert _rules(yaml.safe_load_all(block)) == sorted(NODE_HEALTH, key=str)


def _rules(documents: Iterable[Object]) -> list[Object]:
    rules = [rule for document in documents for rule in document.get("rules", [])]
    return sorted(rules, key=str)


def test_the_plan(tmp_path: Path) -> None:
    (script,) = blocks(PAGE, "sh")
    run = run_shell(script, tmp_path)
    assert run.returncode == 0, run.stderr
    eviction, status = json.loads(run.stdout)["writes"]
    assert (eviction["resource"], eviction["name"]) == ("evictions", "pod-1-db-0")
    assert (status["resource"], status["subresource"]) == ("evictionrequests", "status")
