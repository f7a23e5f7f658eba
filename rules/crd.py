"""The CustomResourceDefinitions that serve the API where Kubernetes does not.

Generated from :mod:`rules.api` and its constraints, so that a limit exists once. On top come CEL
rules for the basic behaviours, so that those hold while the webhook is down.

The law of this module: the CRD never refuses what the native API admits. It may admit more, because
the webhook judges as well. What follows from it:

- Natively an unchanged value is not judged again. API servers ratchet schema keywords and CEL rules
  without ``oldSelf`` alike, so these stand at the smallest node that holds all they read.
- CEL rules with ``oldSelf`` are not ratcheted. They must hold for every stored object, also for one
  that breaks other rules, and may read no field without ``has``.
- Times are compared in whole seconds. Natively fractions are cut when an object is stored; here
  they stay, and clients that cut them send such an object back changed.

Source of the format: ``k8s.io/apiextensions-apiserver``, 0.30 (the oldest supported) to 0.37.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Final, TypeAlias, Union, get_args, get_origin

from annotated_types import Le
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from rules import formats
from rules.api import (
    EVICTOR,
    EVICTOR_PRIORITY,
    GROUP,
    MAX_TARGET_RESPONDERS,
    VERSION,
    Condition,
    ConditionStatus,
    Eviction,
    EvictionRequest,
    EvictionRequestSpec,
    EvictionRequestStatus,
    EvictionSpec,
    EvictionStatus,
    PodReference,
    Requester,
    ResponderState,
    ResponderStatus,
    Target,
    TargetResponder,
)
from rules.constraints import (
    RESERVED_DOMAINS,
    RESERVED_PRIORITY_END,
    Constraint,
    ExactlyOneMember,
    Immutable,
    LongName,
    Maximum,
    MaxItems,
    MaxLength,
    Minimum,
    NeverDecreases,
    NeverUnset,
    OneOf,
    PrefixedKey,
    Required,
    SetOnce,
    Unique,
    UnreservedDomain,
    Uuid,
)
from rules.field import ErrorType
from rules.meta.conditions import _MAX_MESSAGE, _MAX_REASON
from rules.states import FINAL_CONDITIONS, PROCESSED, TRANSITIONS

Schema: TypeAlias = dict[str, Any]

APPROVAL: Final = "unapproved, installed by Usher where Kubernetes does not serve this group itself"
"""API servers refuse CRDs of ``*.k8s.io`` groups without a text that starts with "unapproved"."""


def definitions() -> list[Schema]:
    """Both CustomResourceDefinitions (``apiextensions.k8s.io/v1``); equal in every call."""
    return [
        _definition(EvictionRequest, "evictionrequests", _REQUEST_COLUMNS),
        _definition(Eviction, "evictions", _EVICTION_COLUMNS),
    ]


def _definition(model: type[BaseModel], plural: str, columns: tuple[Schema, ...]) -> Schema:
    kind = model.__name__
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{plural}.{GROUP}",
            "annotations": {"api-approved.kubernetes.io": APPROVAL},
        },
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": kind,
                "listKind": f"{kind}List",
                "plural": plural,
                "singular": kind.lower(),
            },
            "versions": [
                {
                    "name": VERSION,
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "additionalPrinterColumns": [dict(column) for column in columns],
                    "schema": {"openAPIV3Schema": _root(model)},
                }
            ],
        },
    }


def _root(model: type[BaseModel]) -> Schema:
    spec, status = (model_of(model.model_fields[part]) for part in ("spec", "status"))
    return {
        "type": "object",
        "description": _DESCRIPTIONS[model][""],
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string", "description": _API_VERSION},
            "kind": {"type": "string", "description": _KIND},
            "metadata": {"type": "object"},
            "spec": _object(spec),
            # As natively, status is never absent; the rules of its node then see every change.
            "status": {**_object(status), "default": {}},
        },
    }


# Schemas from models


def _object(model: type[BaseModel]) -> Schema:
    fields = {info.alias or name: info for name, info in model.model_fields.items()}
    schema: Schema = {"type": "object", "description": _DESCRIPTIONS[model][""]}
    if required := [name for name, info in fields.items() if _is_required(model, name, info)]:
        schema["required"] = required
    schema["properties"] = {
        name: {"description": _DESCRIPTIONS[model][name], **_field(model, name, info)}
        for name, info in fields.items()
    }
    if model in _ATOMIC:
        schema["x-kubernetes-map-type"] = "atomic"
    if found := [*_kept_fields(fields), *_BEHAVIOURS.get(model, ())]:
        schema["x-kubernetes-validations"] = [rule.render() for rule in found]
    return schema
