"""``usher crds``: the CustomResourceDefinitions that serve the API where Kubernetes does not."""

import json
from typing import Any

import click
import yaml

from cli.options import CONTEXT_SETTINGS, common_options
from rules.crd import definitions


@click.command(
    name="crds",
    context_settings=CONTEXT_SETTINGS,
    epilog="\b\nExamples:\n  usher crds | kubectl apply --server-side -f -\n"
    "  usher crds -o json > crds.json",
)
@click.option(
    "-o",
    "--output",
    type=click.Choice(["yaml", "json"]),
    default="yaml",
    help="YAML: one document a definition; JSON: one List.",
)
@common_options
def command(output: str, **_: Any) -> None:
    """Print the CustomResourceDefinitions, generated from the model.

    For clusters that do not serve lifecycle.k8s.io natively.
    """
    found = definitions()
    if output == "json":
        click.echo(json.dumps({"apiVersion": "v1", "kind": "List", "items": found}, indent=2))
    else:
        text = yaml.dump_all(found, Dumper=_Dumper, sort_keys=False, explicit_start=True, width=100)
        click.echo(text, nl=False)


class _Dumper(yaml.SafeDumper):
    """Writes shared parts out instead of as aliases, for people to read."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - PyYAML's signature
        return True
