"""A reverse proxy before a real API server: slow, loses answers, spoils watches, has wrong time."""

import asyncio
import ssl
import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from email.utils import format_datetime, parsedate_to_datetime
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple, Self

import aiohttp
from aiohttp import web

from tests.controlplane import ControlPlane
from tests.patience import PATIENCE

_HOST: Final = "127.0.0.1"
_HOP_BY_HOP: Final = ("host", "connection", "content-length", "transfer-encoding")
_DATE: Final = "Date"
_LOOK_SECONDS: Final = 0.05
_TOO_OLD: Final = {"kind": "Status", "status": "Failure", "code": 410, "message": "too old"}


class Seen(NamedTuple):
    """A request that has arrived."""

    method: str
    path: str
    is_watch: bool

    @property
    def is_write(self) -> bool:
        """Whether it changes anything that matters: neither the lease nor an Event."""
        return self.method != "GET" and not {"leases", "events"} & set(self.path.split("/"))


Judge = Callable[[Seen], bool]


class Proxy:
    """Serves plain HTTP in a thread of its own; everything may be changed at any time."""

    def __init__(self, plane: ControlPlane) -> None:
        self.delay = 0.0
        """Seconds that each answer, and each piece of a watch, is held back."""
        self.loses: Judge = lambda _: False
        """Which requests work, but never get an answer: the connection is cut."""
        self.holds: Judge = lambda _: False
        """Which requests are not passed on, as long as that is so."""
        self.hangs: Judge = lambda _: False
        """Which requests work, but are never answered: the connection stays open."""
        self.mutes: Judge = lambda _: False
        """Which watches stay open, and say nothing."""
        self.ahead = timedelta()
        """By how much the API server's clock is ahead in what answers say."""
        self.ends_watches = False
        """Watches end at once, in good order."""
        self.forgets = 0
        """So many watches are told that their version is too old."""
        self.seen: list[Seen] = []
        self._plane = plane
        self._transports: set[asyncio.Transport] = set()
        self._muted: set[aiohttp.ClientResponse] = set()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()))

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(PATIENCE)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    def kubeconfig(self, folder: Path, identity: str = "admin") -> Path:
        """A kubeconfig that leads here."""
        text = self._plane.kubeconfig(identity).read_text()
        assert self._plane.url in text
        path = folder / "proxied.kubeconfig"
        path.write_text(text.replace(self._plane.url, f"http://{_HOST}:{self._port}"))
        return path

    def cut_connections(self) -> None:
        """Cut all connections of the moment."""

        def cut() -> None:
            for transport in self._transports:
                transport.abort()
            self._transports.clear()

        self._loop.call_soon_threadsafe(cut)

    def end_muted(self) -> None:
        """End the watches that have swallowed something, in good order."""

        def end() -> None:
            for answer in self._muted:
                answer.close()
            self._muted.clear()

        self._loop.call_soon_threadsafe(end)

    def lists(self) -> int:
        """How many lists were asked for."""
        return sum(s.method == "GET" and not s.is_watch and s.path[-1] == "s" for s in self.seen)

    async def _serve(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        tls = ssl.create_default_context(cafile=str(self._plane.ca_file))
        timeout = aiohttp.ClientTimeout()
        async with aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=tls, limit=0),
            auto_decompress=False,
            timeout=timeout,
        ) as self._session:
            application = web.Application()
            application.router.add_route("*", "/{path:.*}", self._handle)
            runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
            await runner.setup()
            await web.TCPSite(runner, _HOST, 0).start()
            self._port = runner.addresses[0][1]
            self._ready.set()
            await self._stop.wait()
            await runner.cleanup()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        seen = Seen(request.method, request.path, "watch" in request.query)
        self.seen.append(seen)
        if request.transport is not None:
            self._transports.add(request.transport)
        response = web.StreamResponse()
        if seen.is_watch and self.forgets > 0:
            self.forgets -= 1
            return web.json_response(_TOO_OLD, status=410)
        if seen.is_watch and self.ends_watches:
            await response.prepare(request)
            return response
        with suppress(aiohttp.ClientError, ConnectionError):
            await self._pass_on(request, seen, response)
        return response

    async def _pass_on(
        self, request: web.Request, seen: Seen, response: web.StreamResponse
    ) -> None:
        url, body = self._plane.url + request.raw_path, await request.read()
        while self.holds(seen):  # noqa: ASYNC110 - nobody else knows when that changes
            await asyncio.sleep(_LOOK_SECONDS)
        headers = {n: v for n, v in request.headers.items() if n.lower() not in _HOP_BY_HOP}
        async with self._session.request(request.method, url, data=body, headers=headers) as answer:
            await asyncio.sleep(self.delay)
            if self.loses(seen) and request.transport is not None:
                request.transport.abort()
                return
            if self.hangs(seen):
                await self._stop.wait()
                return
            response.set_status(answer.status)
            for name, value in answer.headers.items():
                if name.lower() not in _HOP_BY_HOP:
                    response.headers[name] = value
            response.headers[_DATE] = _later(answer.headers[_DATE], self.ahead)
            await response.prepare(request)
            async for piece in answer.content.iter_any():
                if seen.is_watch and self.mutes(seen):
                    self._muted.add(answer)
                    continue
                await asyncio.sleep(self.delay if seen.is_watch else 0)
                await response.write(piece)


def _later(date: str, span: timedelta) -> str:
    return format_datetime(parsedate_to_datetime(date) + span, usegmt=True)
