"""What can be said of the chart without helm: its files agree with the program and each other."""

import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import click
import jsonschema_rs
import pytest
import yaml

from cli.commands.certs import agent
from cli.commands.controller import command as controller
from cli.commands.serve import command as serve
from rules.catalog import GUARDS, RULES
from rules.mutate import MUTATIONS
from tests.chart.generate import files
from tests.chart.matrix import MATRIX
from tests.chart.queries import exported, problems
from tests.chart.values import CHART, DEFAULTS, VALUES, Values, leaves
from tests.examples.shell import ROOT

SCHEMA: Final[dict[str, Any]] = json.loads(
    (CHART / "values.schema.json").read_text(encoding="utf-8")
)
VALIDATOR: Final = jsonschema_rs.Draft7Validator(SCHEMA)
DASHBOARD: Final[dict[str, Any]] = json.loads(
    (CHART / "files" / "dashboard.json").read_text(encoding="utf-8")
)


# --- generated ------------------------------------------------------------------------------------


def test_generated_files_are_up_to_date() -> None:
    wanted = files()
    old = {path for path, text in wanted.items() if path.read_text(encoding="utf-8") != text}
    assert old == set(), "run 'make chart'"
    # No definition is left from former times.
    assert set((CHART / "files" / "crds").iterdir()) <= set(wanted)


def test_the_chart_is_of_this_version() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    assert chart["appVersion"] == project["version"]


# --- values ---------------------------------------------------------------------------------------


def test_every_value_is_explained() -> None:
    bare = [".".join(each.path) for each in VALUES if each.default is not None and not each.text]
    assert bare == []


def test_defaults_fit_the_schema() -> None:
    jsonschema_rs.meta.validate(SCHEMA)
    VALIDATOR.validate(DEFAULTS)


def test_the_schema_knows_every_value_and_no_other() -> None:
    described = {path for path in _described(SCHEMA, ()) if path != ("global",)}
    assert described == {each.path for each in VALUES}


def _described(schema: dict[str, Any], above: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Values that the schema has; where values.yaml goes on below one, it lets in no other."""
    for name, each in schema["properties"].items():
        path = (*above, name)
        yield path
        if any(len(value.path) > len(path) and value.path[: len(path)] == path for value in VALUES):
            assert each["additionalProperties"] is False
            yield from _described(each, path)


@pytest.mark.parametrize("case", MATRIX)
def test_the_values_of_the_matrix_fit_the_schema(case: str) -> None:
    # A null takes a default away before helm looks at the schema.
    VALIDATOR.validate(_without_nulls(MATRIX[case]))


def _without_nulls(found: Any) -> Any:
    if not isinstance(found, dict):
        return found
    return {name: _without_nulls(each) for name, each in found.items() if each is not None}


def test_the_matrix_sets_every_value() -> None:
    tried = {path for case in MATRIX.values() for path, _ in leaves(case)}
    assert tried == {each.path for each in VALUES if each.default is not None}


def test_the_matrix_sets_no_value_to_its_default() -> None:
    defaults = dict(leaves(DEFAULTS))
    same = [
        (name, path)
        for name, case in MATRIX.items()
        for path, value in leaves(case)
        if defaults[path] == value
    ]
    assert same == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"replica": 3},
        {"replicas": 0},
        {"mode": "natve"},
        {"audit": "yes"},
        {"enforce": {"responder-identity": "denied"}},
        {"enforce": {"nobodys-guard": "deny"}},
        {"image": {"digest": "latest"}},
        {"webhook": {"url": "http://usher.example.com"}},
        {"webhook": {"url": "https://usher.example.com?a=b"}},
        {"webhook": {"mutations": []}},
        {"webhook": {"extraArgs": ["max-body=3Mi"]}},
        {"certificates": {"own": {"caLife": "1y"}}},
        {"certificates": {"source": "vault"}},
        {"certificates": {"certManager": {"issuerRef": {"kind": "Issuer"}}}},
        {"controller": {"requestTTL": -1}},
        {"metrics": {"prometheusRule": {"ignoredNamespaces": ["shop|.*"]}}},
        {"controller": {"nodeHealth": {"unhealthyZoneThreshold": 55}}},
        {"registration": {"validating": {"timeoutSeconds": 31}}},
        {"registration": {"validating": {"namespaceSelector": {"acme.io/tier": "one"}}}},
        {"roles": {"responder": {"names": {"failover": ["failover"]}}}},
        {"commonLabels": {"app.kubernetes.io/name": "mine"}},
        {"podLabels": {"app.kubernetes.io/instance": "mine"}},
        {"podDisruptionBudget": {"maxUnavailable": "half"}},
        {"service": {"ipFamilies": ["IPv5"]}},
    ],
    ids=str,
)
def test_the_schema_refuses(wrong: Values) -> None:
    with pytest.raises(jsonschema_rs.ValidationError):
        VALIDATOR.validate(wrong)


# --- the program's own numbers --------------------------------------------------------------------

_SAME: Final[list[tuple[str, click.Command, str]]] = [
    ("mode", serve, "mode"),
    ("webhook.port", serve, "port"),
    ("webhook.healthPort", serve, "health_port"),
    ("webhook.concurrency", serve, "concurrency"),
    ("webhook.drainSeconds", serve, "drain_seconds"),
    ("webhook.tlsMinVersion", serve, "tls_min_version"),
    ("webhook.responseBudget", serve, "response_budget"),
    ("controller.evictor", controller, "evictor"),
    ("controller.events", controller, "events"),
    ("controller.standDown", controller, "stand_down"),
    ("controller.concurrency", controller, "concurrency"),
    ("controller.damping", controller, "damping"),
    ("controller.evictionDeadline", controller, "eviction_deadline"),
    ("controller.nodeHealth.enabled", controller, "node_health"),
    ("controller.nodeHealth.requester", controller, "node_health_requester"),
    ("controller.nodeHealth.lead", controller, "node_health_lead"),
    ("controller.nodeHealth.deadline", controller, "node_health_deadline"),
    ("controller.nodeHealth.evictionRate", controller, "node_eviction_rate"),
    ("controller.nodeHealth.secondaryEvictionRate", controller, "secondary_node_eviction_rate"),
    ("controller.nodeHealth.unhealthyZoneThreshold", controller, "unhealthy_zone_threshold"),
    (
        "controller.nodeHealth.largeClusterSizeThreshold",
        controller,
        "large_cluster_size_threshold",
    ),
    ("certificates.own.caLife", agent, "ca_life"),
    ("certificates.own.leafLife", agent, "leaf_life"),
    ("certificates.own.wait", agent, "wait"),
    ("certificates.clusterDomain", agent, "cluster_domain"),
]


@pytest.mark.parametrize(("path", "command", "option"), _SAME, ids=[each[0] for each in _SAME])
def test_defaults_are_those_of_the_program(path: str, command: click.Command, option: str) -> None:
    (parameter,) = (each for each in command.params if each.name == option)
    assert dict(leaves(DEFAULTS))[tuple(path.split("."))] == parameter.default


def test_every_guard_stands_there_as_it_is_by_default() -> None:
    assert DEFAULTS["enforce"] == {name: RULES[name].enforcement.value for name in GUARDS}


def test_every_mutation_stands_there() -> None:
    assert DEFAULTS["webhook"]["mutations"] == list(MUTATIONS)


# --- dashboard ------------------------------------------------------------------------------------

_QUERIES: Final = [
    (panel["title"], target["expr"])
    for panel in DASHBOARD["panels"]
    for target in panel.get("targets", ())
]


@pytest.mark.parametrize(("title", "query"), _QUERIES, ids=[title for title, _ in _QUERIES])
def test_panels_ask_for_what_is_measured(title: str, query: str) -> None:
    assert problems(query.replace("$__rate_interval", "5m")) == []


def test_a_query_for_what_is_not_measured_is_found() -> None:
    assert problems("sum(usher_webhook_nothing_total)") == ["no metric usher_webhook_nothing_total"]
    assert problems('usher_webhook_in_flight{user="jane"}') == [
        "usher_webhook_in_flight has no label user"
    ]
    assert problems("sum by (user) (usher_webhook_in_flight)") == ["no label user to group by"]


def test_panels_are_all_there_side_by_side() -> None:
    panels = DASHBOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    cells = [
        (x, y)
        for at in (panel["gridPos"] for panel in panels)
        for x in range(at["x"], at["x"] + at["w"])
        for y in range(at["y"], at["y"] + at["h"])
    ]
    assert len(set(cells)) == len(cells)
    assert all(0 <= x < 24 for x, _ in cells)


def test_variables_ask_for_what_is_measured() -> None:
    asked = [
        re.match(r"label_values\((\w+)", variable["query"]["query"])
        for variable in DASHBOARD["templating"]["list"]
        if variable["type"] == "query"
    ]
    assert asked
    assert all(found is not None and found[1] in exported() for found in asked)


# --- nothing that must not be there ---------------------------------------------------------------


@pytest.mark.parametrize("path", sorted((CHART / "templates").rglob("*.*")), ids=lambda p: p.name)
def test_templates_look_nothing_up_and_make_nothing_up(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert not re.search(r"\blookup\b|\brand[A-Z]\w*|\bgen[A-Z]\w*|\bnow\b|\buuidv4\b", text)
    assert "kind: Secret" not in text
    assert "caBundle:" not in text
