"""Renders the chart with helm, as a user would: no cluster is asked."""

import json
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import yaml

from tests.chart.values import CHART
from tests.controlplane import NoToolchainError, binary_path
from tests.controlplane.availability import skip_or_fail

Object = dict[str, Any]
Values = Mapping[str, Any]

RELEASE: Final = "usher"
NAMESPACE: Final = "usher-system"
HELM_SECONDS: Final = 300
"""Seconds after which helm hangs. It asks nobody here, so no watch limits it as in ``patience``."""


@dataclass(frozen=True, slots=True)
class Rendered:
    """What ``helm template`` said."""

    code: int
    text: str
    errors: str

    @property
    def objects(self) -> list[Object]:
        """The objects, in helm's order."""
        assert self.code == 0, self.errors
        return [each for each in yaml.load_all(self.text, yaml.CSafeLoader) if each]

    def all(self, kind: str) -> list[Object]:
        """All objects of a kind."""
        return [each for each in self.objects if each["kind"] == kind]

    def one(self, kind: str, name: str | None = None) -> Object:
        """The only object of a kind, or the one of that name."""
        found = self.all(kind)
        (only,) = (each for each in found if name in (None, each["metadata"]["name"]))
        return only


def helm_path(program: str = "helm") -> str:
    """The program of the test bed; the test is skipped where it can't be had."""
    try:
        return str(binary_path(program))
    except NoToolchainError as error:
        skip_or_fail(str(error))


def render(
    values: Values, *flags: str, program: str = "helm", namespace: str = NAMESPACE
) -> Rendered:
    """Render the chart with ``values``."""
    command = [helm_path(program), "template", RELEASE, str(CHART), "--namespace", namespace]
    done = subprocess.run(
        [*command, "--values", "-", *flags],
        input=json.dumps(values),
        capture_output=True,
        text=True,
        timeout=HELM_SECONDS,
        check=False,
    )
    return Rendered(done.returncode, done.stdout, done.stderr)


def pod_specs(objects: list[Object]) -> list[Object]:
    """The specification of every pod that comes of ``objects``."""
    return [
        each["spec"]["template"]["spec"] if each["kind"] == "Deployment" else each["spec"]
        for each in objects
        if each["kind"] in ("Deployment", "Pod")
    ]


def containers(objects: list[Object]) -> list[Object]:
    """Every container of ``objects``, the initial ones as well."""
    return [
        container
        for spec in pod_specs(objects)
        for container in (*spec.get("initContainers", ()), *spec["containers"])
    ]
