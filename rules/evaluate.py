"""From a request to a verdict: every violation at once, each with its rule."""

from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final

from rules import catalog
from rules.api import Eviction, Pod
from rules.changes import changed_fields
from rules.declared import Declared, Field, fields_of, walk
from rules.facts import NO_FACTS, WHO, Facts, Question
from rules.field import FieldError, Path
from rules.pod.declaration import declarations
from rules.request import STATUS, Judged, Operation, Request, User
from rules.rule import DEFAULT_RESPONSE_BUDGET, Context, Enforcement, Outcome, Rule


@dataclass(frozen=True, slots=True)
class Policy:
    """What the configuration says about enforcement."""

    enforcement: Mapping[str, Enforcement] = field(default_factory=dict)
    """Guard id → enforcement, where it differs from the guard's default."""
    audit_only: bool = False
    """Admit everything; what would have been denied or warned about is audited."""
    response_budget: int = DEFAULT_RESPONSE_BUDGET
    """How many silent responders a pod may make a drain wait for."""
    controllers: AbstractSet[str] = frozenset()
    """User names that are controllers, beside those of :mod:`rules.callers`."""
    break_glass: AbstractSet[str] = frozenset()
    """Groups whose members are audited only, whatever a guard says."""

    def of(self, rule: Rule[Any], groups: Iterable[str] = ()) -> Enforcement:
        """How ``rule`` is enforced towards a member of ``groups``."""
        if not rule.guard:
            return Enforcement.AUDIT if self.audit_only else Enforcement.DENY
        chosen = self.enforcement.get(rule.name, rule.enforcement)
        lenient = self.audit_only or not self.break_glass.isdisjoint(groups)
        return Enforcement.AUDIT if lenient and chosen != Enforcement.OFF else chosen


@dataclass(frozen=True, slots=True)
class Violation:
    """A broken rule, where it is broken, and what that means."""

    rule: str
    error: FieldError
    enforcement: Enforcement
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class Verdict:
    """What to answer: denied if any violation is enforced so."""

    violations: tuple[Violation, ...] = ()
    unanswered: tuple[str, ...] = ()
    """The guards that could not be judged, because nobody answered what they ask."""

    def enforced(self, enforcement: Enforcement) -> tuple[Violation, ...]:
        """The violations that are enforced in that way."""
        return tuple(v for v in self.violations if v.enforcement == enforcement)

    @property
    def denied(self) -> tuple[Violation, ...]:
        """The violations for which the request is refused."""
        return self.enforced(Enforcement.DENY)

    @property
    def allowed(self) -> bool:
        """Whether the request is admitted."""
        return not self.denied


ADMITTED: Final = Verdict()

MAX_VIOLATIONS: Final = 1000
"""Where judging stops. A lawful object cannot break so many rules; an endless one should not keep
everybody else waiting. Our own choice."""


def evaluate(request: Request, policy: Policy = Policy(), facts: Facts = NO_FACTS) -> Verdict:
    """Judge ``request``. Total and deterministic: no clock, no I/O, no exception.

    Only writes of the main resource and of ``/status``, and deletions, are judged; everything else
    is admitted.
    """
    return Inquiry(request, policy).verdict(facts)


class Inquiry:
    """One request under judgement: read once, asked what it needs to know, and judged."""

    def __init__(self, request: Request, policy: Policy = Policy()) -> None:
        self._request = request
        self._policy = policy
        self._user = request.user or User()
        self._checks: catalog.Due = ()
        self._asked: dict[str, tuple[Question, ...]] = {}
        going = request.operation == Operation.DELETE
        new, old = request.old_object if going else request.object, request.old_object
        slot = _slot(request)
        if new is None or slot is None or (slot != "create" and old is None):
            return
        self._new, self._old = new, old
        changed: AbstractSet[str] = frozenset()
        if old is None or going:
            self._checks = catalog.checks(type(new), slot)
        else:
            parts = catalog.parts_read(type(new), slot)
            changed = frozenset().union(*(changed_fields(new, old, part) for part in parts))
            self._checks = catalog.checks_of_update(type(new), slot, changed)
        self._context = context = _context(new, old, request, policy, changed)
        for rule, _ in self._checks:
            if rule.asks is not None:
                self._asked[rule.name] = tuple(rule.asks(new, old=old, context=context))

    def questions(self) -> dict[Question, bool]:
        """What the guards ask, and whether one of them would deny the request by the answer."""
        asked: dict[Question, bool] = {}
        for name, questions in self._asked.items():
            enforcement = self._enforced(catalog.RULES[name]) if questions else Enforcement.OFF
            if enforcement == Enforcement.OFF:
                continue
            for question in questions:
                if question != WHO:  # the request itself says who, or nobody does
                    must = enforcement == Enforcement.DENY
                    asked[question] = asked.get(question, False) or must
        return asked

    def verdict(self, facts: Facts = NO_FACTS) -> Verdict:
        """Judge the request by ``facts``."""
        left_out = {name for name, asked in self._asked.items() if not self._knows(asked, facts)}
        found = tuple(islice(self._violations(facts, left_out), MAX_VIOLATIONS))
        unanswered = tuple(
            name
            for name in self._asked
            if name in left_out and self._enforced(catalog.RULES[name]) != Enforcement.OFF
        )
        return Verdict(found, unanswered) if found or unanswered else ADMITTED

    def _violations(self, facts: Facts, left_out: AbstractSet[str]) -> Iterator[Violation]:
        if not self._checks:
            return
        new, old, context = self._new, self._old, self._context
        context.facts = facts
        for limit in _walk_limits(new, old, self._request):
            rule = catalog.RULES[limit.rule]
            yield Violation(rule.name, limit.error, self._enforced(rule), rule.outcome)
        for rule, check in self._checks:
            if rule.name in left_out:
                continue
            for error in check(new, old=old, context=context):
                enforcement = self._enforced(rule)
                if enforcement != Enforcement.OFF:
                    yield Violation(rule.name, error, enforcement, rule.outcome)

    def _knows(self, questions: Iterable[Question], facts: Facts) -> bool:
        return all(
            question in facts.answers or (question == WHO and self._request.user is not None)
            for question in questions
        )

    def _enforced(self, rule: Rule[Any]) -> Enforcement:
        return self._policy.of(rule, self._user.groups)


def judges_deletion(kind: type[Judged]) -> bool:
    """Whether any rule looks at deletions of ``kind``."""
    return bool(catalog.checks(kind, "delete"))


def _slot(request: Request) -> str | None:
    if request.subresource == STATUS:
        return "update_status" if request.operation == Operation.UPDATE else None
    return _MAIN_SLOTS.get(request.operation) if not request.subresource else None


_MAIN_SLOTS: Final = {
    Operation.CREATE: "create",
    Operation.UPDATE: "update",
    Operation.DELETE: "delete",
}


def _context(
    new: Judged, old: Judged | None, request: Request, policy: Policy, changed: AbstractSet[str]
) -> Context:
    is_status = request.subresource == STATUS
    return Context(
        now=request.now,
        operation=request.operation,
        namespace=request.namespace,
        root=request.root,
        user=request.user or User(),
        controllers=policy.controllers,
        response_budget=policy.response_budget,
        changed=changed,
        statuses=(new.status, old.status)
        if is_status and isinstance(new, Eviction) and isinstance(old, Eviction)
        else None,
    )


def _walk_limits(new: Judged, old: Judged | None, request: Request) -> Iterator[Declared]:
    if request.operation == Operation.DELETE:
        return iter(())
    updating = request.operation == Operation.UPDATE
    if isinstance(new, Pod):
        return _walk_pod(new, old, request.root, updating=updating)
    part = "status" if request.subresource == STATUS else "spec"
    twin = getattr(old, part) if old is not None else None
    return walk(Path(part), getattr(new, part), twin, updating=updating)


def _walk_pod(new: Pod, old: Any, root: Path, *, updating: bool) -> Iterator[Declared]:
    for declared, stored in zip(declarations(new, root), declarations(old, root), strict=True):
        if declared.responders != stored.responders:
            yield from _RESPONDERS.walk(
                declared.path, declared.responders, stored.responders, updating=updating
            )


_RESPONDERS: Final[Field] = next(
    limit for limit in fields_of(type(Pod().spec)) if limit.attribute == "eviction_responders"
)
