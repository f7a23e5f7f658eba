"""``usher crds``: what comes out is what ``rules.crd`` defines, for every reader."""

import json

import yaml

from cli.manifests.documents import Document, read_documents
from rules.crd import definitions, policy_definitions
from tests.cli.conftest import Usher


def test_yaml_means_the_definitions_to_kubectl(usher: Usher) -> None:
    text = usher("crds").stdout
    documents = list(read_documents("crds.yaml", text.encode()))
    values = [part.value for part in documents if isinstance(part, Document) and not part.problems]
    assert values == json.loads(json.dumps(definitions()))
    assert "&id" not in text


def test_yaml_means_the_definitions_to_other_readers(usher: Usher) -> None:
    values = list(yaml.safe_load_all(usher("crds").stdout))
    assert values == json.loads(json.dumps(definitions()))


def test_json_is_one_list(usher: Usher) -> None:
    document = json.loads(usher("crds", "-o", "json").stdout)
    assert (document["apiVersion"], document["kind"]) == ("v1", "List")
    assert document["items"] == json.loads(json.dumps(definitions()))


def test_native_clusters_need_the_policies_alone(usher: Usher) -> None:
    values = list(yaml.safe_load_all(usher("crds", "--mode", "native").stdout))
    assert values == json.loads(json.dumps(policy_definitions()))
    assert len(values) == 2
