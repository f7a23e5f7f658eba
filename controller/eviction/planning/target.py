"""The target of an eviction: whether it is gone, has ended, and who wants to help it.

Source: pkg/controller/evictionrequest of Kubernetes 1.38.0-beta.0, and ``getPodFinishTime`` there.
"""

from collections.abc import Iterable
from datetime import datetime
from typing import Final, NamedTuple

from controller.eviction.planning.snapshot import ContainerStatus, Pod, Snapshot
from rules import api
from rules.api import EVICTOR, EVICTOR_PRIORITY, EvictionResponder, PodReference
from rules.evaluate import evaluate
from rules.field import Path
from rules.pod.declaration import declarations
from rules.request import Operation, Request
from rules.times import ZERO

UNSUPPORTED: Final = "Unsupported target type."
POD_GROUP: Final = "Target pod references a SchedulingGroup. Eviction is currently not supported."
"""Why there are targets that can't be evicted, as messages of a condition."""
_TERMINAL_PHASES: Final = frozenset({"Failed", "Succeeded"})
_RESTARTABLE: Final = "Always"
_UNDECLARED: Final = api.Pod()
_EVICTOR: Final = EvictionResponder(name=EVICTOR, priority=EVICTOR_PRIORITY)


class Target(NamedTuple):
    """A pod that is to go, and what there is in its place."""

    reference: PodReference
    found: Pod | None
    """The pod of that name, whatever its UID."""
    holder: Pod | None = None
    """The pod of that UID, whatever its name."""

    @classmethod
    def find(cls, snapshot: Snapshot, namespace: str, reference: PodReference) -> "Target":
        """The target that ``reference`` means."""
        found = snapshot.pod(namespace, reference.name)
        return cls(reference, found, snapshot.pod_with(namespace, reference.uid))

    @property
    def mismatch(self) -> str | None:
        """What is wrong with a name and a UID that belong to two pods, as a message.

        Nothing can be said of such a target: neither that it is gone nor that it is to go.
        """
        if self.holder is None or self.holder.metadata.name == self.reference.name:
            return None
        uid, name = self.reference.uid, self.holder.metadata.name
        return f"Target pod name and UID do not belong together: UID {uid} is that of pod {name}."

    @property
    def pod(self) -> Pod | None:
        """The pod that is meant; None if it is gone, replaced by a namesake or not."""
        if self.found is None or self.found.metadata.uid != self.reference.uid:
            return None
        return self.found

    @property
    def is_terminal(self) -> bool:
        """Whether the pod is there, and its containers have ended for good."""
        return self.pod is not None and self.pod.status.phase in _TERMINAL_PHASES

    @property
    def is_evicted(self) -> bool:
        """Whether nothing of the pod is left that could be evicted."""
        return self.pod is None or self.is_terminal

    @property
    def is_in_pod_group(self) -> bool:
        """Whether the pod is there, and lives and dies with others."""
        return self.pod is not None and self.pod.spec.scheduling_group is not None

    @property
    def terminal_time(self) -> datetime | None:
        """When the pod ended or is to end, as far as it can be read from the pod.

        The latest finish of a container, or the end of the grace after deletion if that is later.
        """
        if self.pod is None:
            return None
        finish = _finish_time(self.pod) if self.is_terminal else None
        known = [time for time in (finish, self.pod.metadata.deletion_timestamp) if time]
        return max(known, default=None)

    @property
    def responders(self) -> tuple[EvictionResponder, ...]:
        """Who is to respond, the evictor last; nobody once the pod is gone."""
        return (*_declared(_as_judged(self.pod)), _EVICTOR) if self.pod is not None else ()

    def broken_declaration(self, now: datetime) -> str | None:
        """What is wrong with the responders that the pod declares, as a message; None if nothing.

        API servers and the webhook let no such pod in, but it may be older than the webhook. The
        rules would refuse every status that listed them.
        """
        pod = _as_judged(self.pod)
        if not (pod.spec.eviction_responders or pod.metadata.annotations):
            return None
        verdict = evaluate(Request(operation=Operation.CREATE, object=pod, now=now))
        for violation in verdict.denied:
            return f"Target pod declares eviction responders that are not valid: {violation.error}"
        return None


def _as_judged(pod: Pod | None) -> api.Pod:
    """What ``pod`` declares, in the shape that the rules judge.

    Only one carrier counts: the field, and the annotation where the field is empty.
    """
    if pod is None:
        return _UNDECLARED
    if pod.spec.eviction_responders:
        return api.Pod(spec=api.PodSpec(eviction_responders=pod.spec.eviction_responders))
    text = pod.metadata.annotations.get(api.RESPONDERS_ANNOTATION)
    if text is None:
        return _UNDECLARED
    return api.Pod(metadata=api.ObjectMeta(annotations={api.RESPONDERS_ANNOTATION: text}))


def _declared(pod: api.Pod) -> tuple[EvictionResponder, ...]:
    native, annotated = declarations(pod, Path())
    return native.responders or annotated.responders


def _finish_time(pod: Pod) -> datetime | None:
    """When the last container finished.

    Restartable init containers count, because they outlive the others.
    """
    finish = _latest(pod.status.container_statuses)
    names = {c.name for c in pod.spec.init_containers if c.restart_policy == _RESTARTABLE}
    sidecars = [status for status in pod.status.init_container_statuses if status.name in names]
    if not sidecars:
        return finish
    last = _latest(sidecars)
    return max(finish, last) if finish and last else last


def _latest(statuses: Iterable[ContainerStatus]) -> datetime | None:
    """The latest finish among ``statuses``; None if there are none, or one of them is unknown."""
    times = []
    for status in statuses:
        finish = status.state.terminated.finished_at if status.state.terminated else None
        if finish is None or finish == ZERO:
            return None
        times.append(finish)
    return max(times, default=None)
