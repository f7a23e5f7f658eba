"""What an agent says of itself: to the kubelet, and to Prometheus."""

import asyncio
import socket
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import pytest
from cryptography import x509

from certs.agent import LOOK_SECONDS, STUCK_SECONDS, Agent, Settings
from certs.injection import Bundles
from certs.renewal import WAIT
from certs.store import DirectoryStore
from cluster.failures import Unreachable
from tests.certs.programs import Program
from tests.certs.world import NAMES, START, Replica, World, settle
from tests.controlplane.ports import free_port
from tests.e2e.waiting import eventually
from tests.patience import PATIENCE

_PREFIX: Final = "usher_certs_"


def value(agent: Agent, name: str, /, **labels: str) -> float | None:
    return agent.metrics.registry.get_sample_value(_PREFIX + name, labels)


def test_validity_is_told() -> None:
    world = World()
    replica = Replica(world, 0)
    settle(world, replica)
    for certificate, days in (("ca", 365), ("leaf", 90)):
        for which, instant in (
            ("before", START - timedelta(hours=1)),
            ("after", START + timedelta(days=days)),
        ):
            name = f"not_{which}_timestamp_seconds"
            shown = value(replica.agent, name, certificate=certificate)
            # Settling takes some seconds of the world's time.
            assert shown == pytest.approx(instant.timestamp(), abs=60)
    assert value(replica.agent, "authorities") == 1


def test_only_what_this_agent_issued_is_counted() -> None:
    world = World()
    one, other = Replica(world, 0), Replica(world, 1)
    settle(world, one, other)
    world.advance(timedelta(days=244))
    settle(world, one, other)
    for certificate in ("ca", "leaf"):
        counted = [
            value(each.agent, "issued_total", certificate=certificate) for each in (one, other)
        ]
        assert sum(filter(None, counted)) == 2
    assert value(one.agent, "authorities") == 2


def test_emptied_bundles_are_out_of_sync_until_they_are_written() -> None:
    world = World()
    replica = Replica(world, 0)
    settle(world, replica)
    kind, other = ("validatingwebhookconfigurations", "mutatingwebhookconfigurations")

    def in_sync(resource: str) -> float | None:
        return value(replica.agent, "ca_bundle_in_sync", resource=resource, name="usher")

    assert (in_sync(kind), in_sync(other)) == (1, 1)
    written = value(replica.agent, "ca_bundle_writes_total")
    assert written is not None
    world.empty(0)
    replica.finish()
    assert (in_sync(kind), in_sync(other)) == (0, 1)
    replica.finish()
    assert (in_sync(kind), in_sync(other)) == (1, 1)
    assert value(replica.agent, "ca_bundle_writes_total") == written + 1


def test_an_agent_is_ready_when_there_is_a_pair_that_clients_accept() -> None:
    world = World()
    replica = Replica(world, 0)
    assert replica.agent.not_ready() == ["there is no pair yet"]
    settle(world, replica)
    assert replica.agent.not_ready() == []
    world.advance(timedelta(days=400))  # everything was off
    assert replica.agent.not_ready() == ["the pair is not valid at present"]
    settle(world, replica)
    assert replica.agent.not_ready() == []


def test_a_pair_that_cannot_be_written_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise OSError("no room")

    monkeypatch.setattr("tests.certs.world._Output.put", fail)
    world = World()
    replica = Replica(world, 0)
    settle(world, replica)
    assert replica.agent.not_ready() == ["the pair can't be written: no room"]
    assert value(replica.agent, "failures_total", work="output", kind="OSError")


def test_with_nothing_left_but_bundles_a_pair_takes_little_more_than_the_wait() -> None:
    world = World()
    replicas = [Replica(world, index) for index in range(3)]
    settle(world, *replicas)
    world.delete()
    world.served.clear()
    for replica in replicas:
        replica.crash()
    began = world.steady
    while any(replica.agent.not_ready() for replica in replicas):
        for replica in replicas:
            replica.finish()
        world.advance(timedelta(seconds=LOOK_SECONDS))
    taken = timedelta(seconds=world.steady - began)
    # Startup probes must be more patient: see the chart, and docs/certificates.md.
    assert WAIT <= taken < WAIT + timedelta(minutes=1)


class _Unreachable:
    """A store that does not answer."""

    async def read(self) -> Any:
        raise Unreachable("nobody is there")


async def test_failures_are_counted_by_kind_and_named_while_there_is_no_pair() -> None:
    store: Any = _Unreachable()
    agent = Agent(store, Bundles(None, ()), Settings(NAMES), lambda: START)
    running = asyncio.create_task(agent.run())
    await asyncio.sleep(0)
    assert value(agent, "failures_total", work="look", kind="Unreachable") == 1
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running
    assert agent.not_ready() == ["nobody is there"]
    assert agent.not_live() == []


def test_an_agent_that_hangs_is_not_live(tmp_path: Path) -> None:
    present = 0.0
    store = DirectoryStore(tmp_path)
    agent = Agent(store, Bundles(None, ()), Settings(NAMES), lambda: START, steady=lambda: present)
    assert agent.not_live() == []
    present = STUCK_SECONDS + 1
    assert agent.not_live() == ["the agent hangs: silent for 301 s"]


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Callable[..., Program]]:
    programs: list[Program] = []

    def start(*flags: str) -> Program:
        place = ("--dir", str(tmp_path / "certs"), "--name", "localhost")
        programs.append(Program(tmp_path, "certs", "agent", *place, *flags))
        return programs[-1]

    yield start
    for program in programs:
        program.kill()


@pytest.mark.slow
def test_the_kubelet_and_prometheus_are_answered(
    run: Callable[..., Program], tmp_path: Path
) -> None:
    port = free_port()
    agent = run("--health-bind", "127.0.0.1", "--health-port", str(port))
    eventually(lambda: _get(port, "/readyz") == (200, "ok\n"), "the pair is there")
    leaf = x509.load_pem_x509_certificate((tmp_path / "certs" / "tls.crt").read_bytes())
    assert leaf.not_valid_after_utc > datetime.now(UTC)
    assert _get(port, "/livez") == (200, "ok\n")
    status, text = _get(port, "/metrics")
    assert status == 200
    shown = leaf.not_valid_after_utc.timestamp()
    name = 'usher_certs_not_after_timestamp_seconds{certificate="leaf"} '
    (line,) = (line for line in text.splitlines() if line.startswith(name))
    assert float(line.removeprefix(name)) == shown
    second = run("--health-bind", "127.0.0.1", "--health-port", str(port))
    assert "status 2" in eventually(second.status, "the port is taken")
    agent.terminate()
    assert "status 0" in eventually(agent.status, "it ends")


def _get(port: int, path: str) -> tuple[int, str]:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as connection:
            connection.sendall(f"GET {path} HTTP/1.0\r\nHost: x\r\n\r\n".encode())
            with connection.makefile("rb") as answer:
                head, _, body = answer.read().partition(b"\r\n\r\n")
    except OSError:
        return 0, ""
    return int(head.split()[1]), body.decode()
