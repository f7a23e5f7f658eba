"""What a mutation is: a name, a document, and a function from a write to what it should set."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from rules.facts import NO_FACTS, Facts, Question
from rules.patch import Document
from rules.request import Operation


class Mode(StrEnum):
    """Where a cluster has the API from, and so where pods carry their responders."""

    NATIVE = "native"
    """Kubernetes itself: in ``spec.evictionResponders``."""
    CRD = "crd"
    """Usher's definitions: in the annotation :data:`rules.api.RESPONDERS_ANNOTATION`."""
    AUTO = "auto"
    """To be found out."""


class Setting(NamedTuple):
    """What a mutation may know besides the objects.

    ``facts`` holds the answers to what the mutation asks, and is empty while it is being asked.
    """

    namespace: str
    mode: Mode
    facts: Facts = NO_FACTS


class Change(NamedTuple):
    """Set the field at the end of ``way`` to ``value``; ``note`` says so in audit logs."""

    way: tuple[str, ...]
    value: Any
    note: str


ModelT = TypeVar("ModelT")
ModelT_contra = TypeVar("ModelT_contra", contravariant=True)


class Amend(Protocol[ModelT_contra]):
    """Works out what to change.

    ``new`` is ``document`` as a model: values are to be taken from the document, whose fields no
    model knows all of. Must be idempotent: to the object that it has changed there is nothing to
    add, because API servers call again with it.
    """

    def __call__(
        self, new: ModelT_contra, document: Document, *, old: Any, setting: Setting
    ) -> Change | None:
        """The change of the write from ``old`` (None on CREATE) to ``new``; None for no change."""


class AsksFor(Protocol[ModelT_contra]):
    """A generator of the questions whose answers a mutation needs."""

    def __call__(self, new: ModelT_contra, *, setting: Setting) -> Iterator[Question]:
        """What to ask about ``new``; nothing where there is nothing to do."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutation(Generic[ModelT]):
    """One mutation of the catalogue, and the writes that it looks at."""

    name: str
    doc: str
    """What it does, why and source."""
    kind: type[ModelT]
    operation: Operation
    subresource: str = ""
    amend: Amend[ModelT]
    asks: AsksFor[ModelT] | None = None
    """What it needs to know of the cluster; it acts only when all of it is known."""
