"""A new pod gets the responders that policies name for it.

They come behind the pod's own, which win where a name is in both. Among policies a ResponderPolicy
of the namespace comes before a ClusterResponderPolicy, and equals come by name; the first to name a
responder sets its priority. What does not fit into the ten places of a pod is left out. Pods of a
PodGroup and mirror pods, which cannot be evicted, are left alone, and so is an annotation that
cannot be read.

Why: a platform team can see to it that the pods of others are moved with care, without a change to
their charts.
Source: docs/mutations.md (Usher's own).
Before: a pod with the label app: db
After: the same with spec.evictionResponders: [{name: db.acme.io/failover, priority: 10000}]
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from rules.api import MAX_POD_RESPONDERS, MIRROR_ANNOTATION, RESPONDERS_ANNOTATION, Pod
from rules.decode import load
from rules.facts import CLUSTER_POLICIES, NATIVE_RESPONDERS, NamespaceLabels, Policies, Question
from rules.field import Path
from rules.mutation import Change, Mode, Mutation, Setting
from rules.patch import Document, as_text
from rules.pod.declaration import declarations
from rules.policies import AnyPolicy, ClusterResponderPolicy, selects
from rules.request import Operation

_FIELD: Final = ("spec", "evictionResponders")
_ANNOTATION: Final = ("metadata", "annotations", RESPONDERS_ANNOTATION)


@dataclass(frozen=True, slots=True)
class _Own:
    """The responders that a pod declares itself, and where."""

    names: frozenset[str]
    written: list[Any]
    """The entries as they are written."""
    in_field: bool


def _asks(new: Pod, *, setting: Setting) -> Iterator[Question]:
    if not _is_eligible(new):
        return
    yield Policies(setting.namespace)
    yield CLUSTER_POLICIES
    yield NamespaceLabels(setting.namespace)
    if setting.mode == Mode.AUTO and not new.spec.eviction_responders:
        yield NATIVE_RESPONDERS


def _amend(new: Pod, document: Document, *, old: None, setting: Setting) -> Change | None:
    own = _read_own(new, document) if _is_eligible(new) else None
    if own is None:
        return None
    wanted = list(_wanted(new, own, setting))
    room = max(MAX_POD_RESPONDERS - len(own.written), 0)
    added, left_out = wanted[:room], wanted[room:]
    if not added:
        return None
    responders = own.written + [entry for _, entry in added]
    note = ", ".join(f"{entry['name']} ({source})" for source, entry in added)
    if left_out:
        note += f"; no room for {', '.join(entry['name'] for _, entry in left_out)}"
    if own.in_field or _is_native(setting):
        return Change(_FIELD, responders, f"{'.'.join(_FIELD)}: {note}")
    return Change(_ANNOTATION, as_text(responders), f"{RESPONDERS_ANNOTATION}: {note}")


def _is_eligible(pod: Pod) -> bool:
    return pod.spec.scheduling_group is None and MIRROR_ANNOTATION not in pod.metadata.annotations


def _read_own(pod: Pod, document: Document) -> _Own | None:
    """What the pod declares itself; None if that cannot be read.

    The field counts, and the annotation where the field is empty (ADR 33).
    """
    native, annotated = declarations(pod, Path())
    if native.responders:
        names = frozenset(responder.name for responder in native.responders)
        return _Own(names, list(document["spec"]["evictionResponders"]), in_field=True)
    if annotated.problem is not None:
        return None
    text = pod.metadata.annotations.get(RESPONDERS_ANNOTATION, "[]")
    names = frozenset(responder.name for responder in annotated.responders)
    return _Own(names, load(text.encode()), in_field=False)


def _wanted(pod: Pod, own: _Own, setting: Setting) -> Iterator[tuple[str, dict[str, Any]]]:
    """The entries to add, each with the policy that names it."""
    facts, taken = setting.facts, set(own.names)
    surroundings = facts.labels(NamespaceLabels(setting.namespace))
    policies = (*facts.policies(Policies(setting.namespace)), *facts.policies(CLUSTER_POLICIES))
    for policy in policies:
        if not _applies(policy, pod, surroundings):
            continue
        source = f"{type(policy).__name__} {policy.metadata.name}"
        for responder in policy.spec.responders:
            if responder.name not in taken:
                taken.add(responder.name)
                yield source, {"name": responder.name, "priority": responder.priority}


def _applies(policy: AnyPolicy, pod: Pod, surroundings: Mapping[str, str]) -> bool:
    """Whether ``policy`` is about the pod, in a namespace with the labels ``surroundings``."""
    if not selects(policy.spec.pod_selector, pod.metadata.labels):
        return False
    if isinstance(policy, ClusterResponderPolicy):
        return selects(policy.spec.namespace_selector, surroundings)
    return True


def _is_native(setting: Setting) -> bool:
    if setting.mode == Mode.AUTO:
        return setting.facts.has(NATIVE_RESPONDERS)
    return setting.mode == Mode.NATIVE


MUTATION: Mutation[Pod] = Mutation(
    name="register-responders",
    doc=__doc__,
    kind=Pod,
    operation=Operation.CREATE,
    amend=_amend,
    asks=_asks,
)
