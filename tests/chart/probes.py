"""Probes of containers, as kubelets make them."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp

Run = Callable[[list[str]], Awaitable[int]]
"""A command in the container → its exit status."""


class Prober:
    """Asks one container."""

    def __init__(self, session: aiohttp.ClientSession, address: str, run: Run) -> None:
        self._session = session
        self._address = address
        self._run = run

    async def passes(self, probe: dict[str, Any], ports: dict[str, int]) -> bool:
        """Whether the answer is good, and in time."""
        try:
            async with asyncio.timeout(probe.get("timeoutSeconds", 1)):
                return await self._ask(probe, ports)
        except (OSError, TimeoutError, aiohttp.ClientError):
            return False

    async def _ask(self, probe: dict[str, Any], ports: dict[str, int]) -> bool:
        if http := probe.get("httpGet"):
            scheme = http.get("scheme", "HTTP").lower()
            port = _port(http["port"], ports)
            url = f"{scheme}://{http.get('host', self._address)}:{port}{http.get('path', '/')}"
            async with self._session.get(url, ssl=False) as answer:
                return 200 <= answer.status < 400
        if tcp := probe.get("tcpSocket"):
            port = _port(tcp["port"], ports)
            _, writer = await asyncio.open_connection(self._address, port)
            writer.close()
            return True
        return await self._run(probe["exec"]["command"]) == 0


def _port(port: int | str, ports: dict[str, int]) -> int:
    return ports[port] if isinstance(port, str) else port
