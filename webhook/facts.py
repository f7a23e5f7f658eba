"""Gets the facts that are asked for: in parallel, remembered where that is safe, in time.

A fact that a denying guard or a mutation asks for must be had: otherwise the request fails, and
failurePolicy decides. One that only leads to a warning may be some seconds old, and may be missing.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from functools import partial
from time import monotonic
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

import structlog
from cachetools import TLRUCache

from rules import formats
from rules.facts import (
    NO_FACTS,
    Answer,
    Facts,
    LivePod,
    NamespaceLabels,
    NativeResponders,
    Permission,
    PodLookup,
    Policies,
    Question,
    Who,
)
from rules.patch import Document
from rules.policies import ClusterResponderPolicy, ResponderPolicy
from rules.policy.reading import read_policies
from rules.request import User
from webhook.metrics import Row

ALLOWED_SECONDS: Final = 60.0
"""How long a granted permission is believed; a revoked one works so much longer. Our own choice:
API servers that ask a webhook themselves believe it for 5 minutes (``--authorization-webhook-cache-
authorized-ttl``)."""
DENIED_SECONDS: Final = 10.0
"""How long a refused permission is believed: whoever has just been granted it should not wait. Our
own choice; API servers have 30 s (``--authorization-webhook-cache-unauthorized-ttl``)."""
POD_SECONDS: Final = 5.0
"""How long a pod is believed to be what it was, where a warning depends on it. Our own choice."""
POLICY_SECONDS: Final = 5.0
"""How long policies, and the labels of a namespace, are believed to be what they were: somebody who
has just written one should not wait for long. Our own choice."""
MODE_SECONDS: Final = 5.0
"""How long it is believed where the API comes from. It changes hardly ever, but pods that are made
meanwhile declare their responders where nobody may look. Our own choice."""
WARNING_SECONDS: Final = 1.0
"""How long a request waits for an answer that only leads to a warning. Our own choice."""
MAX_REMEMBERED: Final = 8192
"""Answers that a worker remembers: some 4 MB when full, and what the policies of the cluster take.
Our own choice."""

_log = structlog.get_logger()


class SilentClusterError(Exception):
    """The cluster gave no answer to a question on which an answer depends."""


class Cluster(Protocol):
    """What the API server is asked. Any exception but a cancellation means: no answer."""

    async def has_permission(self, user: User, permission: Permission, name: str) -> bool:
        """Whether ``user`` has ``permission`` under ``name`` (SubjectAccessReview)."""

    async def find_pod(self, lookup: PodLookup) -> LivePod | None:
        """The pod, as the API server has it now."""

    async def list_policies(self, namespace: str) -> Iterable[Document]:
        """The ResponderPolicies of ``namespace``; where it is "", the ClusterResponderPolicies.

        None where the API server does not know the kind.
        """

    async def find_labels(self, namespace: str) -> Mapping[str, str]:
        """The labels of ``namespace``; none where it has none, or does not exist."""

    async def has_native_responders(self) -> bool:
        """Whether pods have the field ``spec.evictionResponders``."""


class _Access(NamedTuple):
    """One SubjectAccessReview."""

    user: User
    permission: Permission
    name: str


_Key: TypeAlias = _Access | PodLookup | Policies | NamespaceLabels | NativeResponders


Connect: TypeAlias = Callable[[], AbstractAsyncContextManager[Cluster | None]]
"""Opens the connection to a cluster, in the event loop that is to use it; None: there is none."""


class Finder(Protocol):
    """Answers questions; in these, True marks what must be had."""

    def recall(self, user: User, questions: Mapping[Question, bool]) -> Facts | None:
        """The answers to ``questions``, if the cluster need not be asked."""

    async def find(self, user: User, questions: Mapping[Question, bool]) -> Facts:
        """The answers to ``questions``; those that need not be had may be left out.

        Raises SilentClusterError if one that must be had could not be had.
        """


class Offline:
    """A finder without a cluster, which leaves the guards and mutations out that need one."""

    def recall(self, user: User, questions: Mapping[Question, bool]) -> Facts:  # noqa: ARG002
        """Nothing is known."""
        return NO_FACTS

    async def find(self, user: User, questions: Mapping[Question, bool]) -> Facts:
        """Nothing can be found out."""
        return self.recall(user, questions)


class FactFinder:
    """Answers questions out of a memory and from a cluster, and counts on ``row`` what it took."""

    def __init__(self, cluster: Cluster, row: Row) -> None:
        self._cluster = cluster
        self._row = row
        self._memory: TLRUCache[_Key, Answer] = TLRUCache(
            MAX_REMEMBERED, lambda key, answer, now: now + _seconds(key, answer), monotonic
        )
        self._asked: dict[_Key, asyncio.Task[Answer]] = {}

    def recall(self, user: User, questions: Mapping[Question, bool]) -> Facts | None:
        """The answers to ``questions``, if all are remembered."""
        answers: dict[Question, Answer] = {}
        for question, must in questions.items():
            found = self._recall(user, question, must=must)
            if found is None:
                return None
            answers[question] = found[0]
        self._row.recalled(len(answers))
        return Facts(answers)

    async def find(self, user: User, questions: Mapping[Question, bool]) -> Facts:
        """The answers to ``questions``, asked in parallel.

        The names of one permission are asked one after another: the first is mostly enough.
        Raises SilentClusterError as :class:`Finder` has it.
        """
        tasks = {
            question: asyncio.ensure_future(self._find(user, question, must=must))
            for question, must in questions.items()
        }
        try:
            await asyncio.wait(tasks.values(), timeout=WARNING_SECONDS)
            if needed := [task for question, task in tasks.items() if questions[question]]:
                await asyncio.wait(needed)
        finally:
            for task in tasks.values():
                task.cancel()
        answers: dict[Question, Answer] = {}
        for question, task in tasks.items():
            error = task.exception() if task.done() else TimeoutError()
            if error is None:
                answers[question] = task.result()
            elif questions[question]:
                raise SilentClusterError(
                    f"{_words(question)}: {error or type(error).__name__}"
                ) from error
            else:
                _log.warning("not known", question=_words(question), error=repr(error))
        return Facts(answers)

    def _recall(self, user: User, question: Question, *, must: bool) -> tuple[Answer] | None:
        """The remembered answer in a tuple of its own; None if there is none good enough."""
        if isinstance(question, Permission):
            known = [self._memory.get(key) for key in _accesses(user, question)]
            if True in known:
                return (True,)
            return None if None in known else (False,)
        key = _key(question)
        if must and isinstance(key, PodLookup):
            return None
        found = self._memory.get(key, _UNKNOWN)
        return None if found is _UNKNOWN else (found,)

    async def _find(self, user: User, question: Question, *, must: bool) -> Answer:
        found = self._recall(user, question, must=must)
        if found is not None:
            self._row.recalled(1)
            return found[0]
        if isinstance(question, Permission):
            return await self._find_permission(user, question)
        key = _key(question)
        # A pod that is already on its way may be older than what the request claims.
        anew = must and isinstance(key, PodLookup)
        return await self._ask(key, partial(self._get, key), anew=anew)

    async def _get(self, key: _Key) -> Answer:
        match key:
            case PodLookup(namespace, name):
                # Who sends reviews may put anything there, and a name becomes part of a URL.
                if not (formats.is_short_name(namespace) and formats.is_long_name(name)):
                    return None
                return await self._cluster.find_pod(key)
            case Policies(namespace):
                model = ResponderPolicy if namespace else ClusterResponderPolicy
                return read_policies(model, await self._cluster.list_policies(namespace))
            case NamespaceLabels(namespace):
                return await self._cluster.find_labels(namespace)
            case NativeResponders():
                return await self._cluster.has_native_responders()
            case _Access(user, permission, name):
                return await self._cluster.has_permission(user, permission, name)

    async def _find_permission(self, user: User, permission: Permission) -> bool:
        """Ask under each name, the full one first: it is the one that most roles list."""
        for key in _accesses(user, permission):
            known = self._memory.get(key)
            if known is None:
                known = await self._ask(key, partial(self._get, key))
            if known is True:
                return True
        return False

    async def _ask(
        self, key: _Key, ask: Callable[[], Coroutine[Any, Any, Answer]], *, anew: bool = False
    ) -> Answer:
        """Ask the cluster; unless ``anew``, once however many want to know it at the same time."""
        task = None if anew else self._asked.get(key)
        if task is None:
            task = self._asked[key] = asyncio.create_task(ask())
            task.add_done_callback(lambda done: self._remember(key, done))
        return await asyncio.shield(task)

    def _remember(self, key: _Key, task: asyncio.Task[Answer]) -> None:
        if self._asked.get(key) is task:
            del self._asked[key]
        failed = task.cancelled() or task.exception() is not None
        self._row.asked(failed=failed)
        if not failed:
            self._memory[key] = task.result()


_UNKNOWN: Final[Any] = object()


def _seconds(key: _Key, answer: Answer) -> float:
    match key:
        case _Access():
            return ALLOWED_SECONDS if answer else DENIED_SECONDS
        case PodLookup():
            return POD_SECONDS
        case NativeResponders():
            return MODE_SECONDS
        case _:
            return POLICY_SECONDS


def _key(question: Question) -> PodLookup | Policies | NamespaceLabels | NativeResponders:
    """Under what the answer to a question is remembered that is the same for every user."""
    assert not isinstance(question, Permission | Who)  # noqa: S101 - who asks is no question here
    return question


def _accesses(user: User, permission: Permission) -> list[_Access]:
    return [_Access(user, permission, name) for name in permission.names]


def _words(question: Question) -> str:
    if isinstance(question, PodLookup):
        return f"is there a pod {question.name} in namespace {question.namespace}?"
    if isinstance(question, Permission):
        return f"is there the permission {question.rule} in namespace {question.namespace}?"
    if isinstance(question, Policies):
        where = f"namespace {question.namespace}" if question.namespace else "the cluster"
        return f"which policies has {where}?"
    if isinstance(question, NamespaceLabels):
        return f"which labels has namespace {question.namespace}?"
    if isinstance(question, NativeResponders):
        return "have pods the field spec.evictionResponders?"
    return "who writes?"
