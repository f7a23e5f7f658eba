"""What PromQL asks for, as the parser of Prometheus' language reads it."""

import functools
from typing import Final

import promql_parser as promql

from tests.docs.metrics import Family, certificates, controller, webhook

_FOREIGN: Final = {
    "up": ("namespace", "job", "endpoint"),
    "apiserver_admission_webhook_fail_open_count": ("name",),
    "apiserver_admission_webhook_rejection_count": ("name", "error_type"),
}
"""Metrics of others → labels of theirs that we use."""
_OF_TARGETS: Final = ("namespace", "job", "endpoint", "pod", "container", "le")
"""Labels that come with scraping, and the bounds of histograms."""


@functools.cache
def exported() -> dict[str, tuple[str, ...]]:
    """Every series that can be asked for → its own labels."""
    found = dict(_FOREIGN)
    for family in (*webhook(), *controller(), *certificates()):
        found.update(dict.fromkeys(_series(family), family.labels))
    return found


def _series(family: Family) -> tuple[str, ...]:
    if family.kind != "histogram":
        return (family.name,)
    return tuple(f"{family.name}_{suffix}" for suffix in ("bucket", "sum", "count"))


def problems(query: str) -> list[str]:
    """What is wrong with a query; raises ValueError if it can't be parsed."""
    known = exported()
    found, labels = [], set(_OF_TARGETS)
    expressions = _expressions(promql.parse(query))
    for each in expressions:
        if isinstance(each, promql.VectorSelector):
            name = each.name or ""
            if name not in known:
                found.append(f"no metric {name}")
                continue
            own = {*known[name], *_OF_TARGETS}
            labels |= own
            matched = {matcher.name for matcher in each.matchers.matchers}
            found += [f"{name} has no label {label}" for label in sorted(matched - own)]
    for each in expressions:
        if isinstance(each, promql.AggregateExpr) and each.modifier is not None:
            grouped = set(each.modifier.labels)
            found += [f"no label {label} to group by" for label in sorted(grouped - labels)]
    return found


def _expressions(expression: promql.Expr) -> list[promql.Expr]:
    """An expression and all its parts."""
    found: list[promql.Expr] = []

    def visit(part: promql.Expr) -> bool:
        found.append(part)
        return True

    promql.walk(expression, visit)
    return found
