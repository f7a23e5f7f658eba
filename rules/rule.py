"""What a rule is: a name, a document, and the checks that it runs on each kind of write."""

from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from functools import cached_property
from typing import Any, Final, Generic, Protocol, TypeVar

from rules.api import EvictionStatus
from rules.callers import Caller, identify
from rules.facts import NO_FACTS, Facts, Question
from rules.field import FieldError, Path
from rules.reports import Report, read_reports
from rules.request import Operation, User
from rules.states import Progress, progress

DEFAULT_RESPONSE_BUDGET: Final = 5
"""Silent responders that a pod may make a drain wait for, 20 minutes each; our own choice: a node
drain of under two hours still fits a maintenance window."""


class Enforcement(StrEnum):
    """What happens when a rule is broken."""

    DENY = "deny"
    WARN = "warn"
    AUDIT = "audit"
    OFF = "off"


class Outcome(StrEnum):
    """The reason of a denial, as in ``metav1.Status``."""

    INVALID = "Invalid"
    """The object is wrong, whoever writes it: HTTP 422."""
    FORBIDDEN = "Forbidden"
    """This caller may not do it, or claims what is not true: HTTP 403."""


@dataclass
class Context:
    """What a check may know besides the two objects: the caller, how to read the write, and facts.

    What several rules share is worked out when the first of them asks for it.
    """

    now: datetime
    operation: Operation = Operation.UPDATE
    namespace: str = ""
    root: Path = Path()
    """Where the judged shape stands inside its document, see :class:`rules.request.Request`."""
    user: User = User()
    controllers: AbstractSet[str] = frozenset()
    """User names that are controllers, beside those of :mod:`rules.callers`."""
    response_budget: int = DEFAULT_RESPONSE_BUDGET
    """How many silent responders a pod may make a drain wait for."""
    changed: AbstractSet[str] = frozenset()
    """The fields that an update changes, see :mod:`rules.changes`."""
    statuses: tuple[EvictionStatus, EvictionStatus] | None = None
    """The new and the stored status, in a status write of an Eviction."""
    facts: Facts = NO_FACTS
    """The answers to what the rule asks; empty while it is being asked."""

    @cached_property
    def caller(self) -> Caller:
        """What the caller is known to be."""
        return identify(self.user, self.controllers)

    @cached_property
    def progress(self) -> Progress | None:
        """A status write of an Eviction as a step of the state machine; None if unreadable."""
        return progress(*self.statuses) if self.statuses is not None else None

    @cached_property
    def reports(self) -> Sequence[Report]:
        """The reports in a status write of an Eviction."""
        return read_reports(*self.statuses) if self.statuses is not None else ()

    @cached_property
    def changeable_reports(self) -> Sequence[Report]:
        """Those whose content is to be judged: the ones that may change at all."""
        return [report for report in self.reports if not report.locked]


ModelT_contra = TypeVar("ModelT_contra", contravariant=True)


class Check(Protocol[ModelT_contra]):
    """A generator of field errors, one for each way in which a write breaks a rule."""

    def __call__(self, new: ModelT_contra, *, old: Any, context: Context) -> Iterator[FieldError]:
        """Judge the write from ``old`` (None on CREATE) to ``new``; on DELETE they are the same."""
        ...


class Asks(Protocol[ModelT_contra]):
    """A generator of the questions whose answers a check needs."""

    def __call__(self, new: ModelT_contra, *, old: Any, context: Context) -> Iterator[Question]:
        """What to ask about the write from ``old`` to ``new``; nothing where no check needs it."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule(Generic[ModelT_contra]):
    """One rule of the catalogue.

    The slots say which writes the rule looks at: ``create`` and ``update`` those of the main
    resource, where ``status`` does not count, ``update_status`` those of ``/status``, where
    ``spec`` and most of ``metadata`` do not count, and ``delete`` deletions. A rule without slots
    is a declared limit (:mod:`rules.constraints`), which :mod:`rules.declared` applies.
    """

    name: str
    doc: str
    """Requirement, why and source; what ``usher explain`` shows."""
    reads: tuple[str, ...] = ()
    """The fields of the two objects on which its judgement depends, as paths from the object on;
    a field stands for all that it holds."""
    judges: tuple[str, ...] = ()
    """The fields among them whose change it judges; all of them where none is named. About an
    update that changes none of these it has nothing to say."""
    standing: bool = False
    """Whether it judges what stands as well, as Kubernetes does: then it looks at every update."""

    def may_judge(self, changed: AbstractSet[str]) -> bool:
        """Whether it can have anything to say about an update that changes these fields."""
        return self.standing or not changed.isdisjoint(self.judges or self.reads)

    create: Check[ModelT_contra] | None = None
    update: Check[ModelT_contra] | None = None
    update_status: Check[ModelT_contra] | None = None
    delete: Check[ModelT_contra] | None = None
    asks: Asks[ModelT_contra] | None = None
    """What the checks need to know of the cluster; they run only when all of it is known."""
    guard: bool = False
    """Whether this is Usher's own (``rules.md`` B) and not one of the API's built-in rules."""
    enforcement: Enforcement = Enforcement.DENY
    """What happens when it is broken, unless the configuration says otherwise."""
    outcome: Outcome = Outcome.INVALID
