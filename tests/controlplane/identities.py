"""Who can talk to a control plane: one bearer token for each user below.

Only ``admin`` and ``system:kube-controller-manager`` (by the built-in roles) have rights of their
own; tests grant the others what they need by RBAC.
"""

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Identity:
    """A user as the API server knows it. ``user`` is also the name tests ask for."""

    user: str
    groups: tuple[str, ...] = ()
    token: str = field(default_factory=lambda: secrets.token_hex(16), repr=False)


def _service_account(namespace: str, name: str) -> Identity:
    return Identity(
        user=f"system:serviceaccount:{namespace}:{name}",
        groups=("system:serviceaccounts", f"system:serviceaccounts:{namespace}"),
    )


_ALL = (
    Identity("admin", groups=("system:masters",)),
    Identity("responder-a"),
    Identity("responder-b"),
    Identity("drainer"),
    Identity("viewer"),
    Identity("controller"),
    Identity("oncall", groups=("oncall",)),
    _service_account("usher-system", "usher-controller"),
    Identity("system:kube-controller-manager"),
    _service_account("kube-system", "evictionrequest-controller"),
    _service_account("kube-system", "imperative-eviction-responder-controller"),
)

IDENTITIES: Mapping[str, Identity] = {identity.user: identity for identity in _ALL}
"""Every identity by user name. Tokens are random for each process and written nowhere else."""


def token_file_lines() -> str:
    """Render the content of ``--token-auth-file``: token, user, uid, quoted groups."""
    return "".join(_token_line(identity) for identity in IDENTITIES.values())


def _token_line(identity: Identity) -> str:
    line = f"{identity.token},{identity.user},uid-of-{identity.user}"
    # Left out when empty: an empty column would read as one group without a name.
    groups = f',"{",".join(identity.groups)}"' if identity.groups else ""
    return f"{line}{groups}\n"
