"""What a store holds, read and judged: CAs, the key of the newest, and the serving pair.

Pure. A store is four files, whether in a Secret (type ``kubernetes.io/tls``) or in a directory:

* ``ca.crt``: every CA that clients must trust, the newest first. Only that one signs.
* ``ca.key``: the key of the newest. Older ones have none: they are trusted, not used.
* ``tls.crt``, ``tls.key``: the serving certificate and its key, by the names that servers expect.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from certs.issue import CLOCK_SLACK, Authority, Pair

CA_CERTIFICATES: Final = "ca.crt"
CA_KEY: Final = "ca.key"
CERTIFICATE: Final = "tls.crt"
KEY: Final = "tls.key"

Files = Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class Serving:
    """A serving certificate that has its key."""

    pair: Pair
    leaf: x509.Certificate

    @property
    def names(self) -> tuple[str, ...]:
        """The DNS names and addresses that it is for."""
        return names_of(self.leaf)


@dataclass(frozen=True, slots=True)
class Holdings:
    """What is usable of the files of a store, and what is wrong with the rest."""

    authorities: tuple[x509.Certificate, ...] = ()
    """The newest first."""
    key: ec.EllipticCurvePrivateKey | None = None
    """That of the newest CA."""
    serving: Serving | None = None
    flaws: tuple[str, ...] = ()
    """What can't be used, and why; files that are absent or empty are no flaw."""

    @property
    def newest(self) -> x509.Certificate | None:
        """The CA that signs."""
        return self.authorities[0] if self.authorities else None

    @property
    def signer(self) -> Authority | None:
        """The newest CA, if there is its key."""
        if self.newest is None or self.key is None:
            return None
        return Authority(self.newest, self.key)

    @property
    def issuer(self) -> x509.Certificate | None:
        """The CA among them that has signed the serving certificate."""
        leaf = self.serving.leaf if self.serving else None
        signers = (ca for ca in self.authorities if leaf is not None and has_signed(ca, leaf))
        return next(signers, None)

    def serves(self, now: datetime) -> bool:
        """Whether a client that trusts these CAs, and whose clock shows ``now``, is content."""
        issuer, serving = self.issuer, self.serving
        if issuer is None or serving is None:
            return False
        return is_valid(issuer, now) and is_valid(serving.leaf, now)


def decode(files: Files) -> Holdings:
    """Read the files of a store. Never raises: what is broken becomes a flaw."""
    flaws: list[str] = []
    authorities: tuple[x509.Certificate, ...] = ()
    try:
        authorities = bundle_certificates(files.get(CA_CERTIFICATES, b""))
    except ValueError:
        flaws.append(f"{CA_CERTIFICATES}: must be certificates in PEM")
    key = _key(files, CA_KEY, flaws)
    if key is not None and authorities and not _fits(key, authorities[0]):
        flaws.append(f"{CA_KEY}: is not the key of the first certificate in {CA_CERTIFICATES}")
        key = None
    return Holdings(authorities, key, _serving(files, flaws), tuple(flaws))


def encode(holdings: Holdings) -> dict[str, bytes]:
    """The files of a store that holds ``holdings``; empty where there is nothing."""
    signer, serving = holdings.signer, holdings.serving
    return {
        CA_CERTIFICATES: bundle(holdings.authorities),
        CA_KEY: signer.pair.key if signer else b"",
        CERTIFICATE: serving.pair.certificate if serving else b"",
        KEY: serving.pair.key if serving else b"",
    }


def bundle(authorities: Iterable[x509.Certificate]) -> bytes:
    """Certificates in PEM, one after the other, as ``caBundle`` and trust stores have them."""
    return b"".join(ca.public_bytes(serialization.Encoding.PEM) for ca in authorities)


def bundle_certificates(content: bytes) -> tuple[x509.Certificate, ...]:
    """The certificates of a bundle, none if it is empty. Raises ValueError for anything else."""
    return tuple(x509.load_pem_x509_certificates(content)) if content.strip() else ()


def issued_at(certificate: x509.Certificate) -> datetime:
    """When a certificate of ours was made: its validity begins earlier, for slow clocks."""
    return certificate.not_valid_before_utc + CLOCK_SLACK


def is_valid(certificate: x509.Certificate, now: datetime) -> bool:
    """Whether ``now`` lies within the validity."""
    return certificate.not_valid_before_utc <= now < certificate.not_valid_after_utc


def has_signed(authority: x509.Certificate, certificate: x509.Certificate) -> bool:
    """Whether ``authority`` has signed ``certificate``; all of our CAs have the same name."""
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def names_of(certificate: x509.Certificate) -> tuple[str, ...]:
    """The DNS names and IP addresses of a certificate."""
    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return ()
    addresses = found.get_values_for_type(x509.IPAddress)
    return (*found.get_values_for_type(x509.DNSName), *map(str, addresses))


def _serving(files: Files, flaws: list[str]) -> Serving | None:
    content = files.get(CERTIFICATE, b"")
    key = _key(files, KEY, flaws)
    if not content.strip():
        return None
    try:
        leaf = x509.load_pem_x509_certificate(content)
    except ValueError:
        flaws.append(f"{CERTIFICATE}: must be a certificate in PEM")
        return None
    if key is None or not _fits(key, leaf):
        flaws.append(f"{KEY}: is not the key of the certificate in {CERTIFICATE}")
        return None
    return Serving(Pair(content, files[KEY]), leaf)


def _key(files: Files, name: str, flaws: list[str]) -> ec.EllipticCurvePrivateKey | None:
    content = files.get(name, b"")
    if not content.strip():
        return None
    try:
        key = serialization.load_pem_private_key(content, None)
    except (ValueError, TypeError):  # TypeError: it is encrypted
        key = None
    if isinstance(key, ec.EllipticCurvePrivateKey):
        return key
    flaws.append(f"{name}: must be an ECDSA key in PEM, not encrypted")
    return None


def _fits(key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate) -> bool:
    return key.public_key() == certificate.public_key()
