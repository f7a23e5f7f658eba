"""What a store holds, an instant → the next step."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from fractions import Fraction
from typing import Final

import pytest
from cryptography import x509

from certs.holdings import CA_KEY, CERTIFICATE, KEY, Holdings, decode, encode, issued_at
from certs.issue import AUTHORITY_LIFETIME, CLOCK_SLACK, LEAF_LIFETIME
from certs.renewal import RENEW_AT, WAIT, Lives, Step, after, decide, renewal_time
from tests.certs.world import NAMES, START

_LONG: Final = timedelta(days=1)
_DAY: Final = timedelta(days=1)


def _at(days: float) -> datetime:
    return START + days * _DAY


def _take(holdings: Holdings, now: datetime, *steps: Step) -> Holdings:
    for step in steps:
        holdings = after(step, holdings, now, names=NAMES)
    return holdings


_FRESH: Final = _take(Holdings(), START, Step.ADD_AUTHORITY, Step.ISSUE_LEAF)
_ROTATING: Final = _take(_FRESH, _at(244), Step.ISSUE_LEAF, Step.ADD_AUTHORITY)
"""The leaf is of the old CA."""
_ROTATED: Final = _take(_ROTATING, _at(244), Step.ISSUE_LEAF)


def _without(holdings: Holdings, name: str, content: bytes = b"") -> Holdings:
    return decode({**encode(holdings), name: content})


@dataclass(frozen=True)
class _Case:
    id: str
    holdings: Holdings
    now: datetime
    step: Step
    reason: str = ""
    agreed_for: timedelta | None = _LONG
    names: tuple[str, ...] = NAMES


_CASES: Final = [
    _Case("nothing yet", Holdings(), START, Step.ADD_AUTHORITY, "there is no CA"),
    _Case("no CA, foreign bundles", Holdings(), START, Step.ADD_AUTHORITY, agreed_for=None),
    _Case("settled", _FRESH, START, Step.NONE),
    _Case("emptied bundle", _FRESH, START, Step.WRITE_BUNDLES, agreed_for=None),
    _Case("bundles before renewal", _FRESH, _at(250), Step.WRITE_BUNDLES, agreed_for=None),
    _Case("leaf just below 2/3", _FRESH, _at(59.9), Step.NONE),
    _Case("leaf at 2/3", _FRESH, _at(60), Step.ISSUE_LEAF, "two thirds"),
    _Case("leaf expired", _FRESH, _at(90), Step.ISSUE_LEAF, "has expired"),
    _Case("CA just below 2/3", _take(_FRESH, _at(243), Step.ISSUE_LEAF), _at(243.3), Step.NONE),
    _Case("CA at 2/3", _FRESH, _at(243.4), Step.ADD_AUTHORITY, "two thirds"),
    _Case("CA expired", _FRESH, _at(365), Step.ADD_AUTHORITY, "has expired"),
    _Case("new CA not injected", _ROTATING, _at(244), Step.WRITE_BUNDLES, agreed_for=None),
    _Case("waiting", _ROTATING, _at(244), Step.NONE, "get to know", WAIT - timedelta(seconds=1)),
    _Case("waited", _ROTATING, _at(244), Step.ISSUE_LEAF, "not signed by the newest", WAIT),
    _Case("rotated", _ROTATED, _at(244), Step.NONE),
    _Case("old CA still needed", _ROTATED, _at(244 + 89.9), Step.ISSUE_LEAF),
    _Case(
        "old CA done",
        _take(_ROTATED, _at(320), Step.ISSUE_LEAF),
        _at(244 + 90),
        Step.DROP_AUTHORITIES,
    ),
    _Case("CA key lost", _without(_FRESH, CA_KEY), START, Step.ADD_AUTHORITY, "no usable key"),
    _Case(
        "CA key of another",
        _without(_FRESH, CA_KEY, encode(_ROTATED)[CA_KEY]),
        START,
        Step.ADD_AUTHORITY,
    ),
    _Case("pair lost", _without(_FRESH, KEY), START, Step.ISSUE_LEAF, agreed_for=timedelta()),
    _Case(
        "pair mismatched",
        _without(_FRESH, KEY, encode(_ROTATED)[KEY]),
        START,
        Step.ISSUE_LEAF,
        "no usable serving",
    ),
    _Case(
        "pair broken in a rotation",
        _without(_ROTATING, CERTIFICATE, b"x"),
        _at(244),
        Step.NONE,
        "get to know",
        timedelta(),
    ),
    _Case("pair dead in a rotation", _ROTATING, _at(340), Step.ISSUE_LEAF, "expired", timedelta()),
    _Case("issued by a clock that was ahead", _FRESH, START - 2 * CLOCK_SLACK, Step.ADD_AUTHORITY),
    _Case(
        "leaf alone from the future",
        replace(_FRESH, serving=_take(_FRESH, _at(0.1), Step.ISSUE_LEAF).serving),
        START,
        Step.ISSUE_LEAF,
        "clock that is ahead",
    ),
    _Case("clock an hour behind", _FRESH, START - CLOCK_SLACK, Step.NONE),
    _Case("another name", _FRESH, START, Step.ISSUE_LEAF, "lacks the names b", names=("b",)),
    _Case("fewer names", _FRESH, START, Step.NONE, names=NAMES[:1]),
]


@pytest.mark.parametrize("case", _CASES, ids=lambda case: case.id)
def test_the_next_step(case: _Case) -> None:
    decision = decide(
        case.holdings,
        case.now,
        names=case.names,
        agreed_for=case.agreed_for,
    )
    assert decision.step is case.step
    assert case.reason in decision.reason
    assert decision.is_settled == (case.step is Step.NONE and not case.reason)


def test_the_numbers() -> None:
    assert (timedelta(days=365), timedelta(days=90)) == (AUTHORITY_LIFETIME, LEAF_LIFETIME)
    assert (timedelta(hours=1), timedelta(minutes=2)) == (CLOCK_SLACK, WAIT)
    assert Fraction(2, 3) == RENEW_AT
    assert Lives() == Lives(AUTHORITY_LIFETIME, LEAF_LIFETIME, WAIT)
    assert _FRESH.serving is not None
    assert renewal_time(_FRESH.serving.leaf) == _at(60)
    assert issued_at(_FRESH.serving.leaf) == START


def test_a_new_authority_stands_beside_the_old_one_and_alone_has_a_key() -> None:
    new, old = _ROTATING.authorities
    assert (old,) == _FRESH.authorities
    assert _ROTATING.signer is not None
    assert _ROTATING.signer.certificate == new
    assert _ROTATING.issuer == old
    assert _ROTATED.issuer == new


def test_an_expired_authority_is_replaced() -> None:
    (only,) = _take(_FRESH, _at(365), Step.ADD_AUTHORITY).authorities
    assert only not in _FRESH.authorities


def test_what_clients_trust_stays_trusted_when_the_store_is_lost() -> None:
    trusted = [*_FRESH.authorities, *_FRESH.authorities, _foreign()]
    holdings = after(Step.ADD_AUTHORITY, Holdings(), START, names=NAMES, trusted=trusted)
    assert holdings.authorities[1:] == _FRESH.authorities


def _foreign() -> x509.Certificate:
    """A certificate that is no CA of ours."""
    assert _FRESH.serving is not None
    return _FRESH.serving.leaf


def test_the_old_authority_goes_when_its_last_leaf_has_expired() -> None:
    late = _take(_ROTATED, _at(334), Step.DROP_AUTHORITIES)
    assert late.authorities == _ROTATED.authorities[:1]
    assert _take(_ROTATED, _at(333), Step.DROP_AUTHORITIES) == _ROTATED


@pytest.mark.parametrize("make", [lambda: _FRESH, lambda: _ROTATING, lambda: _ROTATED])
def test_files_hold_everything(make: Callable[[], Holdings]) -> None:
    held = decode(encode(make()))
    assert (held.authorities, held.serving, held.flaws) == (
        make().authorities,
        make().serving,
        (),
    )
    assert held.signer is not None


@pytest.mark.parametrize("content", [b"x", b"-----BEGIN", b"\xff\x00"])
@pytest.mark.parametrize("name", ["ca.crt", "ca.key", "tls.crt", "tls.key"])
def test_broken_files_are_flaws(name: str, content: bytes) -> None:
    held = _without(_FRESH, name, content)
    assert any(flaw.startswith(name) for flaw in held.flaws)
