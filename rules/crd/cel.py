"""CEL rules (``x-kubernetes-validations``) that stand for declared limits."""

from collections.abc import Sequence
from dataclasses import dataclass

from msgspec.structs import FieldInfo

from rules.api import Time
from rules.constraints import (
    RESERVED_DOMAINS,
    RESERVED_PRIORITY_END,
    Constraint,
    ExactlyOneMember,
    Immutable,
    NeverDecreases,
    NeverUnset,
    Required,
    SetOnce,
    UnreservedDomain,
    UnreservedPriority,
)
from rules.crd.annotations import Schema, unwrap
from rules.field import ErrorType


@dataclass(frozen=True, slots=True, kw_only=True)
class CelRule:
    """One ``x-kubernetes-validations`` entry.

    ``name`` is the id of the rule that it stands for. An API server that refuses a write by its CRD
    asks no webhook, so that the message is the only place to name it.
    """

    name: str
    rule: str
    message: str
    field: str = ""
    """The child of the rule's node that is to blame; "" for the node itself."""
    reason: ErrorType = ErrorType.INVALID
    optional_old: bool = False
    """Whether ``oldSelf`` is an optional, so that new nodes are judged as well."""

    def render(self) -> Schema:
        """The entry as it stands in a definition."""
        return {
            "rule": " ".join(self.rule.split()),
            "message": f"{self.message} (rule {self.name})",
            "reason": str(self.reason),
            **({"fieldPath": f".{self.field}"} if self.field else {}),
            **({"optionalOldSelf": True} if self.optional_old else {}),
        }


def ruled(schema: Schema, rules: Sequence[CelRule]) -> Schema:
    """``schema`` with ``rules`` before those that it has."""
    if not rules:
        return schema
    key = "x-kubernetes-validations"
    return {**schema, key: [*(rule.render() for rule in rules), *schema.get(key, ())]}


def must_be_set(name: str) -> CelRule:
    """The child ``name`` must be there, unless it was missing in the stored object."""
    return CelRule(
        name=Required.rule,
        rule=f"has(self.{name}) || (oldSelf.hasValue() && !has(oldSelf.value().{name}))",
        message=f"{name} must be set",
        field=name,
        reason=ErrorType.REQUIRED,
        optional_old=True,
    )


def rules_of_field(limit: Constraint) -> Sequence[CelRule]:
    """What a limit means as rules at its field's own node."""
    match limit:
        case Immutable():
            message = "field is immutable"
            return (CelRule(name=limit.rule, rule="self == oldSelf", message=message),)
        case ExactlyOneMember():
            members = " + ".join(f"(has(self.{member}) ? 1 : 0)" for member in limit.members)
            message = f"must have exactly one of: {', '.join(limit.members)}"
            return (CelRule(name=limit.rule, rule=f"{members} == 1", message=message),)
        case UnreservedDomain():
            domains = "|".join(domain.replace(".", "[.]") for domain in RESERVED_DOMAINS)
            listed = ", ".join(f"*.{domain}" for domain in RESERVED_DOMAINS)
            message = f"domain names {listed} are reserved; use your own domain"
            rule = f"!self.matches('^([^/]*[.])?({domains})/')"
            return (CelRule(name=limit.rule, rule=rule, message=message),)
        case UnreservedPriority():
            rule = f"self < 0 || self >= {RESERVED_PRIORITY_END}"
            message = f"must be at least {RESERVED_PRIORITY_END}"
            return (CelRule(name=limit.rule, rule=rule, message=message),)
    return ()


def rules_of_parent(name: str, info: FieldInfo) -> Sequence[CelRule]:
    """What the limits of a field mean as rules at the node above, which sees it vanish."""
    annotation, limits = unwrap(info)
    new, old = values_of(name, time=annotation is Time)
    rules = []
    for limit in limits:
        match limit:
            case SetOnce():
                rule = f"!has(oldSelf.{name}) || (has(self.{name}) && {new} == {old})"
                message = "may not be changed or removed once set"
            case NeverUnset():
                rule = f"!has(oldSelf.{name}) || has(self.{name})"
                message = "may not be removed once set"
            case NeverDecreases():
                rule = f"!has(oldSelf.{name}) || !has(self.{name}) || {new} >= {old}"
                message = "may not be decreased"
            case _:
                continue
        rules.append(CelRule(name=limit.rule, rule=rule, message=message, field=name))
    return rules


def values_of(name: str, *, time: bool, new: str = "self", old: str = "oldSelf") -> tuple[str, str]:
    """A field of two objects, ready to compare."""
    cut = "int({})" if time else "{}"
    return cut.format(f"{new}.{name}"), cut.format(f"{old}.{name}")
