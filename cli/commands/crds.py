"""``usher crds``: the CustomResourceDefinitions that a cluster needs."""

import json
from typing import Any

import click
import yaml

from cli.options import CONTEXT_SETTINGS, common_options
from rules.crd import definitions, policy_definitions
from rules.mutation import Mode


@click.command(
    name="crds",
    context_settings=CONTEXT_SETTINGS,
    epilog="\b\nExamples:\n  usher crds | kubectl apply --server-side -f -\n"
    "  usher crds -o json > crds.json\n"
    "  usher crds --mode native | kubectl apply --server-side -f -",
)
@click.option(
    "-o",
    "--output",
    type=click.Choice(["yaml", "json"]),
    default="yaml",
    help="YAML: one document a definition; JSON: one List.",
)
@click.option(
    "--mode",
    type=click.Choice([Mode.CRD.value, Mode.NATIVE.value]),
    default=Mode.CRD.value,
    help="native: leave out what Kubernetes serves itself.",
)
@common_options
def command(output: str, mode: str, **_: Any) -> None:
    """Print the CustomResourceDefinitions, generated from the model.

    Those of lifecycle.k8s.io, for clusters that do not serve it natively, and those of usher.dev,
    the policies that register responders.
    """
    found = policy_definitions() if mode == Mode.NATIVE else definitions()
    if output == "json":
        click.echo(json.dumps({"apiVersion": "v1", "kind": "List", "items": found}, indent=2))
    else:
        text = yaml.dump_all(found, Dumper=_Dumper, sort_keys=False, explicit_start=True, width=100)
        click.echo(text, nl=False)


class _Dumper(yaml.SafeDumper):
    """Writes shared parts out instead of as aliases, for people to read."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - PyYAML's signature
        return True
