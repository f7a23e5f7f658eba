"""Agents on a real API server, with the permissions of docs/certificates.md and no others."""

import base64
import json
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import pytest
from click.testing import CliRunner

from certs.holdings import CERTIFICATE, decode, issued_at
from certs.issue import issue_authority, issue_serving
from cli.main import main
from tests.certs.programs import CONFIGURATIONS, IDENTITY, PLACE, SECRET, Program, Site
from tests.controlplane import ControlPlane, Mode, NoToolchainError
from tests.controlplane.availability import skip_or_fail
from tests.controlplane.ports import free_port
from tests.e2e.waiting import eventually
from tests.patience import PATIENCE

pytestmark = pytest.mark.e2e

_LIVES: Final = ("--ca-life", "66s", "--leaf-life", "60s", "--wait", "5s")
"""The CA is renewed after 44 s, the leaf after 40 s: 20 s and more are left for a slow machine."""


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    try:
        with ControlPlane(Mode.CRD) as plane:
            site = Site(plane, tmp_path_factory.mktemp("logs"))
            site.prepare()
            yield site
    except NoToolchainError as error:
        skip_or_fail(str(error))


@pytest.fixture
def site(started: Site) -> Iterator[Site]:
    started.reset()
    yield started
    started.stop()


def test_five_agents_at_once_end_with_one_authority(site: Site, tmp_path: Path) -> None:
    folders = [tmp_path / str(number) for number in range(5)]
    agents = [site.agent("--dir", str(folder)) for folder in folders]
    eventually(site.agrees, "there is a pair that the bundles verify")
    (authority,) = site.held().authorities
    eventually(
        lambda: all((folder / "tls.crt").exists() for folder in folders), "all have the pair"
    )
    issued = [line for agent in agents for line in agent.log() if line["event"] == "CA issued"]
    assert len(issued) == 1
    serving = site.held().serving
    assert serving is not None
    assert {(folder / CERTIFICATE).read_bytes() for folder in folders} == {serving.pair.certificate}
    assert site.bundles() == [{authority}] * 2
    # What an installer owns stays its own.
    for path in CONFIGURATIONS.values():
        managers = {
            entry["manager"]: json.dumps(entry["fieldsV1"])
            for entry in site.call("GET", path)["metadata"]["managedFields"]
        }
        assert "caBundle" in managers["usher-certs"]
        assert "failurePolicy" not in managers["usher-certs"]


def test_agents_end_on_sigterm(site: Site, tmp_path: Path) -> None:
    agent = site.agent("--dir", str(tmp_path))
    eventually(site.agrees, "all is well")
    agent.terminate()
    assert "status 0" in eventually(agent.status, "the agent ends")


def test_emptied_bundles_are_filled_again(site: Site) -> None:
    site.agent()
    eventually(site.agrees, "all is well")
    authorities = site.held().authorities
    for _ in range(2):
        site.empty_bundles()
        eventually(site.agrees, "the bundles are repaired")
    assert site.held().authorities == authorities


@pytest.mark.parametrize("name", ["tls_crt", "tls_key", "ca_crt", "ca_key"])
def test_a_broken_secret_recovers_while_calls_go_on(site: Site, tmp_path: Path, name: str) -> None:
    port = free_port()
    site.reset(port)
    site.agent("--dir", str(tmp_path), "--wait", "5s", "--served", f"localhost:{port}")
    site.serve(tmp_path, port)
    eventually(lambda: site.write() == "", "the webhook answers")
    with site.writing() as answers:
        site.overwrite(**{name: b"broken"})
        eventually(lambda: _is_sound(site), "the Secret is repaired")
        seen = len(answers)
        eventually(lambda: len(answers) > seen + 20, "calls go on")
    assert set(answers) == {""}


def _is_sound(site: Site) -> bool:
    held = site.held()
    return not held.flaws and held.issuer == held.newest and site.agrees()


def test_an_expired_authority_is_replaced(site: Site, tmp_path: Path) -> None:
    port = free_port()
    site.reset(port)
    long_ago = datetime.now(UTC) - timedelta(days=400)
    authority = issue_authority(long_ago)
    serving = issue_serving(authority, ["localhost"], long_ago)
    site.store(
        **{"ca.crt": authority.pair.certificate, "ca.key": authority.pair.key},
        **{"tls.crt": serving.certificate, "tls.key": serving.key},
    )
    site.trust(authority.pair.certificate)
    assert site.bundles() == [{authority.certificate}] * 2
    site.agent("--dir", str(tmp_path), "--served", f"localhost:{port}")
    site.serve(tmp_path, port)
    eventually(lambda: site.write() == "", "the webhook answers")
    assert _is_sound(site)
    assert authority.certificate not in site.held().authorities


@pytest.mark.parametrize("hours", [-2, 2])
def test_a_clock_that_is_two_hours_off_does_no_harm(site: Site, tmp_path: Path, hours: int) -> None:
    port = free_port()
    site.reset(port)
    agent = site.agent("--dir", str(tmp_path), "--served", f"localhost:{port}", hours_ahead=hours)
    site.serve(tmp_path, port)
    eventually(lambda: site.write() == "", "the webhook answers")
    eventually(lambda: agent.says("certificate served"), "the agent is content")
    serving = site.held().serving
    assert serving is not None
    issued = issued_at(serving.leaf)
    assert abs(issued - datetime.now(UTC)) < timedelta(minutes=30), "by the API server's clock"


def test_the_agent_tells_what_it_sees(site: Site, tmp_path: Path) -> None:
    port = free_port()
    health = ("--health-bind", "127.0.0.1", "--health-port", str(port))
    site.agent("--dir", str(tmp_path), *health)

    def ask(path: str) -> str:
        try:
            with urllib.request.urlopen(
                f"http://127.0.0.1:{port}{path}", timeout=PATIENCE
            ) as answer:
                return str(answer.read().decode())
        except OSError:
            return ""

    eventually(lambda: ask("/readyz") == "ok\n", "the pair is there")
    assert (tmp_path / CERTIFICATE).exists()
    name = 'usher_certs_ca_bundle_in_sync{name="usher",resource="%swebhookconfigurations"} 1.0'

    def in_sync() -> bool:
        text = ask("/metrics")
        return all(name % kind in text for kind in ("validating", "mutating"))

    eventually(in_sync, "the metrics say that the bundles are in sync")


def test_a_deleted_secret_fails_no_call(site: Site, tmp_path: Path) -> None:
    port = free_port()
    site.reset(port)
    site.agent("--dir", str(tmp_path), "--wait", "5s")
    site.serve(tmp_path, port)
    eventually(lambda: site.write() == "", "the webhook answers")
    with site.writing() as answers:
        site.call("DELETE", SECRET)
        eventually(lambda: _is_sound(site), "the Secret is back")
        seen = len(answers)
        eventually(lambda: len(answers) > seen + 20, "calls go on")
    assert set(answers) == {""}


@pytest.mark.slow
def test_two_rotations_in_a_row_fail_no_call(site: Site, tmp_path: Path) -> None:
    port = free_port()
    site.reset(port)
    served = ("--served", f"localhost:{port}")
    agents = [site.agent("--dir", str(tmp_path), *_LIVES, *served), site.agent(*_LIVES)]
    webhook = site.serve(tmp_path, port)
    eventually(lambda: site.write() == "", "the webhook answers")
    seen = [site.held().authorities[0]]
    with site.writing() as answers, readiness(webhook) as told:
        for _ in range(2):
            eventually(
                lambda: (held := site.held()).issuer == held.newest != seen[-1],
                "a new CA has signed a new certificate",
            )
            seen.append(site.held().authorities[0])
        eventually(lambda: seen[0] not in site.held().authorities, "the first CA is dropped")
        eventually(site.agrees, "the bundles follow")
        count = len(answers)
        eventually(lambda: len(answers) > count + 20, "calls go on")
    print(f"{len(answers)} calls, CAs: {len(set(seen))}")
    assert set(answers) == {""}
    assert set(told) == {"ok\n"}, "the webhook was ready all the time"
    assert any(agent.says("older CAs dropped") for agent in agents)


@contextmanager
def readiness(webhook: Program) -> Iterator[list[str]]:
    """What the webhook's ``/readyz`` says meanwhile."""
    line = webhook.line("serving")
    assert line is not None
    url = f"http://{line['health'][0]}/readyz"
    told: list[str] = []
    stop = threading.Event()

    def ask() -> None:
        while not stop.wait(0.2):
            try:
                with urllib.request.urlopen(url, timeout=PATIENCE) as answer:
                    told.append(answer.read().decode())
            except urllib.error.HTTPError as error:
                told.append(error.read().decode())

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        yield told
    finally:
        stop.set()
        thread.join()


def test_rotate_and_inspect(site: Site, tmp_path: Path) -> None:
    assert _usher(site, "issue", "--name", "localhost")[0] == 0
    status, text = _usher(site, "inspect", "-o", "json")
    assert (status, json.loads(text)["problems"]) == (0, [])
    before = site.held()
    assert _usher(site, "rotate", "--wait", "1s")[0] == 0
    after = site.held()
    assert after.authorities[1:] == before.authorities
    assert after.issuer == after.newest
    assert _usher(site, "rotate", "--leaf")[0] == 0
    assert site.held().authorities == after.authorities
    assert site.held().serving != after.serving
    site.empty_bundles()
    status, text = _usher(site, "inspect")
    assert status == 1
    assert "webhook validate.usher.dev: caBundle is empty or unreadable" in text
    site.plane.request("DELETE", CONFIGURATIONS["mutating"])
    assert "MutatingWebhookConfiguration usher: does not exist" in _usher(site, "inspect")[1]


def _usher(site: Site, *arguments: str) -> tuple[int, str]:
    first, *more = arguments
    program: Any = SimpleNamespace(name="usher", main=main)
    run = CliRunner().invoke(program, ["certs", first, *PLACE, *site.as_agent(), *more])
    return run.exit_code, run.stdout


def test_a_directory_may_be_the_store(site: Site, tmp_path: Path) -> None:
    flags = ("--dir", str(tmp_path), *PLACE[2:], *site.as_agent(), "--name", "localhost")
    site.run("certs", "agent", *flags)

    def agrees() -> bool:
        held = decode(
            {name: _content(tmp_path / name) for name in ("ca.crt", "tls.crt", "tls.key")}
        )
        return held.issuer is not None and site.bundles() == [set(held.authorities)] * 2

    eventually(agrees, "the bundles hold the CA of the directory")
    site.empty_bundles()
    eventually(agrees, "the bundles are repaired")
    assert site.plane.request("GET", SECRET)[0] == 404


def _content(path: Path) -> bytes:
    return path.read_bytes() if path.exists() else b""


def test_a_missing_permission_is_named(site: Site) -> None:
    kubeconfig = str(site.plane.kubeconfig("viewer"))
    names = ("--name", "localhost", "--kubeconfig", kubeconfig)
    agent: Program = site.run("certs", "agent", *PLACE, *names)
    wanted = (
        "the permission to get validatingwebhookconfigurations of API group "
        '"admissionregistration.k8s.io" in all of the cluster is missing'
    )
    eventually(lambda: agent.says(wanted), "the log names the permission")
    program: Any = SimpleNamespace(name="usher", main=main)
    run = CliRunner().invoke(program, ["certs", "issue", *PLACE, *names])
    assert run.exit_code == 3
    assert f"Error: {wanted}" in run.stderr


def test_nothing_but_its_own_is_touched(site: Site) -> None:
    body = {
        "metadata": {"name": "usher-tls"},
        "data": {"more": base64.b64encode(b"kept").decode()},
    }
    site.call("POST", SECRET.rpartition("/")[0], body)
    assert _usher(site, "issue", "--name", "localhost")[0] == 0
    secret = site.call("GET", SECRET)
    assert base64.b64decode(secret["data"]["more"]) == b"kept"
    other = SECRET.replace("usher-tls", "other")
    assert site.plane.request("GET", other, identity=IDENTITY)[0] == 403
