"""Leader election by a Lease: of several controllers one writes, the others stand by.

The rules are those of client-go's ``tools/leaderelection``. No clocks are compared for that: a
candidate counts by its own steady clock since it last saw the Lease change, and the leader since
its last successful renewal. That it stops before others may start is what keeps two from writing.
The API server's time in the Lease only tells the next leader whether that can be relied on.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from math import ceil
from time import monotonic
from typing import Any, Final, NamedTuple, Protocol

import structlog

from cluster.client import Cluster, Document
from cluster.failures import ClusterFailure, Conflict, Denied, Missing
from cluster.key import Key
from cluster.pauses import jittered
from cluster.resources import LEASES
from rules.times import format_time

NOTE: Final = "usher.dev/node-health-budgets"
"""The annotation by which a leader tells the next one what zones may spend: the Lease is written
anyway, by nobody else, and never by one who has lost it."""

STEADY_SINCE: Final = "usher.dev/time-steady-since"
"""The annotation by which a leader tells the next one since when the API server's time has not
jumped, RFC 3339 in that time; none: it knows of no jump. See ADR 46."""

ATTEMPTS: Final = 3
"""How many attempts that hang fit into the time for which a leader writes without a renewal. Our
own choice; client-go waits for half of that time."""

_NEVER: Final = datetime.min.replace(tzinfo=UTC)

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Terms:
    """Spans in seconds; the defaults are those of Kubernetes' own controllers."""

    duration: float = 15.0
    """For how long others leave a silent leader alone."""
    renew: float = 10.0
    """For how long a leader writes without a renewal; shorter, or two would write at once."""
    retry: float = 2.0
    """Between two attempts."""

    @property
    def patience(self) -> float:
        """For how long an attempt is waited for: one that hangs leaves time for others."""
        return self.renew / ATTEMPTS


class Sight(NamedTuple):
    """The Lease as a candidate last saw it change."""

    holder: str = ""
    """"" for nobody."""
    version: str = ""
    duration: float = 0.0
    """What its holder has asked for, in seconds."""
    since: float = 0.0
    """When it was first seen so (monotonic clock)."""


def seen(before: Sight, lease: Document, now: float) -> Sight:
    """What a look at ``lease`` at ``now`` adds to what was seen ``before``."""
    spec = lease.get("spec") or {}
    version = lease["metadata"]["resourceVersion"]
    since = before.since if version == before.version else now
    duration = float(spec.get("leaseDurationSeconds") or 0)
    return Sight(spec.get("holderIdentity") or "", version, duration, since)


def may_take(sight: Sight, identity: str, now: float) -> bool:
    """Whether ``identity`` may take the Lease: it is free, our own, or its holder is silent."""
    return sight.holder in ("", identity) or now >= sight.since + sight.duration


def claimed(
    lease: Document, identity: str, terms: Terms, now: datetime, *, released: bool = False
) -> Document:
    """``lease`` as ``identity`` writes it at ``now``, to take, to renew or to release it."""
    spec = lease.get("spec") or {}
    stamp = format_micro_time(now)
    is_renewal = spec.get("holderIdentity") == identity
    changes = {
        "holderIdentity": "" if released else identity,
        "leaseDurationSeconds": 1 if released else ceil(terms.duration),
        "renewTime": stamp,
        "acquireTime": spec.get("acquireTime") or stamp if is_renewal else stamp,
        "leaseTransitions": (spec.get("leaseTransitions") or 0) + (0 if is_renewal else 1),
    }
    return {**lease, "spec": spec | changes}


def annotated(lease: Document, name: str, value: str | None) -> Document:
    """``lease`` with an annotation; None leaves the one that is there."""
    if value is None:
        return lease
    metadata = lease["metadata"]
    annotations = {**(metadata.get("annotations") or {}), name: value}
    return {**lease, "metadata": {**metadata, "annotations": annotations}}


def annotation(lease: Document | None, name: str) -> str:
    """An annotation of ``lease``, "" where there is none."""
    metadata = lease["metadata"] if lease is not None else {}
    return str((metadata.get("annotations") or {}).get(name, ""))


def instant_of(text: str | None) -> datetime | None:
    """The instant that a Lease tells of; None where it tells of none that could be read."""
    try:
        return datetime.fromisoformat(text or "").astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def format_micro_time(instant: datetime) -> str:
    """``instant`` as ``metav1.MicroTime`` wants it: UTC, exactly six fractional digits."""
    return instant.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


class Lead(Protocol):
    """The right to write."""

    @property
    def beat(self) -> float:
        """When the election last went on (monotonic clock), for /livez."""

    def leads(self) -> bool:
        """Whether this process may write, right now."""

    async def acquire(self) -> None:
        """Return when this process may write."""

    async def hold(self) -> None:
        """Return when it may not any more."""

    @property
    def inherited(self) -> str:
        """The note that was found with the right; "" for none."""

    @property
    def subject(self) -> dict[str, str] | None:
        """A reference to the object that stands for the right, None without one."""

    @property
    def margin(self) -> timedelta:
        """For how long something may be written after the note was."""

    async def keep(self) -> None:
        """Return when the note is where the next holder finds it. Raises ClusterFailure."""

    async def release(self) -> None:
        """Give the right back."""


class Alone:
    """There is no election: this process is the only one, says whoever runs it."""

    @property
    def beat(self) -> float:
        """Always now."""
        return monotonic()

    def leads(self) -> bool:
        """Always."""
        return True

    async def acquire(self) -> None:
        """At once."""

    async def hold(self) -> None:
        """For ever."""
        await asyncio.get_running_loop().create_future()

    @property
    def inherited(self) -> str:
        """Nothing: nobody was there before."""
        return ""

    @property
    def subject(self) -> None:
        """There is none."""

    @property
    def margin(self) -> timedelta:
        """Does not matter without a note."""
        return timedelta()

    async def keep(self) -> None:
        """Nobody comes after."""

    async def release(self) -> None:
        """Nobody is waiting."""


class Elector:
    """One candidate."""

    def __init__(
        self,
        cluster: Cluster,
        key: Key,
        identity: str,
        terms: Terms,
        changed: Callable[[bool], None],
        note: Callable[[], str | None] = lambda: None,
    ) -> None:
        """``key`` is the Lease's; ``changed`` is told when this candidate wins or loses.

        ``note`` returns what the next leader is to know, None to leave what is there.
        """
        self._cluster = cluster
        self._key = key
        self._identity = identity
        self._terms = terms
        self._changed = changed
        self._note = note
        self._one_by_one = asyncio.Lock()
        self._sight = Sight()
        self._held: Document | None = None
        self._until = 0.0
        self._said = ""
        self.beat = monotonic()
        """When the election last went on (monotonic clock), for /livez."""

    def leads(self) -> bool:
        """Whether this candidate may write, right now."""
        return self._held is not None and monotonic() < self._until

    async def acquire(self) -> None:
        """Return when this candidate leads."""
        _log.info("standing by", lease=str(self._key.name), identity=self._identity)
        while True:
            self.beat = monotonic()
            if await self._attempt(self._take):
                _log.info("leading", lease=self._key.name, identity=self._identity)
                self._changed(True)  # noqa: FBT003 - the one thing it says
                return
            await asyncio.sleep(jittered(self._terms.retry))

    async def hold(self) -> None:
        """Renew; return when the lead is lost."""
        while self._held is not None:
            self.beat = monotonic()
            pause = jittered(self._terms.retry)
            await asyncio.sleep(min(pause, max(0.0, self._until - monotonic())))
            await self._attempt(self._renew)
            if monotonic() >= self._until:
                self._held = None
        _log.warning("the lead is lost, nothing is written any more", lease=self._key.name)
        self._changed(False)  # noqa: FBT003 - see acquire

    @property
    def inherited(self) -> str:
        """The note in the Lease, which is the former leader's until it is renewed."""
        return annotation(self._held, NOTE)

    @property
    def subject(self) -> dict[str, str] | None:
        """A reference to the Lease, while it is held."""
        if self._held is None:
            return None
        return {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "namespace": self._key.namespace,
            "name": self._key.name,
            "uid": self._held["metadata"].get("uid", ""),
        }

    @property
    def margin(self) -> timedelta:
        """The renew deadline."""
        return timedelta(seconds=self._terms.renew)

    async def keep(self) -> None:
        """Renew at once, and the note with it. Raises ClusterFailure where that did not work."""
        if not await self._attempt(self._renew):
            raise ClusterFailure("the Lease can't be written, and with it what others are to know")

    async def release(self) -> None:
        """Let others take over at once, if this candidate leads."""
        held, self._held = self._held, None
        if held is None:
            return
        self._changed(False)  # noqa: FBT003 - see acquire
        lease = annotated(self._claim(held, released=True), NOTE, self._note())
        try:
            await self._cluster.replace(LEASES, self._key, lease)
        except ClusterFailure as failure:
            _log.warning("the lease runs out by itself", error=str(failure))
        else:
            _log.info("lease released", lease=self._key.name)

    async def _attempt(self, step: Callable[[], Any]) -> bool:
        """Take ``step``; False where it failed, or took too long."""
        async with self._one_by_one:
            return await self._attempt_alone(step)

    async def _attempt_alone(self, step: Callable[[], Any]) -> bool:
        left = self._until - monotonic() if self._held is not None else self._terms.renew
        try:
            async with asyncio.timeout(min(max(left, 0.0), self._terms.patience)):
                await self._taken(step)
        except (TimeoutError, Conflict):
            return False
        except ClusterFailure as failure:
            self._say(failure)
            return False
        self._said = ""
        return self._held is not None

    async def _taken(self, step: Callable[[], Any]) -> None:
        """Take ``step``, at once again where the Lease has changed, and still is ours.

        Mostly it was our own renewal, whose answer has never come. Raises Conflict.
        """
        try:
            await step()
        except Conflict:
            self._held = self._held and await self._looked_again()
            if self._held is None:
                raise
            await step()

    async def _looked_again(self) -> Document | None:
        """The Lease after a conflict, if it is still ours; None if it is not."""
        try:
            async with asyncio.timeout(max(self._until - monotonic(), 0.0)):
                lease = await self._cluster.get(LEASES, self._key)
        except (ClusterFailure, TimeoutError):
            return self._held
        holder = (lease.get("spec") or {}).get("holderIdentity")
        return lease if holder == self._identity else None

    async def _take(self) -> None:
        began = monotonic()
        try:
            lease = await self._cluster.get(LEASES, self._key)
        except Missing:
            body: Document = {
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": {"namespace": self._key.namespace, "name": self._key.name},
            }
            body = self._claim(body)
            body["spec"]["leaseTransitions"] = 0
            self._keep(await self._cluster.create(LEASES, self._key.namespace, body), began)
            return
        self._sight = seen(self._sight, lease, monotonic())
        if may_take(self._sight, self._identity, monotonic()):
            self._inherit_time(lease)
            self._keep(await self._cluster.replace(LEASES, self._key, self._claim(lease)), began)

    def _inherit_time(self, lease: Document) -> None:
        """What the leader before knew of the API server's time."""
        renewed = instant_of((lease.get("spec") or {}).get("renewTime"))
        since = instant_of(annotation(lease, STEADY_SINCE))
        self._cluster.time.inherit(renewed or _NEVER, since)

    def _claim(self, lease: Document, *, released: bool = False) -> Document:
        """``lease`` as it is to be written now, with what is known of the time."""
        time = self._cluster.time
        lease = claimed(lease, self._identity, self._terms, time.now(), released=released)
        since = time.steady_since
        return annotated(lease, STEADY_SINCE, format_time(since) if since else None)

    async def _renew(self) -> None:
        began = monotonic()
        if self._held is not None:
            lease = annotated(self._claim(self._held), NOTE, self._note())
            self._keep(await self._cluster.replace(LEASES, self._key, lease), began)

    def _keep(self, lease: Document, began: float) -> None:
        self._held = lease
        # From before the request was sent: nobody else can have seen the renewal earlier.
        self._until = began + self._terms.renew

    def _say(self, failure: ClusterFailure) -> None:
        event = "the lease can't be read or written"
        if isinstance(failure, Denied):
            event = failure.explanation
        elif isinstance(failure, Missing):
            event = f"the lease's namespace {self._key.namespace} does not exist"
        if str(failure) != self._said:  # once, not every time
            _log.warning(event, lease=self._key.name, error=str(failure))
            self._said = str(failure)
