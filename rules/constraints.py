"""The limits that a field can declare, one small class each.

A model states its limits beside its fields (``priority: Annotated[int | None, Required(),
Maximum(100_000)]``); :mod:`rules.declared` applies them to what changed and :mod:`rules.crd` turns
them into a schema. Each class is also a rule: its docstring is the rule's documentation and
``rule`` its id.

Source: the ``+k8s:`` markers of ``k8s.io/api/lifecycle/v1alpha1/types.go`` and the validators
behind them in apimachinery ``pkg/api/validate``, Kubernetes 1.37.2.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from rules import formats
from rules.field import (
    FieldError,
    Path,
    duplicate,
    invalid,
    not_supported,
    required,
    show,
    too_long,
    too_many,
)

RESERVED_DOMAINS: Final = ("k8s.io", "kubernetes.io")
"""Domains that only Kubernetes may use, with everything below them (v1alpha1/validation.go)."""

RESERVED_PRIORITY_END: Final = 1000
"""First priority that is not Kubernetes' own; the band is 0 to 999 (types.go, ``priority``)."""

RESERVED_PRIORITY_DETAIL: Final = (
    f"must be at least {RESERVED_PRIORITY_END}; priorities 0-{RESERVED_PRIORITY_END - 1} are "
    "Kubernetes' own, and only 'imperative-eviction.k8s.io/evictor' has one"
)


class Constraint(ABC):
    """One limit of one field.

    ``value`` and ``old`` are the new and the stored value, None where unset; on CREATE, and for a
    list item that was not there before, ``old`` is None. The walker asks only about values that
    changed.
    """

    rule: ClassVar[str]
    """The id that logs, metrics and documents use."""
    decisive: ClassVar[bool] = False
    """Whether a failure makes the field's other limits meaningless."""

    @abstractmethod
    def check(self, path: Path, value: Any, old: Any, *, updating: bool) -> Iterator[FieldError]:
        """Yield an error for each way in which ``value`` breaks this limit."""


@dataclass(frozen=True, slots=True)
class Required(Constraint):
    """A required field must be present and must not be empty.

    Why: without these fields an object names no target, no requester or no state.
    Source: ``+k8s:required`` in v1alpha1/types.go.
    """

    rule = "required-fields"
    decisive = True

    def check(self, path: Path, value: Any, old: Any, *, updating: bool) -> Iterator[FieldError]:
        if value is None or value == "":
            yield required(path)


@dataclass(frozen=True, slots=True)
class Immutable(Constraint):
    """An immutable field may not change after the object was created.

    Why: an eviction is about one pod, and a request belongs to one requester, for its whole life.
    To evict another pod create another EvictionRequest.
    Source: ``+k8s:immutable`` in v1alpha1/types.go.
    """

    rule = "immutable-fields"
    decisive = True

    def check(self, path: Path, value: Any, old: Any, *, updating: bool) -> Iterator[FieldError]:
        if updating:
            yield invalid(path, value, "field is immutable")


@dataclass(frozen=True, slots=True)
class SetOnce(Constraint):
    """A field that is set once may be neither changed nor removed afterwards.

    Why: a responder's place in the order and the instants at which it started and completed are
    facts; everybody else acts on them.
    Source: ``+k8s:update=NoModify`` and ``+k8s:update=NoUnset`` in v1alpha1/types.go.
    """

    rule = "set-once-fields"
    decisive = True

    def check(self, path: Path, value: Any, old: Any, *, updating: bool) -> Iterator[FieldError]:
        if old is not None:
            yield invalid(path, value, f"may not be changed or removed once set (is {show(old)})")


@dataclass(frozen=True, slots=True)
class NeverUnset(Constraint):
    """Some fields may change but may not be removed once set.

    Why: ``observedGeneration`` tells requesters which generation a status speaks about; removing
    it would make an old status look fresh.
    Source: ``+k8s:update=NoUnset`` in v1alpha1/types.go.
    """

    rule = "kept-fields"
    decisive = True

    def check(self, path: Path, value: Any, old: Any, *, updating: bool) -> Iterator[FieldError]:
        if old is not None and value is None:
            yield invalid(path, value, f"may not be removed once set (is {show(old)})")


@dataclass(frozen=True, slots=True)
class NeverDecreases(Constraint):
    """``observedGeneration`` may only grow.

    Why: a smaller generation would announce a status that has been overtaken already.
    Source: ``+k8s:monotonic`` in v1alpha1/types.go.
    """

    rule = "growing-fields"

    def check(self, path: Path, value: Any, old: Any, *, updating: bool) -> Iterator[FieldError]:
        if old is not None and value < old:
            yield invalid(path, value, f"may not be decreased from {old}")


@dataclass(frozen=True, slots=True)
class Minimum(Constraint):
    """A number must not be below its minimum.

    Why: generations count from 1 and priorities from 0.
    Source: ``+k8s:minimum`` in v1alpha1/types.go.
    """

    rule = "minimum-values"
    limit: int

    def check(self, path: Path, value: Any, old: Any, *, updating: bool) -> Iterator[FieldError]:
        if value < self.limit:
            yield invalid(path, value, f"must be greater than or equal to {self.limit}")


@dataclass(frozen=True, slots=True)
class Maximum(Constraint):
    """A number must not be above its maximum.

    Why: priorities end at 100000, so that every party knows the whole scale.
    Source: ``+k8s:maximum`` in v1alpha1/types.go.
    """

    rule = "maximum-values"
    limit: int

    def check(self, path: Path, value: Any, old: Any, *, updating: bool) -> Iterator[FieldError]:
        if value > self.limit:
            yield invalid(path, value, f"must be less than or equal to {self.limit}")


@dataclass(frozen=True, slots=True)
class MaxItems(Constraint):
    """A list must not have more items than its limit.

    Why: every party reads whole objects; the limits keep them small. When ``requesters`` overflows,
    drop those with intent 'Withdrawn' first.
    Source: ``+k8s:maxItems`` in v1alpha1/types.go.
    """

    rule = "max-items"
    decisive = True
    limit: int

    def check(self, path: Path, value: Any, old: Any, *, updating: bool) -> Iterator[FieldError]:
        if len(value) > self.limit:
            yield too_many(path, len(value), self.limit)


@dataclass(frozen=True, slots=True)
class MaxLength(Constraint):
    """A text must not have more characters than its limit; characters are code points.

    Why: messages are for people and travel in every watch event.
    Source: ``+k8s:maxLength`` in v1alpha1/types.go.
    """

    rule = "max-length"
    limit: int

    def check(self, path: Path, value: Any, old: Any, *, updating: bool) -> Iterator[FieldError]:
        if len(value) > self.limit:
            yield too_long(path, self.limit, "characters")


@dataclass(frozen=True, slots=True)
class Unique(Constraint):
    """List items must have different keys.

    Why: server-side apply merges these lists by key; a repeated key would make an item unreachable.
    Source: ``+k8s:listType=map`` and ``+k8s:listMapKey`` in v1alpha1/types.go.
    """

    rule = "unique-keys"
    key: str
    """The field of an item that is its key; one word, so that it is spelt the same everywhere."""

    def check(self, path: Path, value: Any, old: Any, *, updating: bool) -> Iterator[FieldError]:
        for position in repeated([getattr(item, self.key) for item in value]):
            yield duplicate(path.at(position), getattr(value[position], self.key))


@dataclass(frozen=True, slots=True)
class OneOf(Constraint):
    """A field with a fixed vocabulary must use one of its words.

    Why: intents and states are acted upon by programs.
    Source: the enumerations of v1alpha1/types.go.
    """

    rule = "enum-values"
    choices: tuple[str, ...]

    def check(self, path: Path, value: Any, old: Any, *, updating: bool) -> Iterator[FieldError]:
        if value not in self.choices:
            yield not_supported(path, value, self.choices)


@dataclass(frozen=True, slots=True)
class ExactlyOneMember(Constraint):
    """Exactly one member of a target must be set.

    Why: an eviction has one target; ``pod`` is the only kind of target today.
    Source: ``+k8s:unionMember`` in v1alpha1/types.go.
    """

    rule = "one-target"
    members: tuple[str, ...]

    def check(self, path: Path, value: Any, old: Any, *, updating: bool) -> Iterator[FieldError]:
        if sum(getattr(value, member) is not None for member in self.members) != 1:
            yield invalid(path, "", f"must specify exactly one of: {', '.join(self.members)}")


@dataclass(frozen=True, slots=True)
class Format(Constraint):
    """Base of the text formats: a predicate and the sentence that explains it."""

    help: ClassVar[str]

    @staticmethod
    @abstractmethod
    def accepts(text: str, /) -> bool:
        """Whether ``text`` has this format."""

    def check(self, path: Path, value: Any, old: Any, *, updating: bool) -> Iterator[FieldError]:
        if not self.accepts(value):
            yield invalid(path, value, self.help)


@dataclass(frozen=True, slots=True)
class PrefixedKey(Format):
    """A requester or responder name must be '<domain>/<name>'.

    Why: the domain says whose program it is, so that names of different vendors cannot collide; the
    names become label keys on the Eviction.
    Source: ``+k8s:format=k8s-prefixed-label-key`` in v1alpha1/types.go.
    """

    rule = "prefixed-keys"
    accepts = staticmethod(formats.is_prefixed_key)
    help = formats.PREFIXED_KEY_HELP


@dataclass(frozen=True, slots=True)
class LongName(Format):
    """A pod's name must be a DNS subdomain.

    Why: anything else cannot be the name of a pod.
    Source: ``+k8s:format=k8s-long-name`` in v1alpha1/types.go.
    """

    rule = "long-names"
    accepts = staticmethod(formats.is_long_name)
    help = formats.LONG_NAME_HELP


@dataclass(frozen=True, slots=True)
class Uuid(Format):
    """A target's UID must be a lowercase UUID in 8-4-4-4-12 format.

    Why: the UID makes sure that a pod which was recreated under the same name is left alone.
    Source: ``+k8s:format=k8s-uuid`` in v1alpha1/types.go.
    """

    rule = "uuid-format"
    accepts = staticmethod(formats.is_uuid)
    help = formats.UUID_HELP


@dataclass(frozen=True, slots=True)
class UnreservedDomain(Constraint):
    """Names below the domains k8s.io and kubernetes.io may not be used by anybody else.

    Why: those names belong to Kubernetes' own requesters and responders.
    Source: pkg/apis/lifecycle/v1alpha1/validation.go and pkg/apis/core/v1/validation.go.
    """

    rule = "unreserved-domains"

    def check(self, path: Path, value: Any, old: Any, *, updating: bool) -> Iterator[FieldError]:
        # Judged before the format is, so the text may be anything: the reference trims the
        # domain before comparing it, and so must we.
        domain = value.partition("/")[0].lower().strip().rstrip(".")
        if any(domain == name or domain.endswith(f".{name}") for name in RESERVED_DOMAINS):
            listed = ", ".join(f"*.{name}" for name in RESERVED_DOMAINS)
            yield invalid(path, value, f"domain names {listed} are reserved; use your own domain")


@dataclass(frozen=True, slots=True)
class UnreservedPriority(Constraint):
    """On a pod, priorities 0 to 999 may not be used.

    Why: the band belongs to Kubernetes' own responders, which are not registered on pods.
    Source: pkg/apis/core/v1/validation.go.
    """

    rule = "unreserved-priorities"

    def check(self, path: Path, value: Any, old: Any, *, updating: bool) -> Iterator[FieldError]:
        if 0 <= value < RESERVED_PRIORITY_END:
            yield invalid(path, value, RESERVED_PRIORITY_DETAIL)


def repeated(keys: Sequence[str]) -> Sequence[int]:
    """Positions of the ``keys`` that occurred before, ascending."""
    if len(set(keys)) == len(keys):
        return ()
    seen: set[str] = set()
    positions = []
    for position, key in enumerate(keys):
        if key in seen:
            positions.append(position)
        seen.add(key)
    return positions


CONSTRAINTS: Final[tuple[type[Constraint], ...]] = (
    Required,
    Immutable,
    SetOnce,
    NeverUnset,
    NeverDecreases,
    Minimum,
    Maximum,
    MaxItems,
    MaxLength,
    Unique,
    OneOf,
    ExactlyOneMember,
    PrefixedKey,
    LongName,
    Uuid,
    UnreservedDomain,
    UnreservedPriority,
)
"""Every limit that is a rule, in the order in which documents list them."""
