"""Gets the facts that are asked for: in parallel, remembered where that is safe, in time.

A fact that a denying guard or a mutation asks for must be had: otherwise the request fails, and
failurePolicy decides. One that only leads to a warning may be some seconds old, and may be missing.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from math import inf
from time import monotonic
from typing import Any, Final, NamedTuple, Protocol, TypeAlias, cast

import msgspec
import structlog
from cachetools import TLRUCache

from cluster.pauses import TRANSIENT, pause, waits
from cluster.questions import ClusterFacts
from rules import formats
from rules.facts import (
    NO_FACTS,
    Answer,
    EvictionRight,
    Facts,
    LivePod,
    NamedPod,
    NamespaceLabels,
    NativeResponders,
    Permission,
    PodLookup,
    Policies,
    Question,
    Right,
    Target,
    TargetLookup,
    may_evict,
)
from rules.policies import ClusterResponderPolicy, ResponderPolicy
from rules.policy.reading import read_policies
from rules.request import User

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
"""Answers that are remembered: some 8 MB when full, as no key is longer than two names, and
what the policies of the cluster take. Our own choice."""
_log = structlog.get_logger()


class SilentClusterError(Exception):
    """The cluster gave no answer to a question on which an answer depends."""


class _Digest(NamedTuple):
    """What stands for an :class:`_Access` in the memory: users may be as large as they like."""

    digest: bytes


class _Access(NamedTuple):
    """One SubjectAccessReview."""

    user: User
    permission: Permission
    name: str
    key: _Digest


class _PodNames(NamedTuple):
    """The pods of a namespace by their UIDs."""

    in_namespace: str


_Plain: TypeAlias = PodLookup | Policies | NamespaceLabels | NativeResponders
_Key: TypeAlias = _Digest | _PodNames | _Plain


class Counts(Protocol):
    """Counts where answers come from."""

    def recalled(self, count: int) -> None:
        """So many were remembered."""

    def asked(self, *, failed: bool) -> None:
        """One was asked for."""


Connect: TypeAlias = Callable[[], AbstractAsyncContextManager[ClusterFacts | None]]
"""Opens the connection to a cluster, in the event loop that is to use it; None: there is none."""


class Finder(Protocol):
    """Answers questions; in these, True marks what must be had."""

    def recall(self, user: User, questions: Mapping[Question, bool]) -> Facts | None:
        """The answers to ``questions``, if the cluster need not be asked."""

    async def find(
        self, user: User, questions: Mapping[Question, bool], seconds: float = inf
    ) -> Facts:
        """The answers to ``questions``; those that need not be had may be left out.

        A question that was throttled or cut off is asked again, as long as ``seconds`` last. Raises
        SilentClusterError if one that must be had could not be had.
        """


class Offline:
    """A finder without a cluster, which leaves the guards and mutations out that need one."""

    def recall(self, user: User, questions: Mapping[Question, bool]) -> Facts:  # noqa: ARG002
        """Nothing is known."""
        return NO_FACTS

    async def find(
        self,
        user: User,
        questions: Mapping[Question, bool],
        seconds: float = inf,  # noqa: ARG002
    ) -> Facts:
        """Nothing can be found out."""
        return self.recall(user, questions)


@dataclass(frozen=True, slots=True)
class _Search:
    """The search for the answers that one request needs."""

    user: User
    deadline: float
    """By the monotonic clock; no question is asked again after it."""
    tasks: dict[Question, asyncio.Future[Answer]] = field(default_factory=dict)


class FactFinder:
    """Answers questions out of a memory and from a cluster; ``metrics`` count what it took."""

    def __init__(self, cluster: ClusterFacts, metrics: Counts) -> None:
        self._cluster = cluster
        self._metrics = metrics
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
        self._metrics.recalled(len(answers))
        return Facts(answers)

    async def find(
        self, user: User, questions: Mapping[Question, bool], seconds: float = inf
    ) -> Facts:
        """The answers to ``questions``, asked in parallel.

        The names of one permission are asked one after another: the first is mostly enough.
        ``seconds`` and SilentClusterError are as :class:`Finder` has them.
        """
        search = _Search(user, monotonic() + seconds)
        tasks = search.tasks
        for question, must in _with_targets(questions).items():
            tasks[question] = asyncio.ensure_future(self._find(search, question, must=must))
        try:
            await asyncio.wait(tasks.values(), timeout=WARNING_SECONDS)
            if needed := [tasks[question] for question, must in questions.items() if must]:
                await asyncio.wait(needed)
        finally:
            for task in tasks.values():
                task.cancel()
        answers: dict[Question, Answer] = {}
        for question, task in tasks.items():
            error = task.exception() if task.done() else TimeoutError()
            if error is None:
                answers[question] = task.result()
            elif questions.get(question):
                raise SilentClusterError(
                    f"{_words(question)}: {error or type(error).__name__}"
                ) from error
            elif question in questions:
                _log.warning("not known", question=_words(question), error=repr(error))
        return Facts(answers)

    def _recall(self, user: User, question: Question, *, must: bool) -> tuple[Answer] | None:
        """The remembered answer in a tuple of its own; None if there is none good enough."""
        match question:
            case Permission():
                known = [self._memory.get(each.key) for each in _accesses(user, question)]
                if True in known:
                    return (True,)
                return None if None in known else (False,)
            case TargetLookup():
                return self._recall_target(user, question, must=must)
            case EvictionRight(target):
                return self._recall_right(user, target, must=must)
        if must and isinstance(question, PodLookup):
            return None
        found = self._memory.get(_key(question), _UNKNOWN)
        return None if found is _UNKNOWN else (found,)

    def _recall_target(
        self, user: User, target: TargetLookup, *, must: bool
    ) -> tuple[Target] | None:
        """Only of one pod that has both: who else has the UID is not remembered."""
        found = self._recall(user, PodLookup(target.namespace, target.name), must=must)
        live = found[0] if found is not None else None
        if not isinstance(live, LivePod) or live.uid != target.uid:
            return None
        return (Target(live, NamedPod(target.name, live)),)

    def _recall_right(self, user: User, target: TargetLookup, *, must: bool) -> tuple[Right] | None:
        if self._recall_target(user, target, must=must) is None:
            return None
        permission = may_evict(target.name, target.namespace)
        granted = self._recall(user, permission, must=must)
        return None if granted is None else (Right(target.name, granted[0] is True),)

    async def _find(self, search: _Search, question: Question, *, must: bool) -> Answer:
        found = self._recall(search.user, question, must=must)
        if found is not None:
            self._metrics.recalled(1)
            return found[0]
        match question:
            case Permission():
                return await self._find_permission(search, question)
            case TargetLookup():
                return await self._find_target(search, question, must=must)
            case EvictionRight(target):
                return await self._find_right(search, target)
        nothing: Answer = _nothing(question)
        if nothing is not _UNKNOWN:
            return nothing
        key = _key(question)
        # A pod that is already on its way may be older than what the request claims.
        anew = must and isinstance(key, PodLookup)
        return await self._ask(search, key, lambda: self._get(key), anew=anew)

    async def _get(self, key: _Plain) -> Answer:
        match key:
            case PodLookup():
                return await self._cluster.find_pod(key)
            case Policies(namespace):
                model = ResponderPolicy if namespace else ClusterResponderPolicy
                return read_policies(model, await self._cluster.list_policies(namespace))
            case NamespaceLabels(namespace):
                return await self._cluster.find_labels(namespace)
            case NativeResponders():
                return await self._cluster.has_native_responders()

    async def _find_permission(self, search: _Search, permission: Permission) -> bool:
        """Ask under each name, the full one first: it is the one that most roles list."""
        for user, _, name, key in _accesses(search.user, permission):
            known = self._memory.get(key)
            if known is None:
                ask = partial(self._cluster.has_permission, user, permission, name)
                known = await self._ask(search, key, ask)
            if known is True:
                return True
        return False

    async def _find_right(self, search: _Search, target: TargetLookup) -> Right:
        found = cast("Target", await asyncio.shield(search.tasks[target]))
        pod = found.bearer.name if found.bearer is not None else target.name
        permission = may_evict(pod, target.namespace)
        return Right(pod, await self._find_permission(search, permission))

    async def _find_target(self, search: _Search, target: TargetLookup, *, must: bool) -> Target:
        """Look for the name first: only if that pod has another UID, all of them are listed."""
        namespace, name, uid = target.namespace, target.name, target.uid
        named = cast(
            "LivePod | None", await self._find(search, PodLookup(namespace, name), must=must)
        )
        if named is not None and named.uid == uid:
            return Target(named, NamedPod(name, named))
        if not (formats.is_short_name(namespace) and formats.is_uuid(uid)):
            return Target(named)
        bearer = (await self._list_pods(search, namespace)).get(uid)
        if bearer is None:
            return Target(named)
        pod = cast(
            "LivePod | None", await self._find(search, PodLookup(namespace, bearer), must=True)
        )
        if pod is None or pod.uid != uid:
            return Target(named)  # it has gone meanwhile
        return Target(pod if bearer == name else named, NamedPod(bearer, pod))

    async def _list_pods(self, search: _Search, namespace: str) -> Mapping[str, str]:
        """UID → name, by one list at a time for each namespace, which begins after this call."""
        key = _PodNames(namespace)
        if (begun := self._asked.get(key)) is not None:
            await asyncio.wait([begun])
        names = await self._ask(search, key, partial(self._cluster.list_pods, namespace))
        return cast("Mapping[str, str]", names)

    async def _ask(
        self,
        search: _Search,
        key: _Key,
        ask: Callable[[], Coroutine[Any, Any, Answer]],
        *,
        anew: bool = False,
    ) -> Answer:
        """Ask the cluster; unless ``anew``, once however many want to know it at the same time.

        What was throttled or cut off is asked again within the time of the request: questions
        change nothing.
        """
        for wait in waits():
            task = None if anew else self._asked.get(key)
            if task is None:
                task = self._asked[key] = asyncio.create_task(ask())
                task.add_done_callback(partial(self._remember, key))
            try:
                return await asyncio.shield(task)
            except TRANSIENT as failure:
                seconds = pause(failure, wait)
                if monotonic() + seconds >= search.deadline:
                    raise
                await asyncio.sleep(seconds)
        raise AssertionError("waits() has no end")

    def _remember(self, key: _Key, task: asyncio.Task[Answer]) -> None:
        if self._asked.get(key) is task:
            del self._asked[key]
        failed = task.cancelled() or task.exception() is not None
        self._metrics.asked(failed=failed)
        if not failed and not isinstance(key, _PodNames):
            self._memory[key] = task.result()


_UNKNOWN: Final[Any] = object()


def _with_targets(questions: Mapping[Question, bool]) -> dict[Question, bool]:
    """``questions`` and, before them, what else has to be known to answer them."""
    wanted: dict[Question, bool] = {}
    for question, must in questions.items():
        if isinstance(question, EvictionRight):
            wanted[question.target] = wanted.get(question.target, False) or must
        wanted[question] = wanted.get(question, False) or must
    return wanted


def _seconds(key: _Key, answer: Answer) -> float:
    match key:
        case _Digest():
            return ALLOWED_SECONDS if answer else DENIED_SECONDS
        case PodLookup():
            return POD_SECONDS
        case NativeResponders():
            return MODE_SECONDS
        case _:
            return POLICY_SECONDS


def _key(question: Question) -> _Plain:
    """Under what the answer to a question is remembered that is the same for every user."""
    assert isinstance(question, _Plain)  # noqa: S101 - the others have been answered before
    return question


def _nothing(question: Question) -> Any:
    """The answer about what no cluster can have; :data:`_UNKNOWN` about anything else.

    Who sends reviews may put anything there: it should become no part of a URL, nor be remembered.
    """
    match question:
        case PodLookup(namespace, name):
            lawful = formats.is_short_name(namespace) and formats.is_long_name(name)
            return _UNKNOWN if lawful else None
        case Policies(namespace):
            return _UNKNOWN if not namespace or formats.is_short_name(namespace) else ()
        case NamespaceLabels(namespace):
            return _UNKNOWN if formats.is_short_name(namespace) else {}
        case _:
            return _UNKNOWN


def _accesses(user: User, permission: Permission) -> list[_Access]:
    return [_access(user, permission, name) for name in permission.names]


def _access(user: User, permission: Permission, name: str) -> _Access:
    text = msgspec.json.encode([*user, *permission._replace(names=(name,))])
    return _Access(user, permission, name, _Digest(blake2b(text, digest_size=16).digest()))


def _words(question: Question) -> str:
    match question:
        case PodLookup(namespace, name):
            return f"is there a pod {name} in namespace {namespace}?"
        case TargetLookup(namespace, name, uid):
            return f"which pods of namespace {namespace} have the name {name} and the UID {uid}?"
        case EvictionRight(target):
            return f"may the caller evict pod {target.name} in namespace {target.namespace}?"
        case Permission():
            where = f"namespace {question.namespace}"
            return f"is there the permission {question.rule} in {where}?"
        case _:
            return _words_of_mutations(question)


def _words_of_mutations(question: Question) -> str:
    if isinstance(question, Policies):
        where = f"namespace {question.namespace}" if question.namespace else "the cluster"
        return f"which policies has {where}?"
    if isinstance(question, NamespaceLabels):
        return f"which labels has namespace {question.namespace}?"
    if isinstance(question, NativeResponders):
        return "have pods the field spec.evictionResponders?"
    return "who writes?"
