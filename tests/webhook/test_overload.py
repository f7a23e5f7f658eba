"""More requests than the server can hold: some are refused at once, and nothing else happens."""

import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import pytest

from tests.webhook.reviews import encoded, heartbeat, review
from tests.webhook.running import Running, eventually, running
from tests.webhook.test_asking import RESPONDER, FakeCluster, by

_ROOM: Final = 8
_BURST: Final = 60
_SHED: Final = "usher_webhook_shed_total"
_IN_FLIGHT: Final = "usher_webhook_in_flight"


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    """A cluster that does not answer yet."""
    cluster = FakeCluster()
    cluster.answering.clear()
    yield cluster
    cluster.answering.set()


def ask(site: Running, number: int, padding: int = 0) -> int:
    """A review whose verdict depends on the cluster, by somebody whom nobody has asked about."""
    document = by(f"{RESPONDER}-{number}", heartbeat())
    return site.call(data=b" " * padding + encoded(document), target="/validate?timeout=30s").status


def test_a_burst_fills_the_room_and_no_more(tmp_path: Path, cluster: FakeCluster) -> None:
    with running(tmp_path, cluster=cluster, concurrency=_ROOM, timeout=30) as site:
        start = threading.Barrier(_BURST)

        def call(number: int) -> int:
            start.wait()
            return ask(site, number)

        with ThreadPoolExecutor(_BURST) as pool:
            answers = [pool.submit(call, number) for number in range(_BURST)]
            eventually(lambda: site.metric(_SHED) == _BURST - _ROOM)
            assert site.metric(_IN_FLIGHT) == _ROOM
            # Whoever needs no cluster is answered, and the server is no less ready.
            other = review("CREATE", {}, kind=("acme.io", "v1", "Widget"))
            assert site.call(other).status == 200
            assert site.health("/readyz").status == 200
            assert site.health("/livez").status == 200
            cluster.answering.set()
            statuses = Counter(answer.result() for answer in answers)
        assert statuses == {200: _ROOM, 500: _BURST - _ROOM}
        eventually(lambda: site.metric(_IN_FLIGHT) == 0)
        # What was refused may come again.
        assert ask(site, 0) == 200
        assert site.metric(_SHED) == _BURST - _ROOM


def test_large_requests_that_wait_are_bounded_together(
    tmp_path: Path, cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("webhook.bounds.MAX_PARSED", 100_000)
    with running(tmp_path, cluster=cluster, timeout=30) as site, ThreadPoolExecutor(2) as pool:
        waiting = []
        for number in range(2):  # the second one comes on top
            waiting.append(pool.submit(ask, site, number, 90_000))
            eventually(lambda number=number: site.metric(_IN_FLIGHT) == number + 1)
        assert ask(site, 2) == 500
        cluster.answering.set()
        assert [each.result() for each in waiting] == [200, 200]
        eventually(lambda: site.metric(_IN_FLIGHT) == 0)
        assert ask(site, 2, 90_000) == 200
        assert ask(site, 3, 90_000) == 200
