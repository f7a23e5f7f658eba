"""The CustomResourceDefinitions: the API where Kubernetes does not serve it, and Usher's own.

Generated from :mod:`rules.api`, :mod:`rules.policies` and their constraints, so that a limit exists
once. On top come CEL rules for the basic behaviours, so that those hold while the webhook is down.

The law of this module: the CRD never refuses what the native API admits. It may admit more, because
the webhook judges as well. What follows from it:

- Natively an unchanged value is not judged again. API servers ratchet schema keywords and CEL rules
  without ``oldSelf`` alike, so these stand at the smallest node that holds all they read.
- CEL rules with ``oldSelf`` are not ratcheted. They must hold for every stored object, also for one
  that breaks other rules, and may read no optional field without ``has``.
- Times are compared in whole seconds. Natively fractions are cut when an object is stored; here
  they stay, and clients that cut them send such an object back changed.

Source of the format: ``k8s.io/apiextensions-apiserver``, 0.30 (the oldest supported) to 0.37.
"""

from collections.abc import Sequence
from typing import Final

from msgspec import structs

from rules.api import API_VERSION, GROUP, ApiType, Eviction, EvictionRequest
from rules.crd.annotations import Schema, unwrap
from rules.crd.cel import must_be_set, ruled
from rules.crd.columns import EVICTION_COLUMNS, POLICY_COLUMNS, REQUEST_COLUMNS
from rules.crd.prose import DESCRIPTIONS
from rules.crd.schema import object_schema
from rules.policies import POLICY_API_VERSION, ClusterResponderPolicy, ResponderPolicy

APPROVAL: Final = "unapproved, installed by Usher where Kubernetes does not serve this group itself"
"""API servers refuse CRDs of ``*.k8s.io`` groups without a text that starts with "unapproved"."""


def definitions() -> list[Schema]:
    """Every CustomResourceDefinition (``apiextensions.k8s.io/v1``); equal in every call."""
    return [
        _definition(EvictionRequest, "evictionrequests", REQUEST_COLUMNS, API_VERSION),
        _definition(Eviction, "evictions", EVICTION_COLUMNS, API_VERSION),
        *policy_definitions(),
    ]


def policy_definitions() -> list[Schema]:
    """Those of Usher's own group, which no Kubernetes serves; equal in every call."""
    return [
        _definition(ResponderPolicy, "responderpolicies", POLICY_COLUMNS, POLICY_API_VERSION),
        _definition(
            ClusterResponderPolicy,
            "clusterresponderpolicies",
            POLICY_COLUMNS,
            POLICY_API_VERSION,
            scope="Cluster",
        ),
    ]


def _definition(
    model: type[ApiType],
    plural: str,
    columns: Sequence[Schema],
    api_version: str,
    scope: str = "Namespaced",
) -> Schema:
    kind = model.__name__
    group, _, served = api_version.partition("/")
    version = {
        "name": served,
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "additionalPrinterColumns": [dict(column) for column in columns],
        "schema": {"openAPIV3Schema": _root(model)},
    }
    metadata: Schema = {"name": f"{plural}.{group}"}
    if group == GROUP:
        metadata["annotations"] = {"api-approved.kubernetes.io": APPROVAL}
    names = {
        "kind": kind,
        "listKind": f"{kind}List",
        "plural": plural,
        "singular": kind.lower(),
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": metadata,
        "spec": {"group": group, "scope": scope, "names": names, "versions": [version]},
    }


def _root(model: type[ApiType]) -> Schema:
    schema = {
        "type": "object",
        "description": DESCRIPTIONS[model][""],
        "properties": {
            "apiVersion": {"type": "string", "description": DESCRIPTIONS[model]["apiVersion"]},
            "kind": {"type": "string", "description": DESCRIPTIONS[model]["kind"]},
            "metadata": {"type": "object"},
            "spec": object_schema(_type_of(model, "spec")),
            # As natively, status is never absent, so the rules of its node see every change.
            "status": {**object_schema(_type_of(model, "status")), "default": {}},
        },
    }
    return ruled(schema, [must_be_set("spec")])


def _type_of(model: type[ApiType], attribute: str) -> type[ApiType]:
    annotation: type[ApiType]
    annotation, _ = unwrap(next(info for info in structs.fields(model) if info.name == attribute))
    return annotation
