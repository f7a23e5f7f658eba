"""Certificate authorities as clusters have them, good and odd, and API servers with TLS."""

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Final, Self

from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

HOST: Final = "127.0.0.1"


@dataclass(frozen=True)
class Signed:
    """A certificate, its key, and who has signed it."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @classmethod
    def make(
        cls,
        name: str,
        by: Self | None = None,
        *,
        is_authority: bool = False,
        has_identifiers: bool = True,
        is_critical: bool = True,
        names_usage: bool = True,
        host: str = HOST,
    ) -> Self:
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        issuer, signer = (by.certificate.subject, by.key) if by else (subject, key)
        now = datetime.now(UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(hours=1))
            .not_valid_after(now + timedelta(days=1))
            .add_extension(x509.BasicConstraints(is_authority, None), critical=is_critical)
        )
        if has_identifiers:
            builder = builder.add_extension(
                x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False
            ).add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()),
                critical=False,
            )
        if names_usage and is_authority:
            builder = builder.add_extension(_SIGNS, critical=True)
        if not is_authority:
            alternative = x509.SubjectAlternativeName([x509.IPAddress(ip_address(host))])
            usage = x509.ExtendedKeyUsage(_BOTH_SIDES)
            builder = builder.add_extension(alternative, critical=False)
            builder = builder.add_extension(usage, critical=False)
        return cls(builder.sign(signer, hashes.SHA256()), key)

    @property
    def pem(self) -> bytes:
        return self.certificate.public_bytes(serialization.Encoding.PEM)

    @property
    def key_pem(self) -> bytes:
        return self.key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )


_BOTH_SIDES: Final = (ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH)
_SIGNS: Final = x509.KeyUsage(
    digital_signature=True,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    key_cert_sign=True,
    crl_sign=False,
    encipher_only=False,
    decipher_only=False,
)


def server_context(folder: Path, *chain: Signed, asks: Signed | None = None) -> ssl.SSLContext:
    """For a server that shows ``chain``, its own first, and asks clients for one of ``asks``."""
    file = folder / "server.pem"
    file.write_bytes(chain[0].key_pem + b"".join(each.pem for each in chain))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file)
    if asks:
        context.verify_mode = ssl.CERT_OPTIONAL
        context.load_verify_locations(cadata=asks.pem.decode())
    return context


@asynccontextmanager
async def serving(
    application: web.Application, context: ssl.SSLContext, port: int = 0
) -> AsyncIterator[int]:
    """Yields the port on which ``application`` is served."""
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, HOST, port, ssl_context=context).start()
    try:
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()
