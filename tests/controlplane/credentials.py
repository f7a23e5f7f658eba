"""Throwaway keys and certificates of one control plane."""

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Self

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from certs.issue import issue_authority, issue_serving

_NAMES = (
    *("localhost", "127.0.0.1", "::1"),
    *("kubernetes", "kubernetes.default", "kubernetes.default.svc"),
)


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
    now = datetime.now(UTC)
    authority = issue_authority(now)
    serving = issue_serving(authority, _NAMES, now)
    credentials.ca_certificate.write_bytes(authority.pair.certificate)
    credentials.serving_certificate.write_bytes(serving.certificate)
    _write(credentials.serving_key, serving.key)
    _write(credentials.service_account_key, _signing_key())


def _signing_key() -> bytes:
    return ec.generate_private_key(ec.SECP256R1()).private_bytes(
        serialization.Encoding.PEM,
        # kube-apiserver reads its service account key in no other form.
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )


def _write(path: Path, key: bytes) -> None:
    path.touch(mode=0o600)
    path.write_bytes(key)
