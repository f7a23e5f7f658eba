"""The serving certificate: loaded from files, and again whenever these change.

A listener keeps one SSLContext for its whole life, and OpenSSL can't undo a half-done load into a
live one. So the listener's context only ever hands a new connection over to the context that is
current at that moment (``sni_callback``, which OpenSSL runs for clients without SNI, too), and a
change of the files builds another context or, where that fails, changes nothing.
"""

import ssl
from datetime import datetime
from pathlib import Path
from typing import Any, Final, NamedTuple, NoReturn

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from rules.times import format_time
from webhook.settings import Settings

# Forward secrecy and authenticated encryption; TLS 1.3 has no other suites.
_CIPHERS: Final = "ECDHE+AESGCM:ECDHE+CHACHA20"


class CertificateError(ValueError):
    """The files hold no usable certificate; the text says which one, and why."""


class _Loaded(NamedTuple):
    """A pair that can be served."""

    context: ssl.SSLContext
    leaf: x509.Certificate

    def is_valid(self, now: datetime) -> bool:
        return self.leaf.not_valid_before_utc <= now < self.leaf.not_valid_after_utc


class ServingCertificate:
    """What new connections get. ``context`` is for listeners and stays the same."""

    def __init__(self, settings: Settings) -> None:
        """Load the files. Raises CertificateError."""
        self._settings = settings
        self._seen = self._read()
        self._current = self._load(self._seen)
        self._next: _Loaded | None = None
        self.context = self._load(self._seen).context
        self.context.sni_callback = self._hand_over

    @property
    def content(self) -> bytes:
        """The certificate, in DER."""
        return self._current.leaf.public_bytes(Encoding.DER)

    @property
    def not_before(self) -> datetime:
        """When the certificate becomes valid."""
        return self._current.leaf.not_valid_before_utc

    @property
    def not_after(self) -> datetime:
        """When the certificate expires."""
        return self._current.leaf.not_valid_after_utc

    def refresh(self, now: datetime) -> bool:
        """Use the files if they have changed; say whether that was so.

        Raises CertificateError, once for each change, if the new ones can't be used, or are not
        valid at ``now`` while the last ones are. The last good ones stay in use; those that become
        valid later are used then.
        """
        files = self._read()
        if files != self._seen:
            self._seen, self._next = files, None
            try:
                self._next = self._load(files)
            except CertificateError:
                if self._read() != files:
                    return False  # read amid a change: the next refresh sees all of it
                raise
            self._check(self._next.leaf, now)
        if self._next is None or (self._current.is_valid(now) and not self._next.is_valid(now)):
            return False
        self._current, self._next = self._next, None
        return True

    def _check(self, leaf: x509.Certificate, now: datetime) -> None:
        """Raise CertificateError if the last one is better than ``leaf``."""
        if not self._current.is_valid(now):
            return
        if now >= leaf.not_valid_after_utc:
            raise CertificateError(f"{self._settings.certificate}: has expired")
        if now < leaf.not_valid_before_utc:
            begin = format_time(leaf.not_valid_before_utc)
            raise CertificateError(
                f"{self._settings.certificate}: is not valid before {begin}; is the clock right?"
            )

    def _hand_over(self, connection: ssl.SSLObject | ssl.SSLSocket, *_: Any) -> None:
        connection.context = self._current.context

    def _read(self) -> list[bytes | str]:
        """What is in the files, and what is wrong with those that can't be read."""
        settings = self._settings
        paths = (settings.certificate, settings.key, settings.client_ca)
        return [_content(path) for path in paths if path is not None]

    def _load(self, files: list[bytes | str]) -> _Loaded:
        settings = self._settings
        if problems := [each for each in files if isinstance(each, str)]:
            raise CertificateError("; ".join(problems))
        certificate, _, *authorities = (each for each in files if isinstance(each, bytes))
        leaf = _leaf(settings.certificate, certificate)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = settings.tls_minimum
        context.set_ciphers(_CIPHERS)
        context.set_alpn_protocols(["http/1.1"])
        # A resumed session would show neither the new certificate nor the client's.
        context.options |= ssl.OP_NO_TICKET
        context.num_tickets = 0
        try:
            context.load_cert_chain(settings.certificate, settings.key, self._refuse_password)
        except ssl.SSLError as error:
            raise CertificateError(self._explain(error)) from None
        except OSError as error:  # gone since it was read; the next refresh looks again
            raise CertificateError(f"{settings.certificate}: {error.strerror}") from None
        for authority in authorities:
            context.verify_mode = ssl.CERT_REQUIRED
            _trust(context, settings.client_ca, authority)
        return _Loaded(context, leaf)

    def _refuse_password(self) -> NoReturn:
        # OpenSSL would ask for it on the terminal.
        raise CertificateError(f"{self._settings.key}: must not be encrypted")

    def _explain(self, error: ssl.SSLError) -> str:
        certificate, key = self._settings.certificate, self._settings.key
        if error.reason == "KEY_VALUES_MISMATCH":
            return f"{key}: is not the key of the certificate in {certificate}"
        return f"{certificate}, {key}: must be a PEM certificate and its key ({error.reason})"


def _content(path: Path) -> bytes | str:
    try:
        return path.read_bytes()
    except OSError as error:
        return f"{path}: {error.strerror}"


def _leaf(path: Path, content: bytes) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(content)
    except ValueError:
        raise CertificateError(f"{path}: must be a certificate in PEM") from None


def _trust(context: ssl.SSLContext, path: Path | None, content: bytes) -> None:
    try:
        context.load_verify_locations(cadata=content.decode("ascii"))
    except (ssl.SSLError, ValueError):
        raise CertificateError(f"{path}: must be certificates in PEM") from None
