"""What people and scripts get to know of certificates: facts, and what is wrong with them. Pure."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from fractions import Fraction
from typing import Any, Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes

from certs.handshake import Shown
from certs.holdings import Holdings, is_valid, names_of
from certs.injection import Injected, Target
from rules.times import format_time

ALARM: Final = Fraction(1, 4)
"""The part of a life that must be left. A third is left at the time of renewal: whoever comes down
to a quarter has not been renewed. The alerts of operations are the same."""


class Report:
    """Facts and problems, in the order in which they were found."""

    def __init__(self, now: datetime) -> None:
        self._now = now
        self._certificates: list[dict[str, Any]] = []
        self._bundles: list[dict[str, Any]] = []
        self.problems: list[str] = []

    def add_holdings(self, holdings: Holdings, names: Sequence[str] = ()) -> None:
        """Judge a store; ``names`` are those that its certificate must have."""
        self.problems += holdings.flaws
        self.problems += _lacks(holdings)
        for position, authority in enumerate(holdings.authorities):
            # An older CA is on its way out: it may run down.
            self._add(authority, "CA" if position == 0 else "older CA", may_end=position > 0)
        if holdings.serving is not None:
            self._add(holdings.serving.leaf, "serving certificate")
            self._require(holdings.serving.leaf, names)

    def add_shown(self, shown: Shown, names: Sequence[str] = ()) -> None:
        """Judge what a server shows."""
        self._add(shown.leaf, "served certificate")
        self._require(shown.leaf, names)
        if shown.problem:
            self.problems.append(f"served certificate: is not accepted: {shown.problem}")

    def compare(self, holdings: Holdings, shown: Shown) -> None:
        """Judge whether what a server shows is what a store holds."""
        if holdings.serving is not None and holdings.serving.leaf != shown.leaf:
            self.problems.append("served certificate: is not that of the store")

    def add_bundles(self, injected: Iterable[Injected], holdings: Holdings | None) -> None:
        """Judge configurations, against a store if there is one."""
        for each in injected:
            for webhook, authorities in each.bundles.items():
                agrees = holdings is None or set(authorities) == set(holdings.authorities)
                place = f"{each.target}, webhook {webhook}"
                if not authorities:
                    self.problems.append(f"{place}: caBundle is empty or unreadable")
                elif not agrees:
                    self.problems.append(f"{place}: caBundle does not hold the CAs of the store")
                self._bundles.append(
                    {
                        "configuration": str(each.target),
                        "webhook": webhook,
                        "fingerprints": list(map(fingerprint, authorities)),
                        "agrees": agrees and bool(authorities),
                    }
                )

    def add_missing(self, targets: Iterable[Target], injected: Iterable[Injected]) -> None:
        """Judge whether every configuration that was asked for exists."""
        found = {each.target for each in injected}
        self.problems += [f"{target}: does not exist" for target in targets if target not in found]

    def json(self) -> dict[str, Any]:
        """As JSON: ``now``, ``certificates``, ``caBundles`` and ``problems``."""
        return {
            "now": format_time(self._now),
            "certificates": self._certificates,
            "caBundles": self._bundles,
            "problems": self.problems,
        }

    def lines(self) -> Iterator[str]:
        """As text, for people."""
        for each in self._certificates:
            left = f"{each['daysLeft']:.1f} days ({each['lifeLeft']:.0%}) left"
            yield f"{each['role']}: valid until {each['notAfter']}, {left}"
            if each["names"]:
                yield f"  names: {', '.join(each['names'])}"
            yield f"  sha256: {each['fingerprint']}"
        for each in self._bundles:
            verdict = "agrees" if each["agrees"] else "does not agree"
            count = len(each["fingerprints"])
            yield f"caBundle of {each['configuration']}, webhook {each['webhook']}: {verdict}"
            yield f"  {count} CA{'' if count == 1 else 's'}"
        for problem in self.problems:
            yield f"problem: {problem}"
        if not self.problems:
            yield "all is well"

    def _add(self, certificate: x509.Certificate, role: str, *, may_end: bool = False) -> None:
        begin, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
        left = max((end - self._now) / (end - begin), 0.0)
        self._certificates.append(
            {
                "role": role,
                "names": list(names_of(certificate)),
                "notBefore": format_time(begin),
                "notAfter": format_time(end),
                "daysLeft": round((end - self._now).total_seconds() / 86400, 2),
                "lifeLeft": round(left, 3),
                "fingerprint": fingerprint(certificate),
            }
        )
        if may_end:
            return
        if self._now >= end:
            self.problems.append(f"{role}: has expired")
        elif not is_valid(certificate, self._now):
            self.problems.append(f"{role}: is not valid yet")
        elif left < ALARM:
            self.problems.append(
                f"{role}: is about to expire: less than a quarter of its life left"
            )

    def _require(self, leaf: x509.Certificate, names: Sequence[str]) -> None:
        for name in sorted(set(names) - set(names_of(leaf))):
            self.problems.append(f"the certificate lacks the name {name}")


def fingerprint(certificate: x509.Certificate) -> str:
    """SHA-256 in hexadecimal, as ``openssl x509 -fingerprint`` has it but for the colons."""
    return certificate.fingerprint(hashes.SHA256()).hex()


def _lacks(holdings: Holdings) -> Iterator[str]:
    if holdings.newest is None:
        yield "there is no CA"
    if holdings.serving is None:
        yield "there is no usable serving certificate"
    elif holdings.issuer is None and holdings.authorities:
        yield "the serving certificate is signed by none of the CAs"
