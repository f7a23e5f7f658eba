"""Readiness asks the own port, as an API server would."""

import asyncio
import socket
from collections.abc import Iterator
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509

from certs.issue import Pair, issue_authority, issue_serving
from tests.webhook.reviews import creation
from tests.webhook.running import (
    HOST,
    NAMES,
    Running,
    eventually,
    running,
    swap,
    today,
    write_pair,
)
from webhook import health
from webhook.health import SelfCheck


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[bytes]]:
    """The certificates that handshakes have shown."""
    seen: list[bytes] = []
    shown = health._shown

    async def spy(host: str, port: int) -> bytes:
        seen.append(await shown(host, port))
        return seen[-1]

    monkeypatch.setattr(health, "_shown", spy)
    return seen


class Loaded:
    """What a server believes to hand out."""

    def __init__(self, content: bytes = b"another") -> None:
        self.content = content


def check_of(address: tuple[str, int], loaded: Any = None) -> SelfCheck:
    return SelfCheck(loaded or Loaded(), address)


async def test_another_certificate_than_the_loaded_one_is_noticed(
    site: Running, looks: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "REFRESH_SECONDS", 0)
    loaded = Loaded()
    check = check_of((HOST, site.port), loaded)
    assert await check.look() == [
        "the own port shows another certificate than the one that was loaded"
    ]
    loaded.content = looks[0]
    assert await check.look() == []


async def test_a_port_that_is_silent_or_closed_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(health, "REFRESH_SECONDS", 0)
    monkeypatch.setattr(health, "HANDSHAKE_SECONDS", 0.2)
    with socket.create_server((HOST, 0)) as silent:
        check = check_of(silent.getsockname())
        (reason,) = await check.look()
        assert reason.startswith("the own port does not answer a TLS handshake: nothing in ")
    (reason,) = await check.look()
    assert "Connect call failed" in reason


async def test_many_that_ask_share_one_handshake(site: Running, looks: list[bytes]) -> None:
    check = check_of((HOST, site.port))
    found = await asyncio.gather(*(check.look() for _ in range(20)))
    assert len(looks) == 1
    assert found == [await check.look()] * 20
    assert len(looks) == 1


async def test_who_hangs_up_leaves_the_others_their_answer(
    site: Running, looks: list[bytes]
) -> None:
    check = check_of((HOST, site.port))
    first, second = asyncio.create_task(check.look()), asyncio.create_task(check.look())
    await asyncio.sleep(0)
    first.cancel()
    assert await second == await check.look()
    assert len(looks) == 1


def test_a_server_stays_ready_while_certificates_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("webhook.app.REFRESH_SECONDS", 0.02)
    monkeypatch.setattr(health, "REFRESH_SECONDS", 0)
    authority = issue_authority(today())
    answers = set()
    with running(tmp_path, authority=authority, clock=today) as site:

        def is_loaded(pair: Pair) -> bool:
            answers.add(site.health("/readyz").body)
            leaf = x509.load_pem_x509_certificate(pair.certificate)
            name = "usher_webhook_certificate_not_after_timestamp_seconds"
            return site.metric(name) == leaf.not_valid_after_utc.timestamp()

        for hours in range(1, 6):
            pair = issue_serving(authority, NAMES, today(), hours * _HOUR)
            write_pair(tmp_path, pair)
            eventually(partial(is_loaded, pair))
        answers.add(site.health("/readyz").body)
    assert answers == {b"ok\n"}


_HOUR = timedelta(hours=1)


@pytest.mark.parametrize("hours", [-2, 2])
def test_a_clock_that_is_two_hours_off_is_recovered_from(tmp_path: Path, hours: int) -> None:
    offset = hours * _HOUR

    def wall() -> datetime:
        return today() + offset

    authority = issue_authority(today())
    # Valid for two hours: from one hour ago.
    write_pair(tmp_path, issue_serving(authority, NAMES, today(), _HOUR))
    with running(tmp_path, authority=authority, ready=503, wall=wall) as site:
        reason = b"has expired at" if hours > 0 else b"is not valid before"
        assert reason in site.health("/readyz").body
        # Verdicts are given all the same: it is for the caller to judge the certificate.
        assert site.call(creation()).status == 200
        offset = timedelta()
        assert eventually(lambda: site.health("/readyz").status == 200)


def test_a_certificate_from_the_future_waits_for_its_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("webhook.app.REFRESH_SECONDS", 0.02)
    offset = timedelta()

    def wall() -> datetime:
        return today() + offset

    authority = issue_authority(today())
    name = "usher_webhook_certificate_not_before_timestamp_seconds"
    failures = "usher_webhook_certificate_reload_failures_total"
    swap(tmp_path, issue_serving(authority, NAMES, today()))
    with running(tmp_path, authority=authority, clock=wall, wall=wall) as site:
        first = site.metric(name)
        swap(tmp_path, issue_serving(authority, NAMES, today() + 2 * _HOUR))
        eventually(lambda: site.metric(failures) == 1)
        assert (site.metric(name), site.health("/readyz").status) == (first, 200)
        offset = 2 * _HOUR
        assert eventually(lambda: site.metric(name) > first)
        assert site.metric(failures) == 1
        assert site.health("/readyz").status == 200
