"""The command: what it says when it can't serve, and the throwaway certificate."""

import re
import shlex
import signal
import socket
import ssl
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from certs.issue import issue_authority, issue_serving
from cli.commands.serve import command
from tests.patience import PATIENCE
from tests.webhook.running import HOST, NAMES, answer, today, write_pair


def attempt(*flags: str) -> Result:
    return CliRunner().invoke(command, [*flags])


@pytest.fixture
def pair(tmp_path: Path) -> list[str]:
    """Flags for a usable pair."""
    write_pair(tmp_path, issue_serving(issue_authority(today()), NAMES, today()))
    files = ["--tls-cert", str(tmp_path / "tls.crt"), "--tls-key", str(tmp_path / "tls.key")]
    return [*files, "--offline"]


@pytest.mark.parametrize("flags", [[], ["--tls-cert", "x"], ["--tls-key", "x"]])
def test_a_certificate_is_needed(flags: list[str]) -> None:
    result = attempt("--offline", *flags)
    assert result.exit_code == 2
    assert "--self-signed" in result.output


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        (
            ["--tls-cert", "missing.crt", "--tls-key", "missing.key", "--offline"],
            "missing.crt: No such file",
        ),
        (["--self-signed", "--offline", "--client-ca", "missing.ca"], "missing.ca: No such file"),
        (["--self-signed", "--max-body", "7Gi"], "must be a size such as 7Mi"),
        (["--self-signed", "--max-body", "0"], "must be a size such as 7Mi"),
        (["--self-signed", "--max-body", "-1"], "must be a size such as 7Mi"),
        (["--self-signed", "--max-body", "٣Mi"], "must be a size such as 7Mi"),
        (["--self-signed", "--timeout", "0"], "--timeout"),
        (["--self-signed", "--timeout", "31"], "--timeout"),
        (["--self-signed", "--port", "65536"], "--port"),
        (["--self-signed", "--break-glass", "system:authenticated"], "that is everybody"),
        (["--self-signed", "--enforce", "first-sink=off"], "did you mean 'first-sync'"),
        (["--self-signed", "--offline", "--bind", "no such host"], "no such host port 9443"),
        (
            ["--self-signed", "--offline", "--bind", "192.0.2.1"],
            "Choose an address of this machine",
        ),
    ],
)
def test_wrong_flags_are_explained(flags: list[str], text: str) -> None:
    result = attempt(*flags)
    assert result.exit_code == 2
    assert text in result.output


def test_without_a_cluster_it_does_not_start_by_oversight(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    result = attempt("--self-signed")
    assert result.exit_code == 2
    assert "there is no cluster around" in result.output
    assert "--offline" in result.output


def test_one_pair_is_enough(pair: list[str]) -> None:
    result = attempt("--self-signed", *pair)
    assert result.exit_code == 2
    assert "makes its own pair" in result.output


def test_a_key_of_another_certificate_is_told(pair: list[str], tmp_path: Path) -> None:
    other = issue_serving(issue_authority(today()), NAMES, today())
    (tmp_path / "tls.key").write_bytes(other.key)
    result = attempt(*pair)
    assert result.exit_code == 2
    assert "is not the key of the certificate in" in result.output


@pytest.mark.parametrize("flag", ["--port", "--health-port"])
def test_a_port_in_use_is_told(pair: list[str], flag: str) -> None:
    with socket.create_server((HOST, 0), reuse_port=True) as other:
        port = str(other.getsockname()[1])
        ports = {"--port": "0", "--health-port": "0", flag: port}
        given = [text for item in ports.items() for text in item]
        result = attempt(*pair, "--bind", HOST, "--health-bind", HOST, *given)
    assert result.exit_code == 2
    assert f"{HOST} port {port}" in result.output
    assert f"choose another {flag}" in result.output


def test_help_has_units_and_an_example() -> None:
    output = attempt("--help").output
    assert "usher serve --self-signed --offline" in output
    for word in ("Seconds", "bytes", "[default: 9443"):
        assert word in output


@pytest.mark.slow
def test_the_throwaway_certificate_can_be_tried_at_once(tmp_path: Path) -> None:
    flags = ["--port", "0", "--health-port", "0", "--bind", HOST, "--drain-seconds", "0"]
    program = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "cli.main",
            "serve",
            "--self-signed",
            "--health-bind",
            HOST,
            "--offline",
            *flags,
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert program.stdout is not None
        ca = Path(program.stdout.readline().split(": ")[1].strip())
        assert program.stdout.readline() == "Try it:\n"
        curl = shlex.split(program.stdout.readline())
        assert curl[:3] == ["curl", "--cacert", str(ca)]
        assert ca.parent.stat().st_mode & 0o777 == 0o700
        found = re.fullmatch(r"https://localhost:(\d+)(/validate)", curl[-1])
        assert found is not None
        data = curl[curl.index("-d") + 1].encode()
        context = ssl.create_default_context(cafile=str(ca))
        with (
            socket.create_connection((HOST, int(found[1])), timeout=PATIENCE) as plain,
            context.wrap_socket(plain, server_hostname="localhost") as connection,
        ):
            connection.sendall(
                b"POST %b HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                b"Content-Length: %d\r\n\r\n%b" % (found[2].encode(), len(data), data)
            )
            assert answer(connection).response["allowed"] is False
        program.send_signal(signal.SIGTERM)
        assert program.wait(PATIENCE) == 0
        assert not ca.parent.exists()
    finally:
        program.kill()
        program.wait(PATIENCE)
        if program.stdout is not None:
            program.stdout.close()
