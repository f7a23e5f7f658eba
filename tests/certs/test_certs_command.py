"""``usher certs`` on directories and served addresses."""

import asyncio
import importlib
import json
import re
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import click
import pytest

from certs.holdings import Holdings, decode
from cli.commands.certs import command as group
from tests.certs.world import START
from tests.cli.conftest import Usher, usher

__all__ = ["usher"]

COMMANDS: Final = ("agent", "inspect", "issue", "rotate")
_ISSUE: Final = ("certs", "issue", "--dir", "d", "--name", "localhost")


def _held(folder: str = "d") -> Holdings:
    return decode({path.name: path.read_bytes() for path in Path(folder).glob("[a-z]*.*")})


def _at(monkeypatch: pytest.MonkeyPatch, days: float) -> None:
    instant = START + days * (START.replace(day=2) - START)
    monkeypatch.setattr("cluster.clock.now", lambda: instant)


def test_issue_inspect_rotate(usher: Usher) -> None:
    run = usher(*_ISSUE, "--name", "::1", "--service", "ns/web")
    assert run.exit_code == 0, run.stderr
    assert _held().serving is not None
    names = json.loads(usher("certs", "inspect", "--dir", "d", "-o", "json").stdout)
    wanted = ["localhost", "web", "web.ns", "web.ns.svc", "web.ns.svc.cluster.local", "::1"]
    assert names["certificates"][1]["names"] == wanted

    first = _held()
    assert usher(*_ISSUE).exit_code == 0
    assert (_held().authorities, _held().serving) == (first.authorities, first.serving)
    run = usher("certs", "rotate", "--dir", "d")
    assert run.exit_code == 0
    assert "Give it to every client" in run.stdout
    second = _held()
    assert (second.authorities[1:], second.serving) == (first.authorities, first.serving)
    assert usher("certs", "rotate", "--dir", "d", "--leaf").exit_code == 0
    assert _held().issuer == second.newest
    assert usher("certs", "inspect", "--dir", "d").stdout.endswith("all is well\n")


@pytest.mark.parametrize(
    ("days", "problem"),
    [
        (0, None),
        (60, None),
        (70, "serving certificate: is about to expire"),
        (90, "serving certificate: has expired"),
        (365, "CA: has expired"),
        (-1, "CA: is not valid yet"),
    ],
)
def test_inspect_tells_what_is_left(
    usher: Usher, monkeypatch: pytest.MonkeyPatch, days: float, problem: str | None
) -> None:
    _at(monkeypatch, 0)
    assert usher(*_ISSUE).exit_code == 0
    _at(monkeypatch, days)
    run = usher("certs", "inspect", "--dir", "d")
    assert run.exit_code == (1 if problem else 0)
    assert f"problem: {problem}" in run.stdout if problem else "problem" not in run.stdout


def test_the_json_is_as_documented(usher: Usher, monkeypatch: pytest.MonkeyPatch) -> None:
    _at(monkeypatch, 0)
    usher(*_ISSUE)
    report = json.loads(usher("certs", "inspect", "--dir", "d", "-o", "json").stdout)
    assert (report["now"], report["caBundles"], report["problems"]) == (
        "2026-07-01T12:00:00Z",
        [],
        [],
    )
    authority, leaf = report["certificates"]
    assert len(authority.pop("fingerprint")) == 64
    assert authority == {
        "role": "CA",
        "names": [],
        "notBefore": "2026-07-01T11:00:00Z",
        "notAfter": "2027-07-01T12:00:00Z",
        "daysLeft": 365.0,
        "lifeLeft": 1.0,
    }
    assert (leaf["role"], leaf["notAfter"]) == ("serving certificate", "2026-09-29T12:00:00Z")


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("tls.key", b"x", "tls.key: must be an ECDSA key in PEM, not encrypted"),
        ("tls.crt", b"x", "tls.crt: must be a certificate in PEM"),
        ("ca.crt", b"x", "ca.crt: must be certificates in PEM"),
        ("ca.crt", b"", "there is no CA"),
        ("tls.crt", b"", "there is no usable serving certificate"),
    ],
)
def test_inspect_tells_what_is_broken(
    usher: Usher, name: str, content: bytes, problem: str
) -> None:
    usher(*_ISSUE)
    Path("d", name).write_bytes(content)
    run = usher("certs", "inspect", "--dir", "d")
    assert run.exit_code == 1
    assert f"problem: {problem}" in run.stdout
    # Issuing again repairs it.
    assert usher(*_ISSUE, "--ca-life", "30d", "--leaf-life", "9d", "--wait", "0s").exit_code == 0
    assert usher("certs", "inspect", "--dir", "d").exit_code == 0


def test_inspect_compares_names(usher: Usher) -> None:
    usher(*_ISSUE)
    run = usher("certs", "inspect", "--dir", "d", "--name", "b")
    assert run.exit_code == 1
    assert "problem: the certificate lacks the name b" in run.stdout


@contextmanager
def _serving(folder: str) -> Iterator[str]:
    """Shows the pair of ``folder`` on a free port; its address."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(Path(folder, "tls.crt"), Path(folder, "tls.key"))
    loop = asyncio.new_event_loop()

    async def close(_: Any, writer: asyncio.StreamWriter) -> None:
        writer.close()

    server = loop.run_until_complete(asyncio.start_server(close, "127.0.0.1", 0, ssl=context))
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield f"localhost:{server.sockets[0].getsockname()[1]}"
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        server.close()
        loop.run_until_complete(asyncio.sleep(0.01))
        loop.close()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_inspect_looks_at_what_is_served(usher: Usher) -> None:
    usher(*_ISSUE)
    usher("certs", "issue", "--dir", "other", "--name", "localhost")
    with _serving("d") as address:
        run = usher("certs", "inspect", "--address", address, "--ca", "d/ca.crt")
        assert (run.exit_code, run.stdout.splitlines()[-1]) == (0, "all is well")
        assert usher("certs", "inspect", "--dir", "d", "--address", address).exit_code == 0
        run = usher("certs", "inspect", "--address", address, "--ca", "other/ca.crt")
        assert run.exit_code == 1
        assert "served certificate: is not accepted: " in run.stdout
        run = usher("certs", "inspect", "--address", address, "--dir", "other")
        assert "served certificate: is not that of the store" in run.stdout
        run = usher("certs", "inspect", "--address", address, "--ca", "d/ca.crt", "--name", "b")
        assert "not accepted: Hostname mismatch" in run.stdout


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("issue", "--dir", "d"), 2, "--service NAMESPACE/NAME or --name is needed"),
        (("issue", "--name", "a"), 2, "--secret NAMESPACE/NAME or --dir DIR is needed"),
        (("issue", "--dir", "d", "--name", "ä"), 2, "must be a DNS name in ASCII"),
        (("issue", "--secret", "a", "--name", "a"), 2, "must be <namespace>/<name>"),
        (("issue", "--secret", "a/b", "--name", "a"), 2, "Outside of a cluster give --kubeconfig"),
        (("issue", "--dir", "f", "--name", "a"), 2, "f"),
        (("rotate", "--dir", "none"), 2, "try 'usher certs issue'"),
        (("rotate", "--dir", "d", "--wait", "1y"), 2, "must be a span such as 90d"),
        (("rotate", "--dir", "d", "--wait", "30d"), 2, "must be three times --wait < --leaf-life"),
        (("rotate", "--dir", "d", "--leaf-life", "2000d"), 2, "--leaf-life <= --ca-life"),
        (("inspect",), 2, "--secret, --dir, --address, --validating or --mutating is needed"),
        (("inspect", "--address", "a"), 2, "must be HOST:PORT"),
        (("inspect", "--address", "127.0.0.1:1"), 3, "Is 'usher serve' running there?"),
        (("inspect", "--address", "[::1]:1", "--ca", "none"), 2, "--ca none: No such file"),
        (("inspect", "--address", "[::1]:1", "--ca", "f"), 2, "must be certificates in PEM"),
    ],
)
def test_errors_say_what_to_do(
    usher: Usher, arguments: tuple[str, ...], code: int, message: str
) -> None:
    Path("f").write_bytes(b"x")
    run = usher("certs", *arguments)
    assert run.exit_code == code, run.stderr
    assert message in run.stderr


@pytest.mark.parametrize("name", COMMANDS)
def test_help_mentions_every_option_and_has_an_example(usher: Usher, name: str) -> None:
    run = usher("certs", name, "--help")
    assert run.exit_code == 0
    assert f"\n    usher certs {name}" in run.stdout
    for parameter in group.commands[name].params:
        assert isinstance(parameter, click.Option)
        assert parameter.help
        flag = next(option for option in parameter.opts if option.startswith("--"))
        assert flag in run.stdout
        variable = "USHER_" + flag.removeprefix("--").replace("-", "_").upper()
        assert variable in (parameter.envvar, f"USHER_{parameter.name}".upper())


def test_flags_may_stand_in_a_file_and_in_the_environment(usher: Usher) -> None:
    Path("usher.yaml").write_text("name: [localhost, b]\nport: 1\n", encoding="utf-8")
    environment = {"USHER_DIR": "d"}
    run = usher("certs", "issue", "--config", "usher.yaml", env=environment)
    assert run.exit_code == 0, run.stderr
    assert _held().serving is not None
    Path("usher.yaml").write_text("leaf-lfe: 1d\n", encoding="utf-8")
    run = usher("certs", "issue", "--config", "usher.yaml")
    assert run.exit_code == 2
    assert "did you mean 'leaf-life'" in run.stderr


def test_every_flag_that_the_page_names_exists() -> None:
    page = (Path(__file__).parents[2] / "docs" / "certificates.md").read_text(encoding="utf-8")
    commands = [*group.commands.values(), importlib.import_module("cli.commands.serve").command]
    known = {flag for each in commands for option in each.params for flag in option.opts}
    assert set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", page)) <= known
