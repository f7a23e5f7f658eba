"""Who has written what: the field managers, and what the API server keeps about them. Pure."""

from collections.abc import Sequence
from typing import Final

from msgspec import field

from controller.eviction.planning.metadata import Role
from rules.api import ApiType, Time

MANAGER: Final = "usher-controller"
"""The field manager of the three syncs. One for all, or each would take away what others state."""
EVICTOR_MANAGER: Final = "usher-evictor"
"""The field manager of the evictor's reports, which are a responder's, not the controller's."""

NODE_HEALTH_MANAGER: Final = "usher-node-health"
"""The field manager of requests for the pods of failed nodes, which are a requester's."""


class _Nothing(ApiType):
    """An object of which only the name counts."""


class _MetaFields(ApiType):
    labels: dict[str, _Nothing] = field(name="f:labels", default_factory=dict)


class _Fields(ApiType):
    metadata: _MetaFields = field(name="f:metadata", default=_MetaFields())


class ManagedFields(ApiType):
    """``metav1.ManagedFieldsEntry``, as far as it says who has set which labels, and when."""

    manager: str = ""
    time: Time | None = None
    fields: _Fields = field(name="fieldsV1", default=_Fields())


def without_foreign_requesters(
    labels: dict[str, str], managed_fields: Sequence[ManagedFields]
) -> dict[str, str]:
    """``labels`` of an Eviction without those that only look as if they named a requester.

    Such a label of our own is taken away when the request has gone. One that somebody else has set
    stays whatever is applied, so that it would be taken away again and again. Where the owners are
    not known every label counts as our own.
    """
    if Role.REQUESTER not in labels.values() or not managed_fields:
        return labels
    own = {
        name
        for entry in managed_fields
        if entry.manager == MANAGER
        for name in entry.fields.metadata.labels
    }
    return {
        name: role for name, role in labels.items() if role != Role.REQUESTER or f"f:{name}" in own
    }
