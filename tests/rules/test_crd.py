"""The CustomResourceDefinitions as documents; ``tests/e2e`` shows what API servers make of them."""

import copy
import json
import re
from collections.abc import Iterator
from typing import Any

import jsonschema_rs
import pytest

from rules import constraints as limits
from rules.api import API_VERSION, ApiType, Eviction, EvictionRequest
from rules.catalog import RULES
from rules.constraints import Constraint, Format, LongName, PrefixedKey, Uuid
from rules.crd import definitions, policy_definitions, schema
from rules.declared import fields_of
from rules.policies import POLICY_API_VERSION, ClusterResponderPolicy, ResponderPolicy
from rules.times import parse_time
from tests.vectors import admission_vectors

MODELS: dict[str, type[ApiType]] = {
    model.__name__: model
    for model in (Eviction, EvictionRequest, ResponderPolicy, ClusterResponderPolicy)
}
DEFINITIONS = {definition["spec"]["names"]["kind"]: definition for definition in definitions()}
# What a structural schema may hold, as far as we use it (apiextensions/v1 JSONSchemaProps).
KEYWORDS = {
    "additionalProperties", "default", "description", "enum", "format", "items", "maxItems",
    "maxLength", "maximum", "minimum", "pattern", "properties", "required", "type",
    "x-kubernetes-list-map-keys", "x-kubernetes-list-type", "x-kubernetes-map-type",
    "x-kubernetes-validations",
}  # fmt: skip
KEYWORDS_OF = {
    "Minimum": "minimum", "Maximum": "maximum", "MaxItems": "maxItems", "MaxLength": "maxLength",
}  # fmt: skip
RULE_KEYS = {"rule", "message", "reason", "fieldPath", "optionalOldSelf"}

Schema = dict[str, Any]
Node = tuple[str, Schema]


def schema_of(kind: str) -> Schema:
    (version,) = DEFINITIONS[kind]["spec"]["versions"]
    schema: Schema = version["schema"]["openAPIV3Schema"]
    return schema


def walk(schema: Schema, path: str = "") -> Iterator[Node]:
    yield path, schema
    for name, inner in schema.get("properties", {}).items():
        yield from walk(inner, f"{path}.{name}" if path else name)
    if "items" in schema:
        yield from walk(schema["items"], f"{path}[]")


NODES = [
    pytest.param(path, schema, id=f"{kind}:{path}")
    for kind in DEFINITIONS
    for path, schema in walk(schema_of(kind))
]
CEL_RULES = [
    pytest.param(schema, rule, id=f"{kind}:{path}#{number}")
    for kind in DEFINITIONS
    for path, schema in walk(schema_of(kind))
    for number, rule in enumerate(schema.get("x-kubernetes-validations", ()))
]


def declared(model: type[ApiType], path: str = "") -> Iterator[tuple[str, Constraint]]:
    """Every limit that a model declares, with the path of its field."""
    for field in fields_of(model):
        name = f"{path}.{field.name}" if path else field.name
        yield from ((name, limit) for limit in (*field.decisive, *field.others))
        if field.model is not None and name != "metadata":
            yield from declared(field.model, f"{name}[]" if field.is_list else name)


LIMITS = [
    pytest.param(kind, path, limit, id=f"{kind}:{path}:{limit.rule}")
    for kind, model in MODELS.items()
    for path, limit in declared(model)
]


def test_there_are_definitions_of_two_groups() -> None:
    wanted = {
        "evictions.lifecycle.k8s.io": (API_VERSION, "Namespaced"),
        "evictionrequests.lifecycle.k8s.io": (API_VERSION, "Namespaced"),
        "responderpolicies.usher.dev": (POLICY_API_VERSION, "Namespaced"),
        "clusterresponderpolicies.usher.dev": (POLICY_API_VERSION, "Cluster"),
    }
    assert {definition["metadata"]["name"] for definition in definitions()} == set(wanted)
    for definition in definitions():
        spec = definition["spec"]
        (version,) = spec["versions"]
        found = f"{spec['group']}/{version['name']}", spec["scope"]
        assert found == wanted[definition["metadata"]["name"]]
        assert definition["metadata"]["name"] == f"{spec['names']['plural']}.{spec['group']}"
        assert (version["served"], version["storage"]) == (True, True)
        assert version["subresources"] == {"status": {}}


def test_policies_can_be_had_alone() -> None:
    assert policy_definitions() == definitions()[2:]


def test_api_servers_accept_the_group() -> None:
    for definition in definitions():
        annotations = definition["metadata"].get("annotations", {})
        approval = annotations.get("api-approved.kubernetes.io", "")
        is_protected = definition["spec"]["group"].endswith("k8s.io")
        assert approval.startswith("unapproved, ") is is_protected


def test_output_is_the_same_every_time_and_nobody_shares_it() -> None:
    first = definitions()
    text = json.dumps(first)
    for definition in first:
        definition.clear()
    assert json.dumps(definitions()) == text


@pytest.mark.parametrize(("kind", "path", "limit"), LIMITS)
def test_every_limit_of_the_model_appears(kind: str, path: str, limit: Constraint) -> None:
    nodes = dict(walk(schema_of(kind)))
    parent = nodes[path.rpartition(".")[0]]
    own, above = rules_named(nodes[path], limit.rule), rules_named(parent, limit.rule)
    name = path.rpartition(".")[2]
    match limit:
        case limits.Minimum() | limits.Maximum() | limits.MaxItems() | limits.MaxLength():
            assert nodes[path][KEYWORDS_OF[type(limit).__name__]] == limit.limit
        case limits.OneOf():
            assert nodes[path]["enum"] == list(limit.choices)
        case limits.Unique():
            assert nodes[path]["x-kubernetes-list-type"] == "map"
            assert nodes[path]["x-kubernetes-list-map-keys"] == [limit.key]
        case Format():
            assert "pattern" in nodes[path]
        case limits.Required():
            assert name in parent.get("required", ()) or any(f".{name}" in r["rule"] for r in above)
        case limits.Immutable() | limits.ExactlyOneMember() | limits.UnreservedDomain():
            assert own
        case limits.UnreservedPriority():
            assert str(limits.RESERVED_PRIORITY_END) in own[0]["rule"]
        case _:
            assert any(rule["fieldPath"] == f".{name}" for rule in above)


def rules_named(schema: Schema, name: str) -> list[Schema]:
    rules = schema.get("x-kubernetes-validations", ())
    return [rule for rule in rules if rule["message"].endswith(f"(rule {name})")]


@pytest.mark.parametrize(("path", "schema"), NODES)
def test_schemas_are_structural_and_described(path: str, schema: Schema) -> None:
    assert set(schema) <= KEYWORDS
    assert schema["type"] in {"object", "array", "string", "integer"}
    assert schema.get("description") or path == "metadata" or path.endswith("values[]")
    assert set(schema.get("required", ())) <= set(schema.get("properties", ()))


@pytest.mark.parametrize(("path", "schema"), NODES)
def test_list_items_have_their_key(path: str, schema: Schema) -> None:
    if schema["type"] == "array" and schema["x-kubernetes-list-type"] != "atomic":
        assert schema["x-kubernetes-list-type"] == "map"
        assert set(schema["x-kubernetes-list-map-keys"]) <= set(schema["items"]["required"])


@pytest.mark.parametrize(("schema", "rule"), CEL_RULES)
def test_cel_rules_name_a_rule_and_an_existing_field(schema: Schema, rule: Schema) -> None:
    assert set(rule) <= RULE_KEYS
    found = re.search(r" \(rule ([a-z-]+)\)$", rule["message"])
    assert found is not None
    assert found[1] in RULES
    if "fieldPath" in rule:
        assert rule["fieldPath"].removeprefix(".") in schema["properties"]


@pytest.mark.parametrize(("schema", "rule"), CEL_RULES)
def test_cel_rules_read_no_optional_field_unasked(schema: Schema, rule: Schema) -> None:
    # A stored object may lack any field; reading it would refuse every later write.
    text = re.sub(r"'[^']*'", "''", rule["rule"])
    for owner, field in re.findall(r"\b(\w+|value\(\))\.(\w+)\b(?!\()", text):
        is_key = field in {"name", "type"}
        asked = rf"has\({re.escape(owner)}\.{field}\)"
        if owner not in {"self", "oldSelf"}:  # an item, asked under another variable perhaps
            asked = rf"has\([\w.()]+\.{field}\)"
        assert is_key or re.search(asked, text), f"{owner}.{field}"


FORMATTED = [
    "a", "web-0", "a.b-c", "", "Web", "-a", "a-", "a..b", "a" * 253, "a" * 254, "web\n", "ä",
    "acme.io/a", "acme.io/B_2", "acme.io/x.y-z", "/a", "a/", "A.io/a", "a.io/b/c", "a_b.io/c",
    "acme.io/-x", "acme.io/x-", "acme.io/" + "n" * 63, "acme.io/" + "n" * 64, "acme.io/x\n",
    "x" * 253 + "/" + "n" * 63, "272ce49c-7064-51e5-0c98-57dd86b50043",
    "272CE49C-7064-51e5-0c98-57dd86b50043", "272ce49c706451e50c9857dd86b50043",
    "272ce49c-7064-51e5-0c98-57dd86b5004g", "272ce49c-7064-51e5-0c98-57dd86b50043\n",
]  # fmt: skip


@pytest.mark.parametrize("text", FORMATTED)
@pytest.mark.parametrize(
    ("kind", "path", "format_"),
    [
        ("Eviction", "spec.target.pod.name", LongName),
        ("Eviction", "spec.target.pod.uid", Uuid),
        ("EvictionRequest", "spec.requester", PrefixedKey),
        ("Eviction", "status.responders[].name", PrefixedKey),
    ],
)
def test_patterns_are_the_formats_of_the_rules(
    kind: str, path: str, format_: type[Format], text: str
) -> None:
    node = dict(walk(schema_of(kind)))[path]
    # `\Z`: what `$` is to an API server.
    fits = re.search(node["pattern"].replace("$", r"\Z"), text) is not None
    assert (fits and len(text) <= node.get("maxLength", len(text))) is format_.accepts(text)


@pytest.mark.parametrize(
    "text",
    [
        "2026-07-01T12:00:00Z", "2026-07-01T12:00:00.5Z", "2026-07-01T12:00:00,5Z",
        "2026-07-01T12:00:00+01:00", "2026-07-01T12:00:00-24:60", "2026-07-01T12:00:00+25:00",
        "2026-07-01T12:00:00+01:61", "2026-07-01t12:00:00Z", "2026-07-01T12:00:00z",
        "2026-07-01 12:00:00Z", "2026-07-01T12:00:00", "2026-07-01T12:00Z", "2026-07-01",
        "12026-07-01T12:00:00Z", "2026-07-01T12:00:00Z\n", "0000-01-01T00:00:00Z", "",
    ],
)  # fmt: skip
def test_times_are_what_the_rules_can_read(text: str) -> None:
    node = dict(walk(schema_of("Eviction")))["status.responders[].startTime"]
    assert node["format"] == "date-time"
    fits = re.search(node["pattern"].replace("$", r"\Z"), text) is not None
    try:
        parse_time(text)
    except ValueError:
        assert not fits
    else:
        assert fits


def test_admitted_vectors_fit_the_schema() -> None:
    validators = {kind: jsonschema_rs.Draft4Validator(schema_of(kind)) for kind in DEFINITIONS}
    refused = {}
    for vector in admission_vectors():
        # Ratcheting admits on an update what the schema alone refuses.
        if vector["want"]["allowed"] and vector["operation"] == "CREATE":
            written = copy.deepcopy(vector["object"])
            written.pop("status", None)  # not written on creation
            errors = [error.message for error in validators[vector["kind"]].iter_errors(written)]
            if errors:
                refused[vector["id"]] = errors
    assert refused == {}


def test_columns_show_what_the_native_ones_do() -> None:
    columns = {
        kind: [c["name"] for c in definition["spec"]["versions"][0]["additionalPrinterColumns"]]
        for kind, definition in DEFINITIONS.items()
    }
    assert columns == {
        "EvictionRequest": ["Target", "Status", "Requester", "Intent", "Age", "Reason"],
        "Eviction": [
            "Target", "Status", "Active Responder", "Responder Priority", "Requesters", "Age",
            "Expected Finish", "Reason",
        ],
        "ResponderPolicy": ["Responder", "Priority", "Matched Pods", "Age"],
        "ClusterResponderPolicy": ["Responder", "Priority", "Matched Pods", "Age"],
    }  # fmt: skip


def test_limits_and_types_that_nobody_thought_of_are_errors() -> None:
    nothing: Any = object()
    for describe in (schema._keywords, lambda strange: schema._typed(strange, ())):
        with pytest.raises(TypeError, match="no schema for"):
            describe(nothing)
