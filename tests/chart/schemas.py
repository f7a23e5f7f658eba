"""What an object may look like: the documents of Kubernetes and of operators, strictly read.

They come out of Go modules, whose sums the go.mod files beside the test bed pin.
"""

import functools
import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import jsonschema_rs
import yaml

from tests.controlplane.availability import skip_or_fail
from tests.controlplane.binaries import TESTS

Object = dict[str, Any]

_OF_THE_CHART: Final = TESTS / "chart" / "schemas"
_KUBERNETES: Final = {"1.30": _OF_THE_CHART, "1.37": TESTS}
"""Release → the folder whose go.mod pins it."""
RELEASES: Final = tuple(_KUBERNETES)
_CERT_MANAGER: Final = ("github.com/cert-manager/cert-manager", "deploy/crds/cert-manager.io")
_PROMETHEUS: Final = (
    "github.com/prometheus-operator/prometheus-operator",
    "example/prometheus-operator-crd/monitoring.coreos.com",
)
"""Module, and how the paths of its CustomResourceDefinitions begin."""
_WANTED: Final = {
    "certificates": _CERT_MANAGER,
    "issuers": _CERT_MANAGER,
    "prometheusrules": _PROMETHEUS,
    "servicemonitors": _PROMETHEUS,
}
"""What the chart makes of others' kinds."""
_OPEN: Final = ("x-kubernetes-preserve-unknown-fields", "x-kubernetes-embedded-resource")


@functools.cache
def _folder(module: str, pinned_by: Path) -> Path:
    """Where the module is unpacked; it is fetched on first use."""
    go = shutil.which("go")
    if go is None:
        skip_or_fail("Go is not installed, which fetches schemas")
    done = subprocess.run(
        [go, "mod", "download", "-json", module],
        cwd=pinned_by,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return Path(json.loads(done.stdout)["Dir"])


@functools.cache
def foreign_definitions() -> tuple[Object, ...]:
    """CustomResourceDefinitions of the kinds of others that the chart makes."""
    return tuple(
        yaml.load(
            Path(f"{_folder(module, _OF_THE_CHART) / start}_{resource}.yaml").read_bytes(),
            yaml.CSafeLoader,
        )
        for resource, (module, start) in _WANTED.items()
    )


def problems(document: Object, release: str) -> list[str]:
    """What Kubernetes ``release`` would not find in its schema, or miss."""
    validator = _validator(document["apiVersion"], document["kind"], release)
    return [
        f"{'.'.join(map(str, each.instance_path))}: {each.message}"
        for each in validator.iter_errors(document)
    ]


@functools.cache
def _validator(version: str, kind: str, release: str) -> jsonschema_rs.Draft202012Validator:
    for definition in foreign_definitions():
        spec = definition["spec"]
        if spec["names"]["kind"] != kind or not version.startswith(f"{spec['group']}/"):
            continue
        (served,) = (v for v in spec["versions"] if version == f"{spec['group']}/{v['name']}")
        schema = served["schema"]["openAPIV3Schema"]
        # Every object has these; a definition need not say so.
        base = {name: {} for name in ("apiVersion", "kind", "metadata")}
        schema = {**schema, "properties": {**base, **schema["properties"]}}
        schema["properties"]["metadata"] = {"type": "object", _OPEN[0]: True}
        return jsonschema_rs.Draft202012Validator(_strict(schema))
    group, _, name = version.rpartition("/")
    components = _components(group, name, release)
    (schema,) = (
        each
        for each in components.values()
        for meant in each.get("x-kubernetes-group-version-kind", ())
        if (meant["group"], meant["version"], meant["kind"]) == (group, name, kind)
    )
    document = {**schema, "components": {"schemas": components}}
    return jsonschema_rs.Draft202012Validator(document)


@functools.cache
def _components(group: str, version: str, release: str) -> dict[str, Object]:
    folder = _folder("k8s.io/kubernetes", _KUBERNETES[release]) / "api" / "openapi-spec" / "v3"
    name = f"apis__{group}__{version}" if group else f"api__{version}"
    document = json.loads((folder / f"{name}_openapi.json").read_text(encoding="utf-8"))
    return {name: _strict(each) for name, each in document["components"]["schemas"].items()}


def _strict(schema: Any) -> Any:
    """The same, where fields that it doesn't name are errors."""
    if isinstance(schema, list):
        return [_strict(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    strict = dict(_stricter(schema))
    is_open = any(strict.get(each) for each in _OPEN) or "additionalProperties" in strict
    if isinstance(strict.get("properties"), dict) and not is_open:
        strict["additionalProperties"] = False
    return strict


def _stricter(schema: Object) -> Iterator[tuple[str, Any]]:
    for name, each in schema.items():
        if name == "properties" and isinstance(each, dict):
            # What stands in there are names of fields, not words of a schema.
            yield name, {field: _strict(value) for field, value in each.items()}
        elif name != "format":  # of numbers and bytes: nothing that a JSON schema checks
            yield name, _strict(each)
