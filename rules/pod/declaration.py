"""Reading the responders that a pod declares: in its field, and in its annotation.

Not a rule: what the rules about pods have in common. Natively the list is
``spec.evictionResponders``; where pods do not have that field, the annotation
:data:`rules.api.RESPONDERS_ANNOTATION` carries the same list as JSON. Both are judged alike.
"""

from dataclasses import dataclass

from rules.api import RESPONDERS_ANNOTATION, EvictionResponder, Pod
from rules.decode import DecodeError, decode_responders
from rules.field import Path

_NATIVE = "spec.evictionResponders"


@dataclass(frozen=True, slots=True)
class Declaration:
    """One list of responders that a pod declares, and where it stands."""

    path: Path
    responders: tuple[EvictionResponder, ...]
    problem: str | None = None
    """Why the annotation could not be read as a list of responders; None for a readable one."""


def annotation_path(root: Path) -> Path:
    """Where the annotation stands in a document whose pod is at ``root``."""
    return root.child("metadata").child("annotations").key(RESPONDERS_ANNOTATION)


def declarations(pod: Pod | None, root: Path) -> tuple[Declaration, Declaration]:
    """The native list and the annotated one of ``pod``; empty lists where it is None."""
    native = Declaration(root.child(_NATIVE), pod.spec.eviction_responders if pod else ())
    path = annotation_path(root)
    text = pod.metadata.annotations.get(RESPONDERS_ANNOTATION) if pod else None
    if text is None:
        return native, Declaration(path, ())
    try:
        return native, Declaration(path, decode_responders(text))
    except DecodeError as error:
        return native, Declaration(path, (), str(error))
