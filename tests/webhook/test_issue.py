"""Certificates that strict verifiers accept."""

import ssl
from datetime import timedelta
from ipaddress import ip_address
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from cryptography.x509.verification import PolicyBuilder, Store

from certs.issue import issue_authority, issue_serving
from tests.webhook.reviews import NOW

NAMES = ["usher.very-long-namespace." + "x" * 60 + ".svc", "localhost", "127.0.0.1", "::1"]


@pytest.fixture
def leaf() -> x509.Certificate:
    pair = issue_serving(issue_authority(NOW), NAMES, NOW)
    return x509.load_pem_x509_certificate(pair.certificate)


def test_a_strict_verifier_accepts_the_chain() -> None:
    authority = issue_authority(NOW)
    serving = x509.load_pem_x509_certificate(issue_serving(authority, NAMES, NOW).certificate)
    builder = PolicyBuilder().store(Store([authority.certificate])).time(NOW)
    for name in NAMES:
        try:
            subject: x509.DNSName | x509.IPAddress = x509.IPAddress(ip_address(name))
        except ValueError:
            subject = x509.DNSName(name)
        chain = builder.build_server_verifier(subject).verify(serving, [])
        assert len(chain) == 2


def test_the_leaf_is_what_operations_ask_for(leaf: x509.Certificate) -> None:
    assert isinstance(leaf.public_key(), ec.EllipticCurvePublicKey)
    (common_name,) = leaf.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    assert common_name.value == "usher-webhook"
    usage = leaf.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(usage) == [ExtendedKeyUsageOID.SERVER_AUTH]
    assert leaf.not_valid_before_utc == NOW - timedelta(hours=1)
    assert leaf.not_valid_after_utc == NOW + timedelta(days=90)


def test_serials_are_random() -> None:
    authority = issue_authority(NOW)
    serials = {
        x509.load_pem_x509_certificate(
            issue_serving(authority, ["a"], NOW).certificate
        ).serial_number
        for _ in range(20)
    }
    assert len(serials) == 20


def test_a_leaf_does_not_outlive_its_authority() -> None:
    authority = issue_authority(NOW)
    late = issue_serving(authority, ["a"], NOW + timedelta(days=364))
    certificate = x509.load_pem_x509_certificate(late.certificate)
    assert certificate.not_valid_after_utc == authority.certificate.not_valid_after_utc


@pytest.mark.parametrize("names", [[], ["ä"]])
def test_names_that_no_certificate_can_hold_are_refused(names: list[str]) -> None:
    with pytest.raises(ValueError, match=r".+"):
        issue_serving(issue_authority(NOW), names, NOW)


def test_the_pair_fits(tmp_path: Path) -> None:
    pair = issue_serving(issue_authority(NOW), ["a"], NOW)
    (tmp_path / "pair.pem").write_bytes(pair.certificate + pair.key)
    ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(tmp_path / "pair.pem")
