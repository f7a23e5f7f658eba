"""Where the API server is, whom to trust and who asks: read, and read again when it has changed."""

import asyncio
import base64
import json
import stat
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import aclosing
from pathlib import Path
from typing import Any, Final

import pytest
from aiohttp import web
from cryptography import x509

from cluster import configuration as module
from cluster.client import Cluster
from cluster.configuration import Configuration, ConfigurationError
from cluster.failures import Unauthenticated, Unreachable, Untrusted
from cluster.key import Key
from cluster.resources import PODS
from tests.cluster.authority import HOST, Signed, server_context, serving

KEY: Final = Key("default", "web")
OTHER: Final = Signed.make("another", is_authority=True)
EVENT: Final = b'{"type":"ADDED","object":{"metadata":{"name":"a","resourceVersion":"7"}}}\n'


class Server:
    """An API server over TLS whose certificate and accepted token can change while it runs."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.clients = Signed.make("clients", is_authority=True)
        self.authority = Signed.make("kubernetes", is_authority=True)
        self._context = server_context(folder, self._leaf(), asks=self.clients)
        self.port = 0
        self.token = "secret"
        self.asked_by: list[str] = []
        """Who has asked, by certificate or token."""
        self.news = asyncio.Event()

    def _leaf(self) -> Signed:
        return Signed.make("kube-apiserver", self.authority)

    def move_to(self, authority: Signed) -> None:
        """New connections see a certificate of ``authority``."""
        self.authority = authority
        leaf = self._leaf()
        file = self._folder / "server.pem"
        file.write_bytes(leaf.key_pem + leaf.pem)
        self._context.load_cert_chain(file)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        shown = request.transport.get_extra_info("ssl_object").getpeercert(binary_form=True)
        if shown:
            self.asked_by.append(x509.load_der_x509_certificate(shown).subject.rfc4514_string())
        else:
            self.asked_by.append(request.headers["Authorization"])
            if self.asked_by[-1] != f"Bearer {self.token}":
                return web.json_response({"message": "Unauthorized"}, status=401)
        if "watch" in request.query:
            return await self._watch(request)
        # Each request comes by a connection of its own.
        return web.json_response({"kind": "Pod"}, headers={"Connection": "close"})

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(EVENT)
        await self.news.wait()
        await response.write(EVENT)
        return response

    async def run(self) -> AsyncIterator[None]:
        application = web.Application()
        application.router.add_route("*", "/{path:.*}", self.answer)
        async with serving(application, self._context) as self.port:
            yield


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    server = Server(tmp_path)
    async for _ in server.run():
        yield server


class Client:
    """What a kubeconfig, or a pod, says."""

    def __init__(self, server: Server, folder: Path) -> None:
        self.folder = folder
        self._server = server
        self.file: Path | None = folder / "kubeconfig"
        self.cluster: dict[str, Any] = {}
        self.user: dict[str, Any] = {"token": "secret"}

    def write(self) -> None:
        cluster = {"server": f"https://{HOST}:{self._server.port}", **self.cluster}
        content = {
            "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [{"name": "c", "cluster": cluster}],
            "users": [{"name": "u", "user": self.user}],
        }
        assert self.file is not None
        self.file.write_text(json.dumps(content))


@pytest.fixture
def client(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Client:
    for name in ("HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    monkeypatch.setattr(module, "SERVICE_ACCOUNT", tmp_path)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", HOST)
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(server.port))
    return Client(server, tmp_path)


@pytest.fixture
def curious(monkeypatch: pytest.MonkeyPatch) -> None:
    """A look at the files before each request, and not once a minute."""
    monkeypatch.setattr(module, "_LOOK_SECONDS", 0.0)


def encoded(content: bytes) -> str:
    return base64.b64encode(content).decode()


async def ask(cluster: Cluster) -> str:
    return str((await cluster.get(PODS, KEY))["kind"])


# --- the authority of the API server ------------------------------------------------------------


def trusts_by_file(client: Client, authority: Signed) -> None:
    (client.folder / "ca.pem").write_bytes(authority.pem)
    client.cluster = {"certificate-authority": "ca.pem"}
    client.write()


def trusts_by_data(client: Client, authority: Signed) -> None:
    client.cluster = {"certificate-authority-data": encoded(authority.pem)}
    client.write()


def trusts_in_a_pod(client: Client, authority: Signed) -> None:
    client.file = None
    (client.folder / "token").write_text("secret\n")
    (client.folder / "ca.crt").write_bytes(authority.pem)


Trusting = Callable[[Client, Signed], None]
ways = pytest.mark.parametrize(
    "trusts", [trusts_by_file, trusts_by_data, trusts_in_a_pod], ids=lambda trusts: trusts.__name__
)


@ways
async def test_an_authority_that_is_replaced(
    server: Server, client: Client, trusts: Trusting
) -> None:
    trusts(client, server.authority)
    async with (
        Cluster(client.file, "usher-test") as cluster,
        aclosing(cluster.watch(PODS, "1")) as events,
    ):
        await anext(events)
        assert await ask(cluster) == "Pod"
        server.move_to(OTHER)
        for _ in range(2):
            with pytest.raises(Untrusted, match="certificate verify failed"):
                await ask(cluster)
        trusts(client, OTHER)
        assert await ask(cluster) == "Pod"  # the first failure is enough; nobody waits a minute
        assert await ask(cluster) == "Pod"
        server.news.set()
        assert (await anext(events)).type == "ADDED"  # it stands since before all that


@ways
async def test_who_is_trusted_no_more(
    server: Server, client: Client, trusts: Trusting, curious: None
) -> None:
    trusts(client, server.authority)
    async with Cluster(client.file, "usher-test") as cluster:
        assert await ask(cluster) == "Pod"
        trusts(client, OTHER)
        with pytest.raises(Untrusted):
            await ask(cluster)


async def test_files_are_not_looked_at_all_the_time(server: Server, client: Client) -> None:
    trusts_by_file(client, server.authority)
    async with Cluster(client.file, "usher-test") as cluster:
        trusts_by_file(client, OTHER)
        assert await ask(cluster) == "Pod"


@pytest.mark.parametrize("content", [b"", b"nonsense", b"-----BEGIN CERTIFICATE-----\nAAAA\n"])
async def test_a_file_that_is_half_written(
    server: Server, client: Client, curious: None, content: bytes
) -> None:
    trusts_in_a_pod(client, server.authority)
    async with Cluster(None, "usher-test") as cluster:
        (client.folder / "ca.crt").write_bytes(content)
        assert await ask(cluster) == "Pod"
        (client.folder / "ca.crt").unlink()
        assert await ask(cluster) == "Pod"
        server.move_to(OTHER)
        with pytest.raises(Unreachable):
            await ask(cluster)
        (client.folder / "ca.crt").write_bytes(OTHER.pem)
        assert await ask(cluster) == "Pod"


# --- who asks -----------------------------------------------------------------------------------


def shows_token(client: Client, token: str) -> None:
    client.user = {"token": token}
    client.write()


def shows_token_of_a_file(client: Client, token: str) -> None:
    (client.folder / "own.token").write_text(token)
    client.user = {"tokenFile": "own.token"}
    client.write()


def shows_token_of_a_pod(client: Client, token: str) -> None:
    client.file = None
    (client.folder / "token").write_text(token + "\n")


def shows_token_of_a_plugin(client: Client, token: str) -> None:
    answer = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "kind": "ExecCredential",
        "status": {"token": token},
    }
    plugin = client.folder / "plugin"
    plugin.write_text(f"#!{sys.executable}\nprint({json.dumps(json.dumps(answer))})\n")
    plugin.chmod(plugin.stat().st_mode | stat.S_IEXEC)
    client.user = {"exec": {"apiVersion": answer["apiVersion"], "command": str(plugin)}}
    client.write()


Showing = Callable[[Client, str], None]
every_way = pytest.mark.parametrize(
    "shows",
    [shows_token, shows_token_of_a_file, shows_token_of_a_pod, shows_token_of_a_plugin],
    ids=lambda shows: shows.__name__,
)


def trusts(client: Client, authority: Signed) -> None:
    """In whatever way."""
    trusts_by_data(client, authority)
    (client.folder / "ca.crt").write_bytes(authority.pem)


@every_way
async def test_a_token_that_is_refused_is_read_again(
    server: Server, client: Client, shows: Showing
) -> None:
    trusts(client, server.authority)
    shows(client, "secret")
    async with Cluster(client.file, "usher-test") as cluster:
        assert await ask(cluster) == "Pod"
        server.token = "new"
        with pytest.raises(Unauthenticated):
            await ask(cluster)
        shows(client, "new")
        assert await ask(cluster) == "Pod"
        assert [event.type async for event in first_of(cluster)] == ["ADDED"]


@every_way
async def test_a_watch_is_begun_with_a_new_token(
    server: Server, client: Client, shows: Showing
) -> None:
    trusts(client, server.authority)
    shows(client, "secret")
    async with Cluster(client.file, "usher-test") as cluster:
        server.token = "new"
        shows(client, "new")
        assert [event.type async for event in first_of(cluster)] == ["ADDED"]


async def first_of(cluster: Cluster) -> AsyncIterator[Any]:
    async with aclosing(cluster.watch(PODS, "1")) as events:
        yield await anext(events)


@pytest.mark.parametrize("shows", [shows_token, shows_token_of_a_file, shows_token_of_a_pod])
async def test_a_new_token_is_used_before_the_old_one_is_refused(
    server: Server, client: Client, curious: None, shows: Showing
) -> None:
    trusts(client, server.authority)
    shows(client, "secret")
    async with Cluster(client.file, "usher-test") as cluster:
        await ask(cluster)
        shows(client, "new")
        server.token = "new"
        await ask(cluster)
    assert server.asked_by == ["Bearer secret", "Bearer new"]


async def test_many_requests_ask_for_new_credentials_once(
    server: Server, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    loads = 0
    load = Configuration.load

    async def count(self: Configuration) -> Any:
        nonlocal loads
        loads += 1
        return await load(self)

    monkeypatch.setattr(Configuration, "load", count)
    trusts(client, server.authority)
    shows_token_of_a_plugin(client, "secret")
    async with Cluster(client.file, "usher-test") as cluster:
        server.token = "new"
        shows_token_of_a_plugin(client, "new")
        assert set(await asyncio.gather(*(ask(cluster) for _ in range(10)))) == {"Pod"}
    assert loads == 2  # at the start, and after the first 401


async def test_a_client_certificate_that_is_replaced(
    server: Server, client: Client, curious: None
) -> None:
    def shows(name: str, *, data: bool) -> None:
        own = Signed.make(name, server.clients)
        if data:
            client.user = {
                "client-certificate-data": encoded(own.pem),
                "client-key-data": encoded(own.key_pem),
            }
        else:
            (client.folder / "own.crt").write_bytes(own.pem)
            (client.folder / "own.key").write_bytes(own.key_pem)
            client.user = {"client-certificate": "own.crt", "client-key": "own.key"}
        client.write()

    trusts_by_data(client, server.authority)
    shows("a", data=False)
    async with Cluster(client.file, "usher-test") as cluster:
        for name, data in (("a", False), ("b", False), ("c", True), ("d", True)):
            shows(name, data=data)
            assert await ask(cluster) == "Pod"
    assert server.asked_by == ["CN=a", "CN=b", "CN=c", "CN=d"]


async def test_a_new_token_leaves_connections_as_they_are(server: Server, client: Client) -> None:
    trusts(client, server.authority)
    configuration = Configuration(client.file)
    before = await configuration.load()
    shows_token(client, "new")
    after = await configuration.load()
    assert (before.authorization, after.authorization) == ("Bearer secret", "Bearer new")
    assert before.context is after.context
    trusts(client, OTHER)
    assert (await configuration.load()).context is not before.context


# --- a proxy on the way -------------------------------------------------------------------------


@pytest.fixture
async def proxy(client: Client) -> AsyncIterator[list[str]]:
    """Where a proxy has been asked to connect to."""
    asked: list[str] = []
    tasks: set[asyncio.Task[Any] | None] = set()

    async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while part := await reader.read(65536):
            writer.write(part)
        writer.close()

    async def connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.add(asyncio.current_task())
        method, place, _ = (await reader.readuntil(b"\r\n\r\n")).split(b" ", 2)
        assert method == b"CONNECT"
        asked.append(place.decode())
        host, _, port = asked[-1].partition(":")
        beyond_reader, beyond = await asyncio.open_connection(host, int(port))
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        try:
            await asyncio.gather(pass_on(reader, beyond), pass_on(beyond_reader, writer))
        except OSError:
            pass  # one side has cut it off
        finally:
            for each in (writer, beyond):
                each.transport.abort()

    async with await asyncio.start_server(connect, HOST, 0) as running:
        client.cluster["proxy-url"] = f"http://{HOST}:{running.sockets[0].getsockname()[1]}"
        yield asked
        for task in filter(None, tasks):
            task.cancel()
        await asyncio.gather(*filter(None, tasks), return_exceptions=True)


async def test_an_authority_that_is_replaced_behind_a_proxy(
    server: Server, client: Client, proxy: list[str]
) -> None:
    def trusts(authority: Signed) -> None:
        client.cluster["certificate-authority-data"] = encoded(authority.pem)
        client.write()

    trusts(server.authority)
    async with Cluster(client.file, "usher-test") as cluster:
        assert await ask(cluster) == "Pod"
        server.move_to(OTHER)
        with pytest.raises(Untrusted):
            await ask(cluster)
        trusts(OTHER)
        assert await ask(cluster) == "Pod"
    assert set(proxy) == {f"{HOST}:{server.port}"}


# --- what is there ------------------------------------------------------------------------------


async def test_what_a_pod_knows(
    client: Client, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    trusts_in_a_pod(client, server.authority)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.example:3128")
    access = await Configuration(None).load()
    assert access.server == "https://[fd00::1]:443"
    assert access.authorization == "Bearer secret"
    assert access.proxy == "http://proxy.example:3128"


async def test_what_a_kubeconfig_says(
    client: Client, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.example:3128")
    monkeypatch.setenv("NO_PROXY", "*")
    trusts_by_data(client, server.authority)
    client.cluster |= {"proxy-url": "http://other.example", "tls-server-name": "kubernetes"}
    client.user = {"username": "jane", "password": "secret"}
    client.write()
    access = await Configuration(client.file).load()
    assert access.proxy == "http://other.example"
    assert access.server_name == "kubernetes"
    assert access.authorization == f"Basic {encoded(b'jane:secret')}"


async def test_what_a_kubeconfig_says_no_more(client: Client, server: Server) -> None:
    trusts_by_data(client, server.authority)
    client.cluster |= {"proxy-url": "http://other.example", "insecure-skip-tls-verify": True}
    client.write()
    configuration = Configuration(client.file)
    await configuration.load()
    trusts_by_data(client, server.authority)
    client.user = {}
    client.write()
    access = await configuration.load()
    assert (access.proxy, access.authorization) == (None, "")
    assert access.context is not None
    assert access.context.check_hostname


@pytest.mark.parametrize(
    ("variables", "files", "words"),
    [
        ({"KUBERNETES_SERVICE_HOST": ""}, {}, "does not run in a pod"),
        ({}, {"token": None}, "No such file"),
        ({}, {"token": b" \n"}, "token is empty"),
        ({}, {"ca.crt": None}, "No such file"),
        ({}, {"ca.crt": b""}, "ca.crt is empty"),
        ({}, {"ca.crt": b"nonsense"}, "no usable configuration"),
    ],
)
async def test_a_pod_that_lacks_something(
    server: Server,
    client: Client,
    monkeypatch: pytest.MonkeyPatch,
    variables: Mapping[str, str],
    files: Mapping[str, bytes | None],
    words: str,
) -> None:
    trusts_in_a_pod(client, server.authority)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    for name, content in files.items():
        if content is None:
            (client.folder / name).unlink()
        else:
            (client.folder / name).write_bytes(content)
    with pytest.raises(ConfigurationError, match=words):
        await Configuration(None).load()


@pytest.mark.parametrize("proxy", ["socks5://a:secret@b:1080", "http://", "http://[b", "a://b"])
async def test_a_proxy_that_can_not_be_used(
    server: Server, client: Client, monkeypatch: pytest.MonkeyPatch, proxy: str
) -> None:
    trusts_in_a_pod(client, server.authority)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1")
    monkeypatch.setenv("HTTPS_PROXY", proxy)
    with pytest.raises(ConfigurationError, match="must begin with http://") as caught:
        await Configuration(None).load()
    assert "secret" not in str(caught.value)


def test_a_pod_imports_no_models() -> None:
    """They take 35 MiB in each process."""
    program = "import sys, cli.main, controller.app, cluster.questions, certs.agent\n"
    program += "assert not any(name.startswith('kubernetes_asyncio') for name in sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True)
