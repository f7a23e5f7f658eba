"""What guards and mutations may ask of the cluster: questions, answers, and the snapshot of both.

They state their questions (``asks`` of :class:`rules.rule.Rule` and
:class:`rules.mutation.Mutation`); whoever has a cluster answers them, all at once,
before the rules run. So the rules stay pure, and nobody asks in vain.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, NamedTuple, TypeAlias, cast

from rules import formats
from rules.api import GROUP, PodReference
from rules.policies import AnyPolicy

EVERY_NAME: Final = "*"
"""Stands for the key in the name of a permission that holds for a whole domain (as ``signers`` in
certificates.k8s.io have it)."""


class Permission(NamedTuple):
    """May the caller do this under any of ``names``?

    The words are those of a Role and of a SubjectAccessReview (``authorization.k8s.io/v1``). The
    answer is a bool.
    """

    verb: str
    group: str
    resource: str
    namespace: str
    names: tuple[str, ...]
    subresource: str = ""

    @property
    def rule(self) -> str:
        """The rule of a Role that grants it, as a line of YAML, ready to paste."""
        resource = "/".join(filter(None, (self.resource, self.subresource)))
        parts = (
            f'apiGroups: ["{self.group}"]',
            f'resources: ["{resource}"]',
            f'resourceNames: ["{self.names[0]}"]',
            f'verbs: ["{self.verb}"]',
        )
        return f"{{{', '.join(parts)}}}"


def may_respond(name: str, namespace: str) -> Permission:
    """Whether the caller may act as the responder ``name``, in that namespace."""
    return Permission("respond", GROUP, "evictionresponders", namespace, _names(name))


def may_request(name: str, namespace: str) -> Permission:
    """Whether the caller may ask for evictions as the requester ``name``, in that namespace."""
    return Permission("request", GROUP, "evictionrequesters", namespace, _names(name))


def may_evict(pod: str, namespace: str) -> Permission:
    """Whether the caller could evict that pod by the API that every cluster has."""
    return Permission("create", "", "pods", namespace, (pod,), "eviction")


def _names(key: str) -> tuple[str, ...]:
    domain, slash, _ = key.partition("/")
    return (key, f"{domain}/{EVERY_NAME}") if slash else (key,)


class PodLookup(NamedTuple):
    """What is the pod of that name? The answer is a :class:`LivePod`, or None if there is none."""

    namespace: str
    name: str


class LivePod(NamedTuple):
    """What guards want to know of a pod."""

    uid: str
    is_terminal: bool = False
    """Whether its phase is Succeeded or Failed."""
    is_grouped: bool = False
    """Whether it belongs to a PodGroup, by ``spec.schedulingGroup``."""
    is_mirror: bool = False
    """Whether it mirrors a static pod, which no API can evict."""
    is_daemon: bool = False
    """Whether a DaemonSet controls it, and would start it again on the same node."""


# What follows is no NamedTuple: those of different types are equal where their members are.
@dataclass(frozen=True, slots=True)
class TargetLookup:
    """Which pods have the name and the UID of a target? The answer is a :class:`Target`."""

    namespace: str
    name: str
    uid: str


def lawful_target(pod: PodReference | None, namespace: str) -> TargetLookup | None:
    """What to look up for the target ``pod``; None for one that no pod can be."""
    if pod is None or not (formats.is_long_name(pod.name) and formats.is_uuid(pod.uid)):
        return None
    return TargetLookup(namespace, pod.name, pod.uid)


class NamedPod(NamedTuple):
    """A pod, and its name."""

    name: str
    pod: LivePod


class Target(NamedTuple):
    """What there is of a target: two views of one pod, if its name and its UID belong together."""

    named: LivePod | None = None
    """The pod of that name."""
    bearer: NamedPod | None = None
    """The pod that has that UID, whatever its name."""


@dataclass(frozen=True, slots=True)
class EvictionRight:
    """May the caller evict the pod that the target means?

    That is the pod with its UID, whatever the name; if no pod has it, one of that name. The answer
    is a :class:`Right`.
    """

    target: TargetLookup


class Right(NamedTuple):
    """The answer about one pod."""

    pod: str
    """The name of the pod that it is about."""
    is_granted: bool


class Who(NamedTuple):
    """Who is the caller? The request itself says it, except offline."""


WHO: Final = Who()


# What mutations ask.
@dataclass(frozen=True, slots=True)
class Policies:
    """Which policies has the namespace, or, without one, the cluster?

    The answer is a tuple of the lawful ones, by name.
    """

    namespace: str = ""


CLUSTER_POLICIES: Final = Policies()


@dataclass(frozen=True, slots=True)
class NamespaceLabels:
    """Which labels has the namespace? The answer is a mapping."""

    namespace: str


@dataclass(frozen=True, slots=True)
class NativeResponders:
    """Have pods the field ``spec.evictionResponders`` here? The answer is a bool."""


NATIVE_RESPONDERS: Final = NativeResponders()

Question: TypeAlias = (
    Permission
    | PodLookup
    | TargetLookup
    | EvictionRight
    | Who
    | Policies
    | NamespaceLabels
    | NativeResponders
)
Answer: TypeAlias = (
    bool | LivePod | Target | Right | tuple[AnyPolicy, ...] | Mapping[str, str] | None
)


class Facts(NamedTuple):
    """The answers to questions, as they were at one moment."""

    answers: Mapping[Question, Answer] = MappingProxyType({})

    def permits(self, permission: Permission) -> bool:
        """Whether the caller has ``permission``; KeyError if nobody asked."""
        return self.answers[permission] is True

    def pod(self, lookup: PodLookup) -> LivePod | None:
        """The pod; KeyError if nobody asked."""
        pod = self.answers[lookup]
        return pod if isinstance(pod, LivePod) else None

    def target(self, lookup: TargetLookup) -> Target:
        """What there is of the target; KeyError if nobody asked."""
        return cast("Target", self.answers[lookup])

    def right(self, question: EvictionRight) -> Right:
        """Whether the caller has the right; KeyError if nobody asked."""
        return cast("Right", self.answers[question])

    def policies(self, question: Policies) -> tuple[AnyPolicy, ...]:
        """The policies, by name; KeyError if nobody asked."""
        return cast("tuple[AnyPolicy, ...]", self.answers[question])

    def labels(self, question: NamespaceLabels) -> Mapping[str, str]:
        """The labels of the namespace; KeyError if nobody asked."""
        return cast("Mapping[str, str]", self.answers[question])

    def has(self, question: NativeResponders) -> bool:
        """Whether pods have the field; KeyError if nobody asked."""
        return self.answers[question] is True


NO_FACTS: Final = Facts()
