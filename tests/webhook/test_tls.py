"""The certificate, and its successors while the server runs."""

import io
import ssl
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from certs.issue import Authority, Pair, issue_authority, issue_serving
from tests.webhook.reviews import creation, encoded
from tests.webhook.running import (
    JSON,
    NAMES,
    Running,
    answer,
    eventually,
    head,
    running,
    swap,
    today,
    trusting,
    write_pair,
)
from webhook.settings import Settings
from webhook.tls import CertificateError, ServingCertificate


@pytest.fixture
def authority() -> Authority:
    return issue_authority(today())


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("webhook.app.REFRESH_SECONDS", 0.02)


@pytest.fixture
def server(authority: Authority, tmp_path: Path, _quick: None) -> Iterator[Running]:
    with running(tmp_path, authority=authority, clock=today) as site:
        yield site


def served(site: Running, name: str | None = "localhost") -> int:
    """Return the serial number of the certificate that a new connection gets."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with site.connect(context, name) as connection:
        certificate = connection.getpeercert(binary_form=True)
    assert certificate is not None
    return x509.load_der_x509_certificate(certificate).serial_number


def serial(pair: Pair) -> int:
    return x509.load_pem_x509_certificate(pair.certificate).serial_number


def issued(authority: Authority, *, days: int = 0) -> Pair:
    return issue_serving(authority, NAMES, today() + timedelta(days=days))


def test_only_modern_tls_and_http_1_1_are_spoken(site: Running) -> None:
    client = site.client
    client.set_alpn_protocols(["h2", "http/1.1"])
    with site.connect(client) as connection:
        assert connection.selected_alpn_protocol() == "http/1.1"
        assert connection.version() == "TLSv1.3"
    client.maximum_version = ssl.TLSVersion.TLSv1_2
    with site.connect(client) as connection:
        assert connection.version() == "TLSv1.2"
        suite = connection.cipher()
        assert suite is not None
        assert "GCM" in suite[0] or "CHACHA20" in suite[0]
    client.maximum_version = ssl.TLSVersion.MAXIMUM_SUPPORTED


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize(
    "weaken",
    [
        lambda context: setattr(context, "maximum_version", ssl.TLSVersion.TLSv1_1),
        lambda context: context.set_ciphers("AES128-SHA:ECDHE-ECDSA-AES128-SHA:@SECLEVEL=0"),
    ],
)
def test_weak_tls_is_refused(site: Running, weaken: Callable[[ssl.SSLContext], None]) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_ciphers("ALL:@SECLEVEL=0")
    context.minimum_version = ssl.TLSVersion.TLSv1
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    weaken(context)
    with pytest.raises((ssl.SSLError, ConnectionError)):
        site.connect(context)


def test_tls_1_3_alone_can_be_asked_for(tmp_path: Path) -> None:
    with running(tmp_path, tls_minimum=ssl.TLSVersion.TLSv1_3) as site:
        assert site.call(creation()).status == 200
        site.client.maximum_version = ssl.TLSVersion.TLSv1_2
        with pytest.raises(ssl.SSLError):
            site.connect()


def test_no_session_is_resumed(site: Running) -> None:
    body = encoded(creation())
    with site.connect() as connection:
        connection.sendall(head("POST", "/validate", {**JSON, "Content-Length": str(len(body))}))
        connection.sendall(body)
        answer(connection)
        assert connection.session is None or not connection.session.has_ticket


@pytest.mark.parametrize("name", ["localhost", None])
def test_new_connections_get_the_new_certificate(
    server: Running, authority: Authority, tmp_path: Path, name: str | None, log: io.StringIO
) -> None:
    body = encoded(creation())
    with server.connect() as kept:
        for days in (1, 2, 3):
            pair = issued(authority, days=-days)
            write_pair(tmp_path, pair)
            eventually(lambda pair=pair: served(server, name) == serial(pair))
            assert server.call(creation()).status == 200
            expiry = x509.load_pem_x509_certificate(pair.certificate).not_valid_after_utc
            eventually(
                lambda expiry=expiry: (
                    server.metric("usher_webhook_certificate_not_after_timestamp_seconds")
                    == expiry.timestamp()
                )
            )
        # The connection from before goes on.
        kept.sendall(head("POST", "/validate", {**JSON, "Content-Length": str(len(body))}) + body)
        assert answer(kept).status == 200
    assert log.getvalue().count('"certificate loaded"') >= 3


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_the_new_certificate_is_trusted_in_every_version(
    server: Running, authority: Authority, tmp_path: Path, version: ssl.TLSVersion
) -> None:
    pair = issued(authority)
    write_pair(tmp_path, pair)
    eventually(lambda: served(server) == serial(pair))
    server.client.minimum_version = server.client.maximum_version = version
    server.client.set_alpn_protocols(["h2", "http/1.1"])
    with server.connect() as connection:
        assert connection.version() == version.name.replace("_", ".")
        assert connection.selected_alpn_protocol() == "http/1.1"


def broken_pairs(authority: Authority) -> dict[str, tuple[bytes, bytes]]:
    new, other = issued(authority), issued(authority)
    return {
        "empty certificate": (b"", new.key),
        "empty key": (new.certificate, b""),
        "half a certificate": (new.certificate[:300], new.key),
        "half a key": (new.certificate, new.key[:100]),
        "swapped": (new.key, new.certificate),
        "mismatch": (new.certificate, other.key),
        "garbage": (b"\x00" * 1000, b"\xff" * 1000),
        "expired": (issued(authority, days=-120).certificate, issued(authority, days=-120).key),
    }


@pytest.mark.parametrize("name", broken_pairs(issue_authority(today())))
def test_the_last_good_pair_stays_when_the_next_is_broken(
    server: Running, authority: Authority, tmp_path: Path, name: str, log: io.StringIO
) -> None:
    first = served(server)
    certificate, key = broken_pairs(authority)[name]
    (tmp_path / "tls.crt").write_bytes(certificate)
    (tmp_path / "tls.key").write_bytes(key)
    failures = "usher_webhook_certificate_reload_failures_total"
    eventually(lambda: server.metric(failures) >= 1)
    assert served(server) == first
    assert server.call(creation()).status == 200
    assert server.health("/readyz").status == 200
    eventually(lambda: "certificate refused" in log.getvalue())
    # And the next good one is taken.
    good = issued(authority)
    write_pair(tmp_path, good)
    eventually(lambda: served(server) == serial(good))


def test_a_missing_file_changes_nothing(
    server: Running, authority: Authority, tmp_path: Path
) -> None:
    first = served(server)
    (tmp_path / "tls.key").unlink()
    eventually(lambda: server.metric("usher_webhook_certificate_reload_failures_total") == 1)
    assert served(server) == first


def test_a_failure_is_reported_once(
    server: Running, tmp_path: Path, log: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = []
    refresh = ServingCertificate.refresh
    monkeypatch.setattr(
        ServingCertificate, "refresh", lambda *args: looks.append(1) or refresh(*args)
    )
    (tmp_path / "tls.crt").write_bytes(b"")
    eventually(lambda: server.metric("usher_webhook_certificate_reload_failures_total") == 1)
    seen = len(looks)
    eventually(lambda: len(looks) > seen + 5)
    assert server.metric("usher_webhook_certificate_reload_failures_total") == 1
    assert log.getvalue().count("certificate refused") == 1


def test_a_secret_volume_may_rotate_again_and_again(authority: Authority, tmp_path: Path) -> None:
    swap(tmp_path, issued(authority))
    with running(tmp_path, authority=authority, clock=today) as site:
        for _ in range(3):
            pair = issued(authority)
            swap(tmp_path, pair)
            eventually(lambda pair=pair: served(site) == serial(pair))
        # Two in one go: what counts is the last.
        swap(tmp_path, issued(authority))
        pair = issued(authority)
        swap(tmp_path, pair)
        eventually(lambda: served(site) == serial(pair))
        assert site.metric("usher_webhook_certificate_reload_failures_total") == 0


def test_clients_must_show_a_certificate_of_the_client_ca(
    authority: Authority, tmp_path: Path
) -> None:
    old, new = issue_authority(today()), issue_authority(today())
    (tmp_path / "client-ca.crt").write_bytes(old.pair.certificate)
    with running(
        tmp_path, authority=authority, clock=today, client_ca=tmp_path / "client-ca.crt"
    ) as site:
        known, unknown = (
            shown_by(trusting(authority), issuer, tmp_path / name)
            for issuer, name in ((old, "old"), (new, "new"))
        )
        assert accepted(site, known)
        assert not accepted(site, unknown)
        assert not accepted(site, trusting(authority))
        # The CA is replaced while the server runs.
        (tmp_path / "next").write_bytes(new.pair.certificate)
        (tmp_path / "next").replace(tmp_path / "client-ca.crt")
        eventually(lambda: accepted(site, unknown))
        assert not accepted(site, known)
        # A broken one changes nothing.
        (tmp_path / "next").write_bytes(b"x")
        (tmp_path / "next").replace(tmp_path / "client-ca.crt")
        eventually(lambda: site.metric("usher_webhook_certificate_reload_failures_total") == 1)
        assert accepted(site, unknown)
        assert not accepted(site, trusting(authority))


def shown_by(context: ssl.SSLContext, issuer: Authority, folder: Path) -> ssl.SSLContext:
    """Let ``context`` show a client certificate that ``issuer`` has signed."""
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = x509.CertificateBuilder(
        issuer_name=issuer.certificate.subject,
        subject_name=x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "client")]),
        public_key=key.public_key(),
        serial_number=x509.random_serial_number(),
        not_valid_before=today() - timedelta(hours=1),
        not_valid_after=today() + timedelta(hours=1),
    ).sign(issuer.key, hashes.SHA256())
    folder.mkdir()
    pem = serialization.Encoding.PEM
    plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    write_pair(folder, Pair(certificate.public_bytes(pem), key.private_bytes(pem, *plain)))
    context.load_cert_chain(folder / "tls.crt", folder / "tls.key")
    return context


def accepted(site: Running, context: ssl.SSLContext) -> bool:
    body = encoded(creation())
    try:
        with site.connect(context) as connection:
            connection.sendall(
                head("POST", "/validate", {**JSON, "Content-Length": str(len(body))}) + body
            )
            return answer(connection).status == 200
    except (ssl.SSLError, ConnectionError):
        return False


def test_a_server_with_an_expired_certificate_is_not_ready(
    authority: Authority, tmp_path: Path
) -> None:
    write_pair(tmp_path, issued(authority, days=-120))
    with running(tmp_path, authority=authority, clock=today, ready=503) as site:
        assert b"the certificate has expired at" in site.health("/readyz").body
        assert site.health("/livez").status == 200
        write_pair(tmp_path, issued(authority, days=3))
        eventually(lambda: b"the certificate is not valid before" in site.health("/readyz").body)
        write_pair(tmp_path, issued(authority))
        eventually(lambda: site.health("/readyz").status == 200)


def encrypt_key(folder: Path) -> None:
    key = serialization.load_pem_private_key((folder / "tls.key").read_bytes(), None)
    (folder / "tls.key").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"secret"),
        )
    )


@pytest.mark.parametrize(
    ("break_it", "text"),
    [
        (lambda folder: (folder / "tls.key").unlink(), "No such file"),
        (lambda folder: (folder / "tls.crt").write_bytes(b"x"), "must be a certificate in PEM"),
        (lambda folder: (folder / "tls.key").write_bytes(b"x"), "and its key"),
        (encrypt_key, "must not be encrypted"),
    ],
)
def test_what_is_wrong_is_said(
    authority: Authority, tmp_path: Path, break_it: Callable[[Path], None], text: str
) -> None:
    write_pair(tmp_path, issued(authority))
    break_it(tmp_path)
    settings = Settings(certificate=tmp_path / "tls.crt", key=tmp_path / "tls.key")
    with pytest.raises(CertificateError, match=text):
        ServingCertificate(settings)
