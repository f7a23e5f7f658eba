"""The loop that keeps store, bundles and servers' files as they should be. Any number may run."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from time import monotonic
from typing import Final

import structlog

from certs.handshake import Address, look
from certs.holdings import (
    CA_CERTIFICATES,
    CERTIFICATE,
    KEY,
    Holdings,
    Serving,
    bundle,
    decode,
    encode,
    is_valid,
)
from certs.injection import Bundles, Injected
from certs.metrics import CA, LEAF, Metrics
from certs.renewal import DEFAULT_LIVES, Decision, Lives, Step, after, decide
from certs.store import DirectoryStore, Store, Stored
from cluster.failures import ClusterFailure, Conflict, Denied
from rules.states import CLOCK_SKEW

_log = structlog.get_logger()

LOOK_SECONDS: Final = 5.0
"""Between two looks: an emptied bundle fails calls, so that it must be filled within seconds."""
RETRY_SECONDS: Final = 1.0
"""After a failure, doubled with every further one …"""
LONGEST_PAUSE_SECONDS: Final = 60.0
"""… up to this: operations ask for a check every minute."""
STUCK_SECONDS: Final = 300.0
"""No look takes so long, nor the pause before it: a handful of requests of at most 30 s each, two
handshakes, and the longest pause. Our own choice."""
_DONE: Final = {
    Step.ADD_AUTHORITY: "CA issued",
    Step.ISSUE_LEAF: "certificate issued",
    Step.DROP_AUTHORITIES: "older CAs dropped",
}
_IN_THE_WAY: Final = ("failure", "flaws", "output")
"""Topics of warnings that say why there is no pair."""
_ISSUES: Final = {Step.ADD_AUTHORITY: CA, Step.ISSUE_LEAF: LEAF}


@dataclass(frozen=True, slots=True)
class Settings:
    """What an agent is to achieve."""

    names: tuple[str, ...]
    """For the serving certificate: DNS names and IP addresses."""
    lives: Lives = DEFAULT_LIVES
    served: Address | None = None
    """Where the pair is served; None: nobody looks."""


class _View:
    """One look at everything."""

    def __init__(self, injected: list[Injected], stored: Stored) -> None:
        self.injected = injected
        self.stored = stored
        self.holdings = decode(stored.files)

    def after(self, step: Step, now: datetime, settings: Settings) -> Holdings:
        """What the store is to hold after ``step``."""
        trusted = [ca for each in self.injected for cas in each.bundles.values() for ca in cas]
        return after(
            step,
            self.holdings,
            now,
            names=settings.names,
            lives=settings.lives,
            trusted=trusted,
        )

    @property
    def out_of_step(self) -> list[Injected]:
        """Configurations whose bundles are to be written."""
        return [each for each in self.injected if not each.agrees(self.holdings.authorities)]


class Agent:
    """Looks, and takes one step at a time."""

    def __init__(
        self,
        store: Store,
        bundles: Bundles,
        settings: Settings,
        wall: Callable[[], datetime],
        *,
        output: DirectoryStore | None = None,
        steady: Callable[[], float] = monotonic,
    ) -> None:
        """``wall`` tells the time that those who verify go by, ``steady`` measures spans (s).

        ``output`` is where a server reads its pair, if that is not the store itself.
        """
        self._store = store
        self._bundles = bundles
        self._settings = settings
        self._output = output
        self._wall = wall
        self._steady = steady
        self._offset: timedelta | None = None
        self._agreed: tuple[object, float] = (None, 0.0)
        self._seen_served: object = None
        self._said: dict[str, str] = {}
        self._delivered: Serving | None = None
        self._beat = steady()
        self.metrics = Metrics(has_server=settings.served is not None)

    # --- running --------------------------------------------------------------------------------

    async def run(self) -> None:
        """Go on until cancelled; failures are said once, and tried again."""
        _log.info("looking after certificates", store=str(self._store), names=self._settings.names)
        failures = 0
        while True:
            self._beat = self._steady()
            try:
                moved = await self._moved()
            except (ClusterFailure, OSError) as failure:
                failures += 1
                self.metrics.failures.labels("look", kind_of(failure)).inc()
                self._say("failure", words(failure))
                doubled = RETRY_SECONDS * 2.0 ** min(failures - 1, 10)
                await asyncio.sleep(min(doubled, LONGEST_PAUSE_SECONDS))
                continue
            failures = 0
            self._say("failure", "")
            await asyncio.sleep(0 if moved else LOOK_SECONDS)

    async def _moved(self) -> bool:
        """One tick; whether there may be more to do at once."""
        try:
            return (await self.tick()).step is not Step.NONE
        except Conflict as conflict:
            # Another one was faster: what it has written is what counts.
            _log.debug("somebody else has written", error=str(conflict))
            await asyncio.sleep(RETRY_SECONDS)
            return True

    async def settle(self) -> None:
        """Go on until all is as it should be. Raises ClusterFailure or OSError."""
        while True:
            try:
                decision = await self.tick()
            except Conflict:
                decision = Decision(Step.NONE, "somebody else has written")
            if decision.is_settled:
                return
            await asyncio.sleep(0 if decision.step is not Step.NONE else RETRY_SECONDS)

    # --- steps ----------------------------------------------------------------------------------

    async def tick(self) -> Decision:
        """Look, and take at most one step: write bundles, or the store.

        Raises ClusterFailure or OSError; Conflict if somebody else was faster.
        """
        view = await self._look()
        self.metrics.show(view.holdings)
        self.metrics.show_bundles(view.injected, view.out_of_step)
        now = self._wall()
        if self._has_jumped(now):
            return Decision(Step.NONE, "the clock has jumped; looking again")
        self._deliver(view.holdings, now)
        decision = decide(
            view.holdings,
            now,
            names=self._settings.names,
            agreed_for=self._agreed_for(view),
            lives=self._settings.lives,
        )
        # What mends calls comes first; a server that is silent keeps us waiting.
        if decision.step is Step.WRITE_BUNDLES:
            await self._inject(view)
            return decision
        if decision.step in (Step.NONE, Step.DROP_AUTHORITIES):
            is_served = await self._is_served(view.holdings)
            if decision.step is Step.DROP_AUTHORITIES and not is_served:
                decision = Decision(Step.NONE, "the server still shows another certificate")
        self._say("waiting", decision.reason if decision.step is Step.NONE else "")
        if decision.step is not Step.NONE:
            await self._take(decision, view, now)
        return decision

    async def force(self, step: Step) -> None:
        """Take ``step`` now, whether or not it is due.

        Raises ClusterFailure or OSError; Conflict if somebody else has written meanwhile, or if a
        new leaf would come too early: API servers must know its CA first.
        """
        view = await self._look()
        held = view.holdings
        is_in_rotation = bool(view.injected) and held.issuer != held.newest
        if step is Step.ISSUE_LEAF and (held.signer is None or view.out_of_step or is_in_rotation):
            raise Conflict("a rotation of the CA must be finished first: 'usher certs issue' does")
        await self._take(Decision(step, "asked for"), view, self._wall())

    async def _look(self) -> _View:
        # In this order: see certs.injection.
        injected = await self._bundles.read()
        return _View(injected, await self._store.read())

    async def _take(self, decision: Decision, view: _View, now: datetime) -> None:
        holdings = view.after(decision.step, now, self._settings)
        await self._store.write(view.stored, encode(holdings))
        if decision.step in _ISSUES:
            self.metrics.issued.labels(_ISSUES[decision.step]).inc()
        _log.info(
            _DONE[decision.step],
            reason=decision.reason,
            store=str(self._store),
            authorities=len(holdings.authorities),
            expires=_expiry(holdings, decision.step),
        )

    async def _inject(self, view: _View) -> None:
        authorities = view.holdings.authorities
        for each in view.out_of_step:
            await self._bundles.write(each, authorities)
            self.metrics.bundle_writes.inc()
            _log.info("caBundle written", configuration=str(each.target), cas=len(authorities))

    def _agreed_for(self, view: _View) -> timedelta | None:
        """For how long this agent has seen every bundle as it should be."""
        newest = None if view.out_of_step else view.holdings.newest
        present = self._steady()
        if newest is None or newest != self._agreed[0]:
            self._agreed = (newest, present)
        return timedelta(seconds=present - self._agreed[1]) if newest is not None else None

    def _has_jumped(self, now: datetime) -> bool:
        """Whether the wall clock was set since the last look; what it shows may be corrected."""
        offset = now - datetime.fromtimestamp(0, now.tzinfo) - timedelta(seconds=self._steady())
        last, self._offset = self._offset, offset
        if last is None or abs(offset - last) < CLOCK_SKEW:
            return False
        _log.warning("the clock has jumped", seconds=round((offset - last).total_seconds()))
        return True

    # --- the server -----------------------------------------------------------------------------

    def _deliver(self, holdings: Holdings, now: datetime) -> None:
        """Give the server the pair if it is good and new; else it keeps the last one."""
        flaws = "; ".join(holdings.flaws)
        self._say("flaws", f"unusable, will be replaced: {flaws}" if flaws else "")
        serving = holdings.serving
        if serving is None or not holdings.serves(now):
            return
        if self._output is None:
            self._delivered = serving
            return
        files = {
            CERTIFICATE: serving.pair.certificate,
            KEY: serving.pair.key,
            CA_CERTIFICATES: bundle(holdings.authorities),
        }
        try:
            if not self._output.holds(files):
                self._output.put(files)
                expires = serving.leaf.not_valid_after_utc.isoformat()
                _log.info("pair written", to=str(self._output), expires=expires)
        except OSError as error:  # the bundles don't depend on it
            self.metrics.failures.labels("output", kind_of(error)).inc()
            self._say("output", f"the pair can't be written: {error}")
        else:
            self._delivered = serving
            self._say("output", "")

    async def _is_served(self, holdings: Holdings) -> bool:
        """Whether the server shows the leaf of the store; True if nobody is to look."""
        address, serving = self._settings.served, holdings.serving
        if address is None or serving is None or self._seen_served == serving.leaf:
            return True
        self.metrics.served.set(0)
        try:
            shown = await look(address, bundle(holdings.authorities), serving.names[0])
        except OSError as error:
            self.metrics.failures.labels("handshake", kind_of(error)).inc()
            self._say("served", f"no handshake with {address}: {error}")
            return False
        if shown.leaf != serving.leaf or shown.problem:
            what = shown.problem or "it shows another certificate"
            self._say("served", f"{address} does not serve the certificate yet: {what}")
            return False
        self._seen_served = serving.leaf
        self.metrics.served.set(1)
        self._say("served", "")
        _log.info("certificate served", address=str(address))
        return True

    # --- what others want to know ---------------------------------------------------------------

    def not_live(self) -> list[str]:
        """Why the process should be restarted; empty if it should not."""
        silent = self._steady() - self._beat
        return [f"the agent hangs: silent for {silent:.0f} s"] if silent > STUCK_SECONDS else []

    def not_ready(self) -> list[str]:
        """Why no server should start yet; empty if it finds a pair that clients accept."""
        serving = self._delivered
        if serving is None:
            return list(filter(None, map(self._said.get, _IN_THE_WAY))) or ["there is no pair yet"]
        if not is_valid(serving.leaf, self._wall()):
            return ["the pair is not valid at present"]
        return []

    # --- words ----------------------------------------------------------------------------------

    def _say(self, topic: str, text: str) -> None:
        if text and self._said.get(topic) != text:
            (_log.info if topic == "waiting" else _log.warning)(text)
        self._said[topic] = text


def words(failure: ClusterFailure | OSError) -> str:
    """What has failed; a missing permission in the words of a Role."""
    if isinstance(failure, Denied) and not failure.is_terminating:
        return f"{failure.explanation}: {failure}"
    return str(failure)


def kind_of(failure: ClusterFailure | OSError) -> str:
    """The kind of a failure, as metrics name it: OSErrors are one kind, whatever their number."""
    return type(failure).__name__ if isinstance(failure, ClusterFailure) else OSError.__name__


def _expiry(holdings: Holdings, step: Step) -> str:
    serving = holdings.serving
    is_leaf = step is Step.ISSUE_LEAF and serving is not None
    certificate = serving.leaf if is_leaf and serving else holdings.authorities[0]
    return certificate.not_valid_after_utc.isoformat()
