"""What the rules judge: one request, with everything it depends on as values."""

from datetime import datetime
from enum import StrEnum
from typing import NamedTuple, TypeAlias

from rules.api import Eviction, EvictionRequest, Pod
from rules.field import Path
from rules.policies import ClusterResponderPolicy, ResponderPolicy

Judged: TypeAlias = Eviction | EvictionRequest | Pod | ResponderPolicy | ClusterResponderPolicy
"""The shapes that rules exist for."""


class Operation(StrEnum):
    """What a client does (``admission.k8s.io/v1``)."""

    CREATE = "CREATE"
    UPDATE = "UPDATE"
    DELETE = "DELETE"
    CONNECT = "CONNECT"


STATUS = "status"
"""The one subresource that rules exist for."""


class User(NamedTuple):
    """Who asks (``authentication.k8s.io/v1`` UserInfo)."""

    name: str = ""
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """What the authenticator adds, for authorizers to read."""


class Request(NamedTuple):
    """One write, or attempt at one.

    ``object`` is None on DELETE and ``old_object`` None on CREATE, as in an AdmissionReview.
    ``root`` is where the judged shape stands inside its document: "" for an object of its own,
    ``spec.template`` for the pod template of a Deployment.
    """

    operation: Operation
    now: datetime
    object: Judged | None = None
    old_object: Judged | None = None
    subresource: str = ""
    name: str = ""
    namespace: str = ""
    root: Path = Path()
    user: User | None = None
    """None where nobody says who writes, as in a file; who is nameless is denied what names may."""
    dry_run: bool = False
