"""What kube-proxy and DNS are to pods: names of Services lead to the pods behind them."""

import asyncio
import random
import socket
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final

_IP_FREEBIND: Final = 15
"""Linux' socket option: the address need not exist yet."""
_CHUNK: Final = 65536
Endpoints = Callable[[str, Mapping[str, str], int | str], list[tuple[str, int]]]
"""Namespace, selector and target port of a Service → addresses and ports of the ready pods."""


class Proxy:
    """Listens on ``host`` at the ports of Services, and hands connections on."""

    def __init__(self, host: str) -> None:
        self._host = host
        self._services: dict[tuple[str, str], dict[str, Any]] = {}
        self._servers: dict[int, asyncio.Server] = {}

    def names(self) -> dict[str, str]:
        """Names → address, of all Services."""
        names: dict[str, str] = {}
        for namespace, name in self._services:
            short = f"{name}.{namespace}"
            for each in (name, short, f"{short}.svc", f"{short}.svc.cluster.local"):
                names[each] = self._host
        return names

    async def follow(self, services: list[dict[str, Any]], endpoints: Endpoints) -> None:
        """Serve these Services. One port belongs to one of them."""
        self._services = {
            (each["metadata"]["namespace"], each["metadata"]["name"]): each
            for each in services
            if each["spec"].get("selector")
        }
        for namespace, name in self._services:
            for port in self._services[namespace, name]["spec"]["ports"]:
                if port["port"] not in self._servers:
                    self._servers[port["port"]] = await self._serve(
                        (namespace, name), port["port"], endpoints
                    )

    async def _serve(
        self, key: tuple[str, str], number: int, endpoints: Endpoints
    ) -> asyncio.Server:
        async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with suppress(OSError, KeyError, StopIteration):
                spec = self._services[key]["spec"]
                target = next(
                    port["targetPort"] for port in spec["ports"] if port["port"] == number
                )
                ready = endpoints(key[0], spec["selector"], target)
                if ready:
                    await _pump(reader, writer, *random.choice(ready))
            writer.close()

        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.SOL_IP, _IP_FREEBIND, 1)
        listener.bind((self._host, number))
        return await asyncio.start_server(forward, sock=listener)


async def _pump(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: str, port: int
) -> None:
    behind_reader, behind_writer = await asyncio.open_connection(host, port)

    async def copy(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        while data := await source.read(_CHUNK):
            sink.write(data)
            await sink.drain()
        sink.write_eof()

    try:
        await asyncio.gather(copy(reader, behind_writer), copy(behind_reader, writer))
    finally:
        behind_writer.close()
