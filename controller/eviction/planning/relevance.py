"""Which of several Evictions of one pod counts, and what a new one is called.

Source: pkg/controller/evictionrequest of Kubernetes 1.38.0-beta.0.
"""

import re
from collections.abc import Iterable
from datetime import datetime

from rules.api import ConditionType, Eviction
from rules.formats import MAX_LONG_NAME_BYTES
from rules.states import condition_of, is_final, is_true
from rules.times import ZERO

_parts = re.compile(r"([a-z]+)-([0-9]{1,18})-(.*)", re.ASCII | re.DOTALL).fullmatch
"""``<target type>-<counter>-<target name>``; the counter fits 64 bits."""


def has_ended(eviction: Eviction) -> bool:
    """Whether TargetEvicted or Failed is True."""
    return is_final(eviction.status.conditions, ())


def relevant_eviction(evictions: Iterable[Eviction]) -> Eviction | None:
    """The Eviction that counts among those of one pod.

    That is the one that succeeded last, else the oldest that has not ended, else the one that
    failed last; None where there are none.
    """
    evictions = tuple(evictions)
    succeeded = [e for e in evictions if has_succeeded(e)]
    if succeeded:
        return max(succeeded, key=lambda e: _transition_time(e, ConditionType.TARGET_EVICTED))
    active = [e for e in evictions if not has_ended(e)]
    if active:
        return min(active, key=_age)
    return max(evictions, key=lambda e: _transition_time(e, ConditionType.FAILED), default=None)


def has_succeeded(eviction: Eviction) -> bool:
    """Whether TargetEvicted is True."""
    return is_true(eviction.status.conditions, ConditionType.TARGET_EVICTED)


def _transition_time(eviction: Eviction, type_: ConditionType) -> datetime:
    condition = condition_of(eviction.status.conditions, type_)
    return condition.last_transition_time or ZERO if condition else ZERO


def _age(eviction: Eviction) -> tuple[datetime, bool, tuple[str, str, int], str]:
    """Sorts by creation; of those created in one second the lower counter is the older one."""
    name = eviction.metadata.name
    found = _parts(name)
    parts = (found[1], found[3], int(found[2])) if found else ("", "", 0)
    return eviction.metadata.creation_timestamp or ZERO, found is None, parts, name


def new_eviction_name(pod_name: str, taken: frozenset[str]) -> str:
    """``pod-<n>-<pod name>``, cut to the longest lawful name; n is one above those ``taken``."""
    counters = [int(found[2]) for found in map(_parts, taken) if found and found[1] == "pod"]
    # Names are compared after the cut: pods whose long names begin alike share their counters.
    used = [counter for counter in counters if _eviction_name(pod_name, counter) in taken]
    return _eviction_name(pod_name, max(used, default=0) + 1)


def _eviction_name(pod_name: str, counter: int) -> str:
    name = f"pod-{counter}-{pod_name}"
    if len(name) <= MAX_LONG_NAME_BYTES:
        return name
    return name[:MAX_LONG_NAME_BYTES].rstrip("-.")
