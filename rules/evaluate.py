"""From a request to a verdict: every violation at once, each with its rule."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final

from rules import catalog
from rules.api import Eviction, EvictionRequest, Pod
from rules.declared import Declared, Field, fields_of, walk
from rules.field import FieldError, Path
from rules.pod.declaration import declarations
from rules.request import STATUS, Judged, Operation, Request
from rules.rule import DEFAULT_RESPONSE_BUDGET, Check, Context, Enforcement, Outcome, Rule


@dataclass(frozen=True, slots=True)
class Policy:
    """What the configuration says about enforcement."""

    enforcement: Mapping[str, Enforcement] = field(default_factory=dict)
    """Guard id → enforcement, where it differs from the guard's default."""
    audit_only: bool = False
    """Admit everything; what would have been denied or warned about is audited."""
    response_budget: int = DEFAULT_RESPONSE_BUDGET
    """How many silent responders a pod may make a drain wait for."""

    def of(self, rule: Rule[Any]) -> Enforcement:
        """How ``rule`` is enforced."""
        chosen = (
            self.enforcement.get(rule.name, rule.enforcement) if rule.guard else Enforcement.DENY
        )
        return Enforcement.AUDIT if self.audit_only and chosen != Enforcement.OFF else chosen


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

_RULES: Final[dict[type[Judged], tuple[Rule[Any], ...]]] = {
    Eviction: catalog.EVICTION,
    EvictionRequest: catalog.EVICTION_REQUEST,
    Pod: catalog.POD,
}
_SLOTS: Final = ("create", "update", "update_status")
_CHECKS: Final[dict[tuple[type[Judged], str], tuple[tuple[Rule[Any], Check[Any]], ...]]] = {
    (kind, slot): tuple(
        (rule, check) for rule in rules if (check := getattr(rule, slot)) is not None
    )
    for kind, rules in _RULES.items()
    for slot in _SLOTS
}
"""What is to be run, by kind and slot."""


MAX_VIOLATIONS: Final = 1000
"""Where judging stops. A lawful object cannot break so many rules; an endless one should not keep
everybody else waiting. Our own choice."""


def evaluate(request: Request, policy: Policy = Policy()) -> Verdict:
    """Judge ``request``. Total and deterministic: no clock, no I/O, no exception.

    Only writes of the main resource and of ``/status`` are judged; everything else is admitted.
    """
    found = tuple(islice(_violations(request, policy), MAX_VIOLATIONS))
    return Verdict(found) if found else ADMITTED


def _violations(request: Request, policy: Policy) -> Iterator[Violation]:
    new, old = request.object, request.old_object
    slot = _slot(request)
    if new is None or slot is None or (slot != "create" and old is None):
        return
    for limit in _walk_limits(new, old, request):
        rule = catalog.RULES[limit.rule]
        yield Violation(rule.name, limit.error, policy.of(rule), rule.outcome)
    context = _context(new, old, request, policy)
    for rule, check in _CHECKS[type(new), slot]:
        for error in check(new, old=old, context=context):
            enforcement = policy.of(rule)
            if enforcement != Enforcement.OFF:
                yield Violation(rule.name, error, enforcement, rule.outcome)


def _slot(request: Request) -> str | None:
    if request.subresource == STATUS:
        return "update_status" if request.operation == Operation.UPDATE else None
    return _MAIN_SLOTS.get(request.operation) if not request.subresource else None


_MAIN_SLOTS: Final = {Operation.CREATE: "create", Operation.UPDATE: "update"}


def _context(new: Judged, old: Judged | None, request: Request, policy: Policy) -> Context:
    if isinstance(new, Eviction) and isinstance(old, Eviction):
        return Context.of_status(new.status, old.status, request.now)
    return Context(now=request.now, root=request.root, response_budget=policy.response_budget)


def _walk_limits(new: Judged, old: Judged | None, request: Request) -> Iterator[Declared]:
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
