"""The cases of ``tests/cases/*.yaml``; README.md describes the format."""

import copy
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from rules.facts import (
    Answer,
    EvictionRight,
    LivePod,
    NamedPod,
    Permission,
    PodLookup,
    Question,
    Right,
    Target,
    TargetLookup,
    may_evict,
)
from rules.request import User

FOLDER: Final = Path(__file__).parent
NOW: Final = "2026-07-01T12:00:00Z"

_bases: Final[dict[str, dict[str, Any]]] = yaml.safe_load((FOLDER / "bases.yaml").read_text())
_steps: Final = re.compile(r"\[(\d+)\]|\[([^\]]+)\]|([^.\[\]]+)")
_CHANGE: Final = {"name", "base", "operation", "subresource", "old", "set", "unset", "wanted"}
_KEYS: Final = _CHANGE | {"user", "groups", "may", "pods"}
SUPERUSER: Final = User("admin", ("system:masters",))
"""Who writes where a case is not about that."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """One violation that a case expects."""

    type: str
    field: str
    rule: str
    enforcement: str = "deny"


@dataclass(frozen=True, slots=True)
class Case:
    """One write and what must come of it."""

    rule: str
    name: str
    operation: str
    subresource: str
    object: dict[str, Any]
    old_object: dict[str, Any] | None
    wanted: frozenset[Wanted]
    user: User = SUPERUSER
    may: Mapping[str, Sequence[str]] | None = None
    """Verb → names for which ``user`` has the permission; None for all of them."""
    pods: Mapping[str, LivePod] | None = None
    """The pods that exist; None where all is as the write has it."""

    @property
    def id(self) -> str:
        return f"{self.rule}: {self.name}"

    @property
    def denied(self) -> bool:
        return any(wanted.enforcement == "deny" for wanted in self.wanted)

    @property
    def has_facts(self) -> bool:
        """Whether the verdict depends on who writes, or on what is in the cluster."""
        return self.user != SUPERUSER or self.may is not None or self.pods is not None

    @property
    def live_pods(self) -> Mapping[str, LivePod]:
        """The pods that exist, by name.

        Unless it says which: a new object is about a pod that is there, an eviction that ends about
        one that is gone.
        """
        if self.pods is not None:
            return self.pods
        pod = self.object["spec"].get("target", {}).get("pod", {})
        if self.operation != "CREATE" or not pod:
            return {}
        return {pod.get("name", ""): LivePod(pod.get("uid", ""))}

    def fact(self, question: Question) -> Answer:
        """What a cluster answers to ``question``."""
        if isinstance(question, Permission):
            names = set(question.names)
            return self.may is None or not names.isdisjoint(self.may.get(question.verb, ()))
        if isinstance(question, PodLookup):
            return self.live_pods.get(question.name)
        return fact_about(question, self.live_pods, lambda permission: bool(self.fact(permission)))


def fact_about(
    question: Question, pods: Mapping[str, LivePod], permits: Callable[[Permission], bool]
) -> Target | Right:
    """What a cluster that has ``pods``, by name, answers to a question about a target."""
    if isinstance(question, EvictionRight):
        found = fact_about(question.target, pods, permits)
        assert isinstance(found, Target)
        pod = found.bearer.name if found.bearer else question.target.name
        return Right(pod, permits(may_evict(pod, question.target.namespace)))
    assert isinstance(question, TargetLookup)
    bearers = (NamedPod(name, pod) for name, pod in pods.items() if pod.uid == question.uid)
    return Target(pods.get(question.name), next(bearers, None))


def case_files() -> list[Path]:
    """Every case file, named after its rule."""
    return sorted(path for path in FOLDER.glob("*.yaml") if path.stem != "bases")


def load_cases() -> list[Case]:
    """Every case of every file."""
    return [case for path in case_files() for case in _read(path)]


def _read(path: Path) -> Iterator[Case]:
    for entry in yaml.load(path.read_text(), yaml.CSafeLoader):
        unknown = set(entry) - _KEYS
        if unknown:
            raise ValueError(f"{path.name}: {entry.get('name')}: unknown keys {unknown}")
        yield _case(path.stem, entry)


def _case(rule: str, entry: Mapping[str, Any]) -> Case:
    operation = entry.get("operation", "UPDATE")
    stored = change(_bases[entry["base"]], **entry.get("old", {}))
    return Case(
        rule=rule,
        name=entry["name"],
        operation=operation,
        subresource=entry.get("subresource", "status" if operation == "UPDATE" else ""),
        object=change(stored, entry.get("set", {}), entry.get("unset", ())),
        old_object=None if operation == "CREATE" else stored,
        wanted=frozenset(_wanted(rule, violation) for violation in entry["wanted"]),
        user=User(entry["user"], tuple(entry.get("groups", ()))) if "user" in entry else SUPERUSER,
        may=entry.get("may"),
        pods={name: LivePod(**pod) for name, pod in entry["pods"].items()}
        if "pods" in entry
        else None,
    )


def _wanted(rule: str, violation: Mapping[str, str]) -> Wanted:
    return Wanted(
        type=f"FieldValue{violation['type']}",
        field=violation["field"],
        rule=violation.get("rule", rule),
        enforcement=violation.get("enforcement", "deny"),
    )


def change(
    base: Mapping[str, Any],
    set: Mapping[str, Any] = {},  # noqa: A002 - the word of the case files
    unset: Iterable[str] = (),
) -> dict[str, Any]:
    """A copy of ``base`` with some fields set and others removed, named by field path."""
    changed: dict[str, Any] = copy.deepcopy(dict(base))
    for path, value in set.items():
        *way, last = _parse(path)
        parent = _walk(changed, way)
        if isinstance(parent, list) and last == len(parent):
            parent.append(copy.deepcopy(value))
        else:
            parent[last] = copy.deepcopy(value)
    for path in unset:
        *way, last = _parse(path)
        del _walk(changed, way)[last]
    return changed


def _parse(path: str) -> list[str | int]:
    return [int(index) if index else key or name for index, key, name in _steps.findall(path)]


def _walk(value: Any, way: Iterable[str | int]) -> Any:
    for step in way:
        value = value.setdefault(str(step), {}) if isinstance(value, dict) else value[step]
    return value
