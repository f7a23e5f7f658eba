"""Issuing: names and an instant in, a CA and a serving certificate out. No files, no clock.

Requirements: ECDSA P-256, random serials, a short constant common name (a Service's name can exceed
the 64 characters that X.509 allows there), names as subjectAltName, and every extension that strict
verifiers (Go, OpenSSL with ``X509_V_FLAG_X509_STRICT``) ask for.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from ipaddress import ip_address
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

AUTHORITY_LIFETIME: Final = timedelta(days=365)
LEAF_LIFETIME: Final = timedelta(days=90)
CLOCK_SLACK: Final = timedelta(hours=1)
"""Validity begins so long before the issuing: the clocks of a cluster differ."""
AUTHORITY_SUBJECT: Final = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "usher-ca")])
"""The name of every CA; key identifiers tell them apart."""
_LEAF_SUBJECT: Final = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "usher-webhook")])


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate and its key, in PEM."""

    certificate: bytes
    key: bytes


@dataclass(frozen=True, slots=True)
class Authority:
    """A CA that can sign; ``pair`` is what to store and, without the key, to trust."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @property
    def pair(self) -> Pair:
        """The CA in PEM."""
        return _pair(self.certificate, self.key)


def issue_authority(now: datetime, lifetime: timedelta = AUTHORITY_LIFETIME) -> Authority:
    """A new CA, valid for ``lifetime`` from ``now``."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = AUTHORITY_SUBJECT
    builder = _builder(name, name, key, now, now + lifetime)
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    certificate = (
        builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .add_extension(identifier, critical=False)
        .add_extension(_signed_by(identifier), critical=False)
        .sign(key, hashes.SHA256())
    )
    return Authority(certificate, key)


def issue_serving(
    authority: Authority,
    names: Sequence[str],
    now: datetime,
    lifetime: timedelta = LEAF_LIFETIME,
) -> Pair:
    """A serving certificate for ``names`` (DNS names and IP addresses), signed by ``authority``.

    Valid for ``lifetime`` from ``now``, but no longer than the authority itself. Raises
    ValueError without names, or for a name that no certificate can hold.
    """
    if not names:
        raise ValueError("a serving certificate needs at least one name")
    key = ec.generate_private_key(ec.SECP256R1())
    expiry = min(now + lifetime, authority.certificate.not_valid_after_utc)
    builder = _builder(_LEAF_SUBJECT, authority.certificate.subject, key, now, expiry)
    issuer = authority.certificate.extensions.get_extension_for_class(x509.SubjectKeyIdentifier)
    certificate = (
        builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName(list(map(_general, names))), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(_signed_by(issuer.value), critical=False)
        .sign(authority.key, hashes.SHA256())
    )
    return _pair(certificate, key)


def check_name(name: str) -> None:
    """Raises ValueError if no certificate can hold ``name``."""
    try:
        _general(name)
    except ValueError:
        raise ValueError("must be a DNS name in ASCII, or an IP address") from None


def _general(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    now: datetime,
    expiry: datetime,
) -> x509.CertificateBuilder:
    return x509.CertificateBuilder(
        issuer_name=issuer,
        subject_name=subject,
        public_key=key.public_key(),
        serial_number=x509.random_serial_number(),
        not_valid_before=now - CLOCK_SLACK,
        not_valid_after=expiry,
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _signed_by(identifier: x509.SubjectKeyIdentifier) -> x509.AuthorityKeyIdentifier:
    return x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier)


def _pair(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> Pair:
    return Pair(
        certificate.public_bytes(serialization.Encoding.PEM),
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        ),
    )
