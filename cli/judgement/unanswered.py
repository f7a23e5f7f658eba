"""What to say of guards that are left out, because nobody answers what they ask."""

from collections import defaultdict
from collections.abc import Container, Mapping
from types import MappingProxyType
from typing import Final

USER: Final = "--as USER"
RBAC: Final = "--rbac FILE"
_CLUSTER: Final = "a cluster"

NEEDS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "responder-identity": (USER, RBAC),
        "requester-identity": (USER, RBAC),
        "eviction-right": (USER, RBAC),
        "controller-fields": (USER,),
        "controller-objects": (USER,),
        "target-truth": (_CLUSTER,),
        "target-pair": (_CLUSTER,),
        "target-exists": (_CLUSTER,),
    }
)
"""Guard → what it takes to judge it."""


def left_out(unanswered: Container[str], given: Container[str]) -> str:
    """A line about the guards ``unanswered`` and what each lacks beside what is ``given``."""
    by_need: defaultdict[str, list[str]] = defaultdict(list)
    for guard, needs in NEEDS.items():
        if guard in unanswered:
            lacking = [need for need in needs if need not in given] or needs
            by_need[" and ".join(lacking)].append(guard)
    named = (f"{', '.join(guards)} (for want of {need})" for need, guards in by_need.items())
    return f"guards left out: {'; '.join(named)}"
