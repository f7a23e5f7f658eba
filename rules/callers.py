"""Who a caller is, by the names that Kubernetes itself gives.

Source of the names: pkg/controller and plugin/pkg/auth/authorizer/rbac/bootstrappolicy of
Kubernetes 1.37.2 and 1.38.0-beta.0; each controller has a service account in ``kube-system`` where
the controller manager runs with ``--use-service-account-credentials``, and is
``system:kube-controller-manager`` where it does not.
"""

from collections.abc import Set as AbstractSet
from typing import Final, NamedTuple

from rules.request import User

SUPERUSERS: Final = "system:masters"
"""The group that every authorizer lets through."""
_MANAGER: Final = "system:kube-controller-manager"
_SYSTEM: Final = "system:serviceaccount:kube-system:"
CONTROLLERS: Final = frozenset({_MANAGER, f"{_SYSTEM}evictionrequest-controller"})
"""Write the controller's half of an Eviction."""
EVICTORS: Final = frozenset({_MANAGER, f"{_SYSTEM}imperative-eviction-responder-controller"})
"""Respond as the default evictor."""
COLLECTORS: Final = frozenset(
    {
        _MANAGER,
        f"{_SYSTEM}generic-garbage-collector",
        f"{_SYSTEM}namespace-controller",
    }
)
"""Delete what has lost its owner or its namespace, whoever asked for it."""


class Caller(NamedTuple):
    """What a caller is known to be, before anybody is asked."""

    is_superuser: bool = False
    is_controller: bool = False
    is_evictor: bool = False
    is_collector: bool = False


def identify(user: User, controllers: AbstractSet[str] = frozenset()) -> Caller:
    """What ``user`` is; ``controllers`` are the user names that the configuration adds.

    A controller of ours runs the default evictor within.
    """
    is_ours = user.name in controllers
    return Caller(
        is_superuser=SUPERUSERS in user.groups,
        is_controller=is_ours or user.name in CONTROLLERS,
        is_evictor=is_ours or user.name in EVICTORS,
        is_collector=user.name in COLLECTORS,
    )
