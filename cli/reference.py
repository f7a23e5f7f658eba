"""The rules reference: what each rule demands, and each mutation does.

It is read from their docstrings, and from the models. A docstring starts with the requirement, or
with what is changed; lines that start with ``Why:``, ``Source:``, ``Admitted:``, ``Refused:``,
``Before:``, ``After:`` and ``Example:`` begin sections, which go on until the next one. An example
is YAML, indented, and shown as it stands.
"""

import dataclasses
import inspect
import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from msgspec import Struct

from cli.judgement.checks import CHECKS
from rules.api import ApiType, Eviction, EvictionRequest, Pod
from rules.catalog import EVICTION, EVICTION_REQUEST, POD, POLICY, RULES
from rules.constraints import Constraint
from rules.declared import fields_of
from rules.field import Path
from rules.mutate import MUTATIONS
from rules.mutation import Mutation
from rules.policies import ClusterResponderPolicy, ResponderPolicy
from rules.rule import Rule

_SECTION: Final = re.compile(
    r"^(Why|Source|Admitted|Refused|Before|After|Example):[ ]*", re.MULTILINE
)
_KINDS: Final[tuple[tuple[str, type[ApiType], tuple[Rule[Any], ...]], ...]] = (
    ("EvictionRequest", EvictionRequest, EVICTION_REQUEST),
    ("Eviction", Eviction, EVICTION),
    ("Pod and pod templates", Pod, POD),
    ("ResponderPolicy", ResponderPolicy, POLICY),
    ("ClusterResponderPolicy", ClusterResponderPolicy, POLICY),
)
_SLOTS: Final = {
    "create": "CREATE",
    "update": "UPDATE",
    "update_status": "UPDATE of status",
    "delete": "DELETE",
}


class Entry(Struct, frozen=True, rename="camel"):
    """One rule, mutation, or check of the command line, as the reference shows it."""

    name: str
    requirement: str
    """One sentence or two: what must hold, or what is done."""
    details: str
    """What there is to say beyond it; may be ""."""
    why: str
    source: str
    admitted: str
    """An example that is admitted."""
    refused: str
    """An example that is refused."""
    before: str
    """An example of what a mutation changes, and"""
    after: str
    """what comes of it; only mutations have these."""
    example: str
    """A whole example: a refusal as comment, and YAML that avoids it; may be ""."""
    tier: str
    """``built-in``, ``guard``, ``mutation`` or ``check``."""
    enforcement: str
    """"" for mutations, which refuse nothing."""
    applies: tuple[str, ...]
    """Kinds and operations."""
    fields: tuple[str, ...]
    """The fields that declare it; empty unless it is a declared limit."""


TIERS: Final = {
    "built-in": "Built-in rules: Kubernetes' own, with the same verdicts. They always deny.",
    "guard": "Guards: Usher's own. The flag --enforce sets each to deny, warn, audit or off.",
    "mutation": "Mutations: what /mutate changes in objects before they are judged. The flag "
    "--mutations names those that act.",
    "check": "Checks of 'usher validate': what is wrong with a file before any rule is asked.",
}
"""Every tier, and what the reference says of it."""


@cache
def entries() -> dict[str, Entry]:
    """Every rule, mutation and check by its name, in the order of the reference."""
    found = [_entry(rule, "guard" if rule.guard else "built-in") for rule in RULES.values()]
    found.sort(key=lambda entry: entry.tier == "guard")
    found += [_entry(mutation, "mutation") for mutation in MUTATIONS.values()]
    found += [_entry(check, "check") for check in CHECKS.values()]
    return {entry.name: entry for entry in found}


def _entry(rule: Rule[Any] | Mutation[Any], tier: str) -> Entry:
    # Text before, then name and text of each section in turns.
    parts = _SECTION.split(inspect.cleandoc(rule.doc))
    requirement, _, details = parts[0].strip().partition("\n\n")
    texts = dict(zip(parts[1::2], parts[2::2], strict=True))
    example = textwrap.dedent(texts.pop("Example", "")).strip()
    sections = {name: _joined(text) for name, text in texts.items()}
    declared = [found for found in _declarations() if found.limit.rule == rule.name]
    return Entry(
        name=rule.name,
        requirement=_joined(requirement),
        details=details.replace("``", "`").strip(),
        why=sections.get("Why", ""),
        source=sections.get("Source", ""),
        admitted=sections.get("Admitted", ""),
        refused=sections.get("Refused", ""),
        before=sections.get("Before", ""),
        after=sections.get("After", ""),
        example=example,
        tier=tier,
        enforcement="" if isinstance(rule, Mutation) else rule.enforcement,
        applies=tuple(_scope(rule, tier, declared)),
        fields=tuple(found.text for found in declared),
    )


def _joined(text: str) -> str:
    return " ".join(text.replace("``", "`").split())


@dataclass(frozen=True, slots=True)
class _Declaration:
    """A limit of a field."""

    kind: str
    path: Path
    limit: Constraint

    @property
    def text(self) -> str:
        values = (
            getattr(self.limit, parameter.name)
            for parameter in dataclasses.fields(self.limit)  # type: ignore[arg-type]
        )
        shown = ", ".join(
            ", ".join(value) if isinstance(value, tuple) else str(value) for value in values
        )
        return f"{self.kind}: {self.path}" + (f" ({shown})" if shown else "")


@cache
def _declarations() -> tuple[_Declaration, ...]:
    return tuple(
        _Declaration(kind, path, limit)
        for kind, model, _ in _KINDS
        for path, limit in _limits(model, Path())
    )


def _limits(model: type[ApiType], root: Path) -> Iterator[tuple[Path, Constraint]]:
    for field in fields_of(model):
        path = root.child(field.name)
        for limit in (*field.decisive, *field.others):
            yield path, limit
        if field.model is not None:
            yield from _limits(field.model, Path(f"{path}[]") if field.is_list else path)


def _scope(
    rule: Rule[Any] | Mutation[Any], tier: str, declared: list[_Declaration]
) -> Iterator[str]:
    if isinstance(rule, Mutation):
        part = f" of {rule.subresource}" if rule.subresource else ""
        yield f"{rule.kind.__name__}: {rule.operation}{part}"
    elif tier == "check":
        yield "files"
    else:
        yield from _applies(rule, declared)


def _applies(rule: Rule[Any], declared: list[_Declaration]) -> Iterator[str]:
    for kind, _, rules in _KINDS:
        operations = [
            operation
            for slot, operation in _SLOTS.items()
            if rule in rules and getattr(rule, slot) is not None
        ]
        paths = [found.path for found in declared if found.kind == kind]
        if any(path.startswith("spec") for path in paths):
            operations += ["CREATE", "UPDATE"]
        if any(path.startswith("status") for path in paths):
            operations.append("UPDATE of status")
        if operations:
            yield f"{kind}: {', '.join(operations)}"
