"""Throwaway keys and certificates of one control plane."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Self

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_LIFETIME = timedelta(days=30)
_CLOCK_SLACK = timedelta(hours=1)
_DNS_NAMES = ("localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc")
_ADDRESSES = ("127.0.0.1", "::1")


@dataclass(frozen=True, slots=True)
class Credentials:
    """Paths of the files, all PEM."""

    ca_certificate: Path
    serving_certificate: Path
    serving_key: Path
    service_account_key: Path

    @classmethod
    def in_folder(cls, folder: Path) -> Self:
        """Return where the files of a plane in ``folder`` are."""
        return cls(
            ca_certificate=folder / "ca.crt",
            serving_certificate=folder / "apiserver.crt",
            serving_key=folder / "apiserver.key",
            service_account_key=folder / "service-accounts.key",
        )


def issue_credentials(folder: Path) -> None:
    """Write a fresh CA, a serving certificate for loopback and a token signing key."""
    credentials = Credentials.in_folder(folder)
    ca_key = ec.generate_private_key(ec.SECP256R1())
    serving_key = ec.generate_private_key(ec.SECP256R1())
    ca = _ca_certificate(ca_key)
    serving = _serving_certificate(serving_key.public_key(), ca, ca_key)
    _write_certificate(credentials.ca_certificate, ca)
    _write_certificate(credentials.serving_certificate, serving)
    _write_key(credentials.serving_key, serving_key)
    _write_key(credentials.service_account_key, ec.generate_private_key(ec.SECP256R1()))


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _builder(subject: x509.Name, issuer: x509.Name) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCK_SLACK)
        .not_valid_after(now + _LIFETIME)
    )


def _ca_certificate(key: ec.EllipticCurvePrivateKey) -> x509.Certificate:
    name = _name("usher-tests")
    public = key.public_key()
    return (
        _builder(name, name)
        .public_key(public)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(signs_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        .sign(key, hashes.SHA256())
    )


def _serving_certificate(
    public: ec.EllipticCurvePublicKey, ca: x509.Certificate, ca_key: ec.EllipticCurvePrivateKey
) -> x509.Certificate:
    names: list[x509.GeneralName] = [x509.DNSName(name) for name in _DNS_NAMES]
    names += [x509.IPAddress(ip_address(address)) for address in _ADDRESSES]
    ca_identifier = ca.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    authority = x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(ca_identifier)
    return (
        _builder(_name("kube-apiserver"), ca.subject)
        .public_key(public)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(authority, critical=False)
        .sign(ca_key, hashes.SHA256())
    )


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
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


def _write_certificate(path: Path, certificate: x509.Certificate) -> None:
    path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))


def _write_key(path: Path, key: ec.EllipticCurvePrivateKey) -> None:
    path.touch(mode=0o600)
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            # kube-apiserver reads its service account key in no other form.
            serialization.PrivateFormat.TraditionalOpenSSL,
            serialization.NoEncryption(),
        )
    )
