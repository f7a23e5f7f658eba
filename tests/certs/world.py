"""A cluster in memory, in which agents are run one await at a time, in whatever order."""

import base64
import itertools
from collections.abc import Coroutine, Generator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from cryptography import x509

from certs.agent import Agent, Settings
from certs.holdings import CERTIFICATE, Files, bundle, decode, has_signed, is_valid
from certs.injection import Injected, Target
from certs.renewal import Decision, Step
from certs.store import Stored
from cluster.failures import Conflict
from cluster.resources import MUTATING_CONFIGURATIONS, VALIDATING_CONFIGURATIONS

START: Final = datetime(2026, 7, 1, 12, tzinfo=UTC)
NAMES: Final = ("usher.usher-system.svc", "localhost")
TARGETS: Final = (
    Target(VALIDATING_CONFIGURATIONS, "usher"),
    Target(MUTATING_CONFIGURATIONS, "usher"),
)
_NEARLY_OVER: Final = timedelta(hours=5)
"""Who keeps a leaf to its last hours, and has a clock two hours off, may be too late."""


class _Pause:
    def __await__(self) -> Generator[None, None, None]:
        yield


class World:
    """The truth: a Secret, bundles, what servers show, and the time."""

    def __init__(self) -> None:
        self.now = START
        self.steady = 0.0
        self._versions = itertools.count(1)
        self.files: Files = {}
        self.version = 0
        """0: there is no Secret."""
        self.bundles: list[tuple[x509.Certificate, ...] | None] = [(), ()]
        """None: somebody has emptied it."""
        self.bundle_versions = [next(self._versions) for _ in TARGETS]
        self.served: dict[int, Files] = {}
        """Replica → its pair."""
        self.authorities_created = 0

    def advance(self, span: timedelta) -> None:
        self.now += span
        self.steady += span.total_seconds()

    def check(self) -> None:
        """A client that trusts any of the bundles gets on with every server."""
        for files in self.served.values():
            leaf = x509.load_pem_x509_certificate(files[CERTIFICATE])
            if leaf.not_valid_after_utc - self.now < _NEARLY_OVER:
                continue
            for trusted in self.bundles:
                assert trusted is None or any(has_signed(ca, leaf) for ca in trusted)

    def check_times(self) -> None:
        """No client finds anything expired, or not valid yet."""
        for files in self.served.values():
            leaf = x509.load_pem_x509_certificate(files[CERTIFICATE])
            assert is_valid(leaf, self.now)
            for trusted in self.bundles:
                signers = [ca for ca in trusted or () if has_signed(ca, leaf)]
                assert any(is_valid(ca, self.now) for ca in signers)

    # --- what others do -------------------------------------------------------------------------

    def overwrite(self, files: Files) -> None:
        self.files, self.version = files, next(self._versions)

    def delete(self) -> None:
        self.files, self.version = {}, 0

    def empty(self, index: int) -> None:
        self.bundles[index] = None
        self.bundle_versions[index] = next(self._versions)

    # --- as a store -----------------------------------------------------------------------------

    async def read(self) -> Stored:
        await _Pause()
        return Stored(self.files, self.version)

    async def write(self, read: Stored, files: Files) -> None:
        await _Pause()
        if read.version != self.version:
            raise Conflict("stale")
        before, after = decode(self.files).authorities, decode(files).authorities
        self.authorities_created += len(set(after[:1]) - set(before))
        self.overwrite(files)
        self.check()
        await _Pause()  # whoever dies here does not know that it is written


class Bundles:
    """As :class:`certs.injection.Bundles`."""

    def __init__(self, world: World) -> None:
        self._world = world

    async def read(self) -> list[Injected]:
        found = []
        for index, target in enumerate(TARGETS):
            await _Pause()
            content = base64.b64encode(bundle(self._world.bundles[index] or ())).decode()
            document = {
                "metadata": {"resourceVersion": self._world.bundle_versions[index]},
                "webhooks": [{"name": "a", "clientConfig": {"caBundle": content}}],
            }
            found.append(Injected(target, document))
        return found

    async def write(self, read: Injected, authorities: tuple[x509.Certificate, ...]) -> None:
        await _Pause()
        index = TARGETS.index(read.target)
        if read.document["metadata"]["resourceVersion"] != self._world.bundle_versions[index]:
            raise Conflict("stale")
        self._world.bundles[index] = authorities
        self._world.bundle_versions[index] = next(self._world._versions)
        self._world.check()
        await _Pause()


class _Output:
    """As :class:`certs.store.DirectoryStore`, for one replica."""

    def __init__(self, world: World, index: int) -> None:
        self._world = world
        self._index = index

    def holds(self, files: Files) -> bool:
        return self._world.served.get(self._index) == files

    def put(self, files: Files) -> None:
        self._world.served[self._index] = files
        self._world.check()


class Replica:
    """An agent and its clock. It may stop at every await, or die there."""

    def __init__(self, world: World, index: int, settings: Settings | None = None) -> None:
        self._world = world
        self._index = index
        self._settings = settings or Settings(NAMES)
        self.offset = timedelta()
        """How far its clock is ahead."""
        self._running: Coroutine[Any, Any, Decision] | None = None
        self.crash()

    def crash(self) -> None:
        """Die, whatever it is doing, and start anew; what is served stays."""
        if self._running is not None:
            self._running.close()
        self._running = None
        stand_ins: tuple[Any, ...] = (self._world, Bundles(self._world))
        output: Any = _Output(self._world, self._index)
        self.agent = Agent(
            *stand_ins,
            self._settings,
            lambda: self._world.now + self.offset,
            output=output,
            steady=lambda: self._world.steady,
        )

    def step(self) -> Decision | None:
        """Go on to the next await; what the tick has done, if it is over."""
        if self._running is None:
            self._running = self.agent.tick()
        try:
            self._running.send(None)
        except StopIteration as end:
            self._running = None
            decision: Decision = end.value
            return decision
        except Conflict:
            self._running = None
        return None

    def force(self, step: Step) -> None:
        """Take ``step``, as ``usher certs rotate`` does."""
        forcing = self.agent.force(step)
        with suppress(StopIteration):
            while True:
                forcing.send(None)

    def finish(self) -> Decision | None:
        """Go on to the end of the tick."""
        while True:
            decision = self.step()
            if self._running is None:
                return decision


def settle(world: World, *replicas: Replica) -> None:
    """Let the replicas work, in turn, until none has anything to do."""
    for _ in range(200):
        done = [replica.finish() for replica in replicas]
        if all(decision is not None and decision.is_settled for decision in done):
            return
        world.advance(timedelta(seconds=5))
    raise AssertionError("the agents do not come to rest")
