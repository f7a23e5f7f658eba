"""Renewal: what a store holds and an instant in, the next step out. Pure.

The order of a rotation, of which each step is one write:

1. A new CA joins the old ones in the store.
2. Every caBundle gets all CAs of the store (:mod:`certs.injection`), and is read back.
3. The API servers have time to hear of it (:attr:`Lives.wait`).
4. A new leaf, signed by the new CA, takes the place of the old one.
5. The old CA goes when the last leaf that it can have signed has expired.

Nothing but the store is remembered: whoever looks, at whatever instant, sees where a rotation
stands. So a crash between two steps costs nothing, and any replica may go on where another stopped.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import Enum, auto
from fractions import Fraction
from typing import Final

from cryptography import x509

from certs.holdings import Holdings, Serving, has_signed, is_valid, issued_at
from certs.issue import (
    AUTHORITY_LIFETIME,
    AUTHORITY_SUBJECT,
    LEAF_LIFETIME,
    issue_authority,
    issue_serving,
)

RENEW_AT: Final = Fraction(2, 3)
"""The part of a life after which its successor is made: what is left is time for repairs."""
WAIT: Final = timedelta(minutes=2)
"""From a CA's arrival in every caBundle to the first leaf of it. API servers hear of a changed
configuration by a watch, within seconds; one whose watch hangs reconnects within this time."""


@dataclass(frozen=True, slots=True)
class Lives:
    """Spans of a rotation."""

    authority: timedelta = AUTHORITY_LIFETIME
    leaf: timedelta = LEAF_LIFETIME
    wait: timedelta = WAIT


DEFAULT_LIVES: Final = Lives()


class Step(Enum):
    """What to write: the bundles, or else the store."""

    NONE = auto()
    WRITE_BUNDLES = auto()
    ADD_AUTHORITY = auto()
    ISSUE_LEAF = auto()
    DROP_AUTHORITIES = auto()


@dataclass(frozen=True, slots=True)
class Decision:
    """The next step, and why; or why nothing can be done yet."""

    step: Step
    reason: str = ""

    @property
    def is_settled(self) -> bool:
        """Whether all is as it should be: no step is due, and none is being waited for."""
        return self.step is Step.NONE and not self.reason


def decide(
    holdings: Holdings,
    now: datetime,
    *,
    names: Sequence[str],
    agreed_for: timedelta | None,
    lives: Lives = DEFAULT_LIVES,
) -> Decision:
    """The next step of a store that holds ``holdings``.

    ``now`` is wall-clock time; ``agreed_for`` is for how long, by a steady clock, every caBundle
    has been seen to hold the CAs of the store with this newest one, and None if one does not.
    """
    if holdings.authorities and agreed_for is None:
        return Decision(Step.WRITE_BUNDLES, "a caBundle does not hold the CAs of the store")
    if reason := _authority_lacks(holdings, now):
        return Decision(Step.ADD_AUTHORITY, reason)
    if reason := _leaf_lacks(holdings, now, names):
        if _may_wait(holdings, now) and (agreed_for or timedelta()) < lives.wait:
            return Decision(Step.NONE, f"{reason}; API servers get to know the newest CA")
        return Decision(Step.ISSUE_LEAF, reason)
    if any(_retired(holdings, now, lives)):
        return Decision(Step.DROP_AUTHORITIES, "the last certificate of an older CA has expired")
    return Decision(Step.NONE)


def after(
    step: Step,
    holdings: Holdings,
    now: datetime,
    *,
    names: Sequence[str],
    lives: Lives = DEFAULT_LIVES,
    trusted: Iterable[x509.Certificate] = (),
) -> Holdings:
    """What the store is to hold after ``step``. Keys are random; everything else is given.

    ``trusted`` are the CAs in caBundles: where the store has lost its own, these stay trusted,
    since servers may still show what they signed.
    """
    if step is Step.ADD_AUTHORITY:
        new = issue_authority(now, lives.authority)
        old = dict.fromkeys(holdings.authorities or filter(_is_ours, trusted))
        kept = (ca for ca in old if now < ca.not_valid_after_utc)
        return replace(holdings, authorities=(new.certificate, *kept), key=new.key)
    if step is Step.ISSUE_LEAF and (signer := holdings.signer) is not None:
        pair = issue_serving(signer, names, now, lives.leaf)
        leaf = x509.load_pem_x509_certificate(pair.certificate)
        return replace(holdings, serving=Serving(pair, leaf))
    if step is Step.DROP_AUTHORITIES:
        retired = set(_retired(holdings, now, lives))
        kept = (ca for ca in holdings.authorities if ca not in retired)
        return replace(holdings, authorities=tuple(kept))
    return holdings


def renewal_time(certificate: x509.Certificate) -> datetime:
    """When the successor of a certificate is to be made."""
    issued = issued_at(certificate)
    return issued + (certificate.not_valid_after_utc - issued) * float(RENEW_AT)


def _authority_lacks(holdings: Holdings, now: datetime) -> str:
    """Why a new CA is needed; "" if none is."""
    newest = holdings.newest
    if newest is None:
        return "there is no CA"
    if holdings.key is None:
        return "the CA has no usable key"
    if now >= newest.not_valid_after_utc:
        return "the CA has expired"
    if now < newest.not_valid_before_utc:
        return "the CA is not valid yet: it was issued by a clock that is ahead"
    if now >= renewal_time(newest):
        return "two thirds of the CA's life are over"
    return ""


def _leaf_lacks(holdings: Holdings, now: datetime, names: Sequence[str]) -> str:
    """Why a new leaf is needed; "" if none is."""
    serving, newest = holdings.serving, holdings.newest
    if serving is None:
        return "there is no usable serving certificate"
    if not is_valid(serving.leaf, now):
        return "the serving certificate has expired, or was issued by a clock that is ahead"
    if newest is None or not has_signed(newest, serving.leaf):
        return "the serving certificate is not signed by the newest CA"
    if missing := sorted(set(names) - set(serving.names)):
        return f"the serving certificate lacks the names {', '.join(missing)}"
    if now >= renewal_time(serving.leaf):
        return "two thirds of the serving certificate's life are over"
    return ""


def _may_wait(holdings: Holdings, now: datetime) -> bool:
    """Whether servers may show a leaf that clients accept, so that a new one had better wait.

    That of the store may be broken while servers still have the last good one. It is either of the
    newest CA, which may sign again at once where it is the only one, or of an older one.
    """
    serving = holdings.serving
    is_dead = serving is not None and not is_valid(serving.leaf, now)
    return len(holdings.authorities) > 1 and not is_dead


def _retired(holdings: Holdings, now: datetime, lives: Lives) -> Iterator[x509.Certificate]:
    """CAs of which no valid leaf is left: they signed nothing after their successor was made."""
    for newer, older in zip(holdings.authorities, holdings.authorities[1:], strict=False):
        if older == holdings.issuer and now < older.not_valid_after_utc:
            continue
        if now >= min(issued_at(newer) + lives.leaf, older.not_valid_after_utc):
            yield older


def _is_ours(authority: x509.Certificate) -> bool:
    return authority.subject == authority.issuer == AUTHORITY_SUBJECT
