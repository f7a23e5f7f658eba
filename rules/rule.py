"""What a rule is: a name, a document, and the checks that it runs on each kind of write."""

from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar

from rules.api import ApiType, EvictionStatus
from rules.callers import Caller
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


class Context(NamedTuple):
    """What a check may know besides the two objects: the caller, how to read the write, and facts.

    ``facts`` holds the answers to what the rule asks, and is empty while it is being asked.
    """

    now: datetime
    operation: Operation = Operation.UPDATE
    namespace: str = ""
    root: Path = Path()
    """Where the judged shape stands inside its document, see :class:`rules.request.Request`."""
    user: User = User()
    caller: Caller = Caller()
    facts: Facts = NO_FACTS
    response_budget: int = DEFAULT_RESPONSE_BUDGET
    """How many silent responders a pod may make a drain wait for."""
    changed: AbstractSet[str] = frozenset()
    """The fields of the status that a status write changes, by attribute."""
    progress: Progress | None = None
    """A status write of an Eviction as a step of the state machine; None where it can't be read."""
    reports: Sequence[Report] = ()
    """The reports in a status write of an Eviction."""
    changeable_reports: Sequence[Report] = ()
    """Those whose content is to be judged: the ones that may change at all."""

    def of_status(self, new: ApiType, old: ApiType) -> "Context":
        """The same, with a status write read once for all rules."""
        changed = {
            name for name in new.__struct_fields__ if getattr(new, name) != getattr(old, name)
        }
        if not isinstance(new, EvictionStatus) or not isinstance(old, EvictionStatus):
            return self._replace(changed=changed)
        reports = read_reports(new, old)
        return self._replace(
            changed=changed,
            progress=progress(new, old),
            reports=reports,
            changeable_reports=[report for report in reports if not report.locked],
        )


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
