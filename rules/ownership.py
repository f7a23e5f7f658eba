"""What decides how long an object lives: its owners, and the finalizers that hold it.

Not a rule: what the guards have in common that say who may decide it. The garbage collector deletes
an object whose owners are all gone, whoever named them (pkg/controller/garbagecollector,
``attemptToDeleteItem``, Kubernetes 1.37.2); a finalizer keeps one that is deleted.
"""

from collections.abc import Iterator
from typing import Final

from rules.api import ObjectMeta
from rules.field import Path

_OWNERS: Final = Path("metadata.ownerReferences")
_FINALIZERS: Final = Path("metadata.finalizers")


def changed_ownership(new: ObjectMeta, old: ObjectMeta) -> Iterator[Path]:
    """The fields by which an update changes how long the object lives.

    Not those of an object that is being deleted from which finalizers are taken away: who holds it
    must be able to let it go.
    """
    if new.owner_references != old.owner_references:
        yield _OWNERS
    is_let_go = old.deletion_timestamp is not None and set(new.finalizers) < set(old.finalizers)
    if set(new.finalizers) != set(old.finalizers) and not is_let_go:
        yield _FINALIZERS
