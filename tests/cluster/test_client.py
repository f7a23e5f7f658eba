"""Requests as an API server gets them, and what becomes of answers that are late or cut off."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
import yaml
from aiohttp import web
from aiohttp.test_utils import TestServer

from cluster import client as cluster_module
from cluster import clock
from cluster.client import Cluster
from cluster.failures import Denied, Gone, ServerFailure, Silent, Unreachable
from cluster.key import Key
from cluster.resources import EVICTIONS, PODS
from cluster.store import metadata_of

KEY: Final = Key("default", "pod-1-web")
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Server:
    """An API server of one handler."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "kubeconfig"
        self.handler: Handler = self.echo
        self.requests: list[web.Request] = []

    async def echo(self, request: web.Request) -> web.Response:
        return web.json_response(await request.json() if request.can_read_body else {})

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(request)
        return await self.handler(request)

    def kubeconfig(self, url: str) -> Path:
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [{"name": "c", "cluster": {"server": url}}],
            "users": [{"name": "u", "user": {"token": "secret"}}],
        }
        self._file.write_text(yaml.safe_dump(content))
        return self._file


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    server = Server(tmp_path)
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", server.handle)
    async with TestServer(application) as running:
        server.kubeconfig(str(running.make_url("/")).rstrip("/"))
        yield server


@pytest.fixture
async def cluster(server: Server) -> AsyncIterator[Cluster]:
    async with Cluster(server._file, "usher-test") as cluster:
        yield cluster


async def test_an_apply_says_who_and_what(server: Server, cluster: Cluster) -> None:
    document = {"metadata": {"name": KEY.name}, "umlaut": "ü"}
    answer = await cluster.apply(EVICTIONS, KEY, document, subresource="status", manager="me")
    assert msgspec.json.decode(answer) == document
    (request,) = server.requests
    prefix = "/apis/lifecycle.k8s.io/v1alpha1/namespaces/default/evictions"
    assert request.path_qs == f"{prefix}/pod-1-web/status?fieldManager=me&force=true"
    assert request.headers["Authorization"] == "Bearer secret"
    assert request.headers["Content-Type"] == "application/apply-patch+yaml"
    assert request.headers["User-Agent"] == "usher-test"


async def test_continue_tokens_arrive_as_they_were_given(server: Server, cluster: Cluster) -> None:
    token = "a+b/c==&x=1"

    async def page(request: web.Request) -> web.Response:
        more = "" if "continue" in request.query else token
        return web.json_response({"metadata": {"resourceVersion": "5", "continue": more}})

    server.handler = page
    pages = [page async for page in cluster.pages(PODS)]
    assert [page.version for page in pages] == ["5", "5"]
    assert server.requests[1].query["continue"] == token


async def test_a_credential_that_has_expired_is_read_again(
    server: Server, cluster: Cluster
) -> None:
    async def pick(request: web.Request) -> web.Response:
        status = 200 if request.headers["Authorization"] == "Bearer new" else 401
        return web.json_response({}, status=status)

    server.handler = pick
    server._file.write_text(server._file.read_text().replace("secret", "new"))
    assert await cluster.get(EVICTIONS, KEY) == {}


_PROTOBUF: Final = "application/vnd.kubernetes.protobuf"


@pytest.mark.parametrize(
    ("status", "content_type", "built_in"),
    [
        (404, _PROTOBUF, True),
        (200, _PROTOBUF, True),
        (406, _PROTOBUF, False),
        (406, "application/json", False),
        (404, "text/plain", False),  # nobody serves the group
        (200, "application/json", False),
    ],
)
async def test_who_serves_a_resource_shows_in_the_answer(
    server: Server, cluster: Cluster, status: int, content_type: str, *, built_in: bool
) -> None:
    async def answer(_: web.Request) -> web.Response:
        return web.Response(status=status, content_type=content_type, body=b"k8s\x00")

    server.handler = answer
    assert await cluster.is_built_in(EVICTIONS) is built_in
    (request,) = server.requests
    assert request.path.endswith("/namespaces/default/evictions/usher-probe")
    assert request.headers["Accept"] == _PROTOBUF


async def test_without_an_answer_nobody_knows_who_serves_a_resource(
    server: Server, cluster: Cluster
) -> None:
    statuses = iter([403, 403, 401, 401, 401, 401, 500, 500])

    async def answer(request: web.Request) -> web.Response:
        status = next(statuses)
        if request.headers["Accept"] == _PROTOBUF:
            return web.Response(status=status, content_type=_PROTOBUF, body=b"k8s\x00")
        message = 'evictions "usher-probe" is forbidden: User "u" cannot get resource'
        return web.json_response({"message": message}, status=status)

    server.handler = answer
    for kind in (Denied, Denied, ServerFailure):
        with pytest.raises(kind, match="cannot get resource"):
            await cluster.is_built_in(EVICTIONS)


async def test_who_serves_a_resource_is_asked_with_new_credentials(
    server: Server, cluster: Cluster
) -> None:
    async def pick(request: web.Request) -> web.Response:
        status = 404 if request.headers["Authorization"] == "Bearer new" else 401
        return web.Response(status=status, content_type=_PROTOBUF)

    server.handler = pick
    server._file.write_text(server._file.read_text().replace("secret", "new"))
    assert await cluster.is_built_in(EVICTIONS)


async def test_a_dry_run_says_so(server: Server, cluster: Cluster) -> None:
    await cluster.create(EVICTIONS, "default", {}, dry_run=True)
    await cluster.create(EVICTIONS, "default", {})
    assert [request.query_string for request in server.requests] == ["dryRun=All", ""]


async def test_the_clocks_are_compared(
    server: Server, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    dates = ["Wed, 01 Jul 2026 12:00:00 GMT", "", "nonsense"]
    ours = datetime(2026, 7, 1, 13, tzinfo=UTC)
    monkeypatch.setattr(clock, "now", lambda: ours)

    async def dated(_: web.Request) -> web.Response:
        return web.json_response({}, headers={"Date": dates.pop(0)})

    server.handler = dated
    assert cluster.has_right_time
    for _ in range(3):
        await cluster.get(EVICTIONS, KEY)
        assert abs(cluster.clock_ahead - timedelta(hours=1)) < timedelta(seconds=2)
        assert not cluster.has_right_time
    dates.append("Wed, 01 Jul 2026 13:00:29 GMT")
    await cluster.get(EVICTIONS, KEY)
    assert cluster.has_right_time


async def test_each_request_is_observed_once(server: Server) -> None:
    seen: list[tuple[str, str, str]] = []

    async def refuse(_: web.Request) -> web.Response:
        return web.json_response({}, status=401)

    async def lose(request: web.Request) -> web.Response:
        await cut_off(request)
        return web.Response()

    def observe(verb: str, resource: str, code: str, seconds: float) -> None:
        assert seconds >= 0
        seen.append((verb, resource, code))

    async with Cluster(server._file, "usher-test", observe=observe) as cluster:
        await cluster.apply(EVICTIONS, KEY, {}, subresource="status", manager="me")
        server.handler = streaming(EVENT, EVENT)
        await watched(cluster)
        server.handler = refuse
        with pytest.raises(Denied):
            await cluster.get(PODS, KEY)
        server.handler = lose
        with pytest.raises(Unreachable):
            await cluster.create(PODS, "default", {})
    assert seen == [
        ("patch", "evictions/status", "200"),
        ("watch", "pods", "200"),
        ("get", "pods", "401"),  # and once more, with new credentials
        ("get", "pods", "401"),
        ("create", "pods", "<error>"),
    ]


# --- answers that are late, cut or missing ------------------------------------------------------


async def never(_: web.Request) -> web.StreamResponse:
    await asyncio.get_running_loop().create_future()
    raise AssertionError


def streaming(
    *lines: bytes, then: Callable[[web.Request], Awaitable[Any]] | None = None
) -> Handler:
    """A watch that sends ``lines``; ``then`` it ends, or does what is said."""

    async def handler(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for line in lines:
            await response.write(line)
        if then:
            await then(request)
        return response

    return handler


async def cut_off(request: web.Request) -> None:
    assert request.transport is not None
    request.transport.abort()


EVENT: Final = b'{"type":"ADDED","object":{"metadata":{"name":"a","resourceVersion":"7"}}}\n'


async def watched(cluster: Cluster) -> list[str]:
    async with aclosing(cluster.watch(PODS, "5")) as events:
        return [metadata_of(event.object).name async for event in events]


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Patience of a moment."""
    monkeypatch.setattr(cluster_module, "_PATIENCE_SECONDS", 0.2)
    monkeypatch.setattr(cluster_module, "_WATCH_SILENCE_SECONDS", 0.2)
    monkeypatch.setattr(cluster_module, "_WATCH_PATIENCE_SECONDS", 1.0)


async def test_no_answer_in_time(hasty: None, server: Server, cluster: Cluster) -> None:
    server.handler = never
    with pytest.raises(Unreachable):
        await cluster.get(EVICTIONS, KEY)


async def test_half_an_answer(server: Server, cluster: Cluster) -> None:
    server.handler = streaming(b'{"metadata":', then=cut_off)
    with pytest.raises(Unreachable):
        await cluster.get(EVICTIONS, KEY)


async def test_an_answer_that_is_no_json(server: Server, cluster: Cluster) -> None:
    server.handler = streaming(b"<html>")
    with pytest.raises(ServerFailure):
        await cluster.get(EVICTIONS, KEY)


async def test_a_watch_that_tells_nothing_more_is_to_be_taken_up_again(
    hasty: None, server: Server, cluster: Cluster
) -> None:
    server.handler = streaming(EVENT, then=never)
    assert await watched(cluster) == ["a"]


async def test_a_watch_that_never_tells_anything(
    hasty: None, server: Server, cluster: Cluster
) -> None:
    server.handler = streaming(then=never)
    with pytest.raises(Silent):
        await watched(cluster)


async def test_a_watch_may_tell_nothing_before_its_end(
    hasty: None, server: Server, cluster: Cluster
) -> None:
    # No API server has to send bookmarks: this is longer than the silence after a sign of life.
    server.handler = streaming(then=lambda _: asyncio.sleep(0.4))
    assert await watched(cluster) == []


async def test_a_watch_of_which_nothing_is_heard(
    hasty: None, server: Server, cluster: Cluster
) -> None:
    server.handler = never
    with pytest.raises(Unreachable):
        await watched(cluster)


async def test_watches_do_not_end_together(server: Server, cluster: Cluster) -> None:
    server.handler = streaming(EVENT)
    for _ in range(20):
        await watched(cluster)
    asked = {int(request.query["timeoutSeconds"]) for request in server.requests}
    assert len(asked) > 1
    assert min(asked) >= 300
    assert max(asked) + 30 < cluster_module._WATCH_PATIENCE_SECONDS


async def test_a_watch_that_ends_in_order(server: Server, cluster: Cluster) -> None:
    server.handler = streaming(EVENT, EVENT)
    assert await watched(cluster) == ["a", "a"]


async def test_a_watch_that_is_cut_off(server: Server, cluster: Cluster) -> None:
    server.handler = streaming(EVENT, EVENT[:20], then=cut_off)
    with pytest.raises(Unreachable):
        await watched(cluster)


async def test_a_watch_that_ends_in_half_a_line(server: Server, cluster: Cluster) -> None:
    server.handler = streaming(EVENT[:20])
    with pytest.raises(ServerFailure):
        await watched(cluster)


TOO_OLD: Final = b'{"kind":"Status","code":410,"message":"too old"}'


async def test_a_version_that_is_too_old(server: Server, cluster: Cluster) -> None:
    async def answer(_: web.Request) -> web.Response:
        return web.Response(status=410, body=TOO_OLD, content_type="application/json")

    server.handler = answer
    with pytest.raises(Gone):
        await watched(cluster)


async def test_a_version_that_turns_out_to_be_too_old(server: Server, cluster: Cluster) -> None:
    server.handler = streaming(b'{"type":"ERROR","object":' + TOO_OLD + b"}\n")
    with pytest.raises(Gone):
        await watched(cluster)
