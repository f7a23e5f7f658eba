"""Who has written what: the field managers, and what the API server keeps about them. Pure."""

from collections.abc import Mapping
from typing import Any, Final

from controller.eviction.planning.metadata import Role

MANAGER: Final = "usher-controller"
"""The field manager of the three syncs. One for all, or each would take away what others state."""
EVICTOR_MANAGER: Final = "usher-evictor"
"""The field manager of the evictor's reports, which are a responder's, not the controller's."""

NODE_HEALTH_MANAGER: Final = "usher-node-health"
"""The field manager of requests for the pods of failed nodes, which are a requester's."""


def without_foreign_requesters(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """``metadata`` of an Eviction without labels that only look as if they named a requester.

    Such a label of our own is taken away when the request has gone. One that somebody else has set
    stays whatever is applied, so that it would be taken away again and again. Where the owners are
    not known every label counts as our own.
    """
    labels = metadata.get("labels") or {}
    entries = metadata.get("managedFields")
    if Role.REQUESTER not in labels.values() or not entries:
        return {**metadata}
    own = {name for entry in entries if entry.get("manager") == MANAGER for name in _labels(entry)}
    kept = {
        name: role for name, role in labels.items() if role != Role.REQUESTER or f"f:{name}" in own
    }
    return {**metadata, "labels": kept}


def _labels(entry: Mapping[str, Any]) -> Mapping[str, Any]:
    """The labels of an entry of ``managedFields``, each as ``f:<name>``."""
    fields = (entry.get("fieldsV1") or {}).get("f:metadata") or {}
    labels: Mapping[str, Any] = fields.get("f:labels") or {}
    return labels
