"""A watch whose API server vanishes from the network. To be run in a network namespace.

It prints what the client makes of that. The server stands in another namespace, at the other end of
a virtual cable, and loses its address: packets to it arrive, and nobody answers.
"""

import asyncio
import json
import os
import subprocess
import sys
from contextlib import aclosing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Final
from unittest.mock import patch

from cluster import connections
from cluster.client import Cluster
from cluster.failures import ClusterFailure
from cluster.resources import PODS

_CLIENT, _SERVER, _PORT = "100.64.0.1", "100.64.0.2", 8080
_CABLE, _OTHER_END = "cable0", "cable1"
_HASTE: Final = {
    "TCP_KEEPIDLE": 1,
    "TCP_KEEPINTVL": 1,
    "TCP_KEEPCNT": 2,
    "TCP_USER_TIMEOUT": 3000,
}
_KUBECONFIG: Final = {
    "current-context": "c",
    "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
    "clusters": [{"name": "c", "cluster": {"server": f"http://{_SERVER}:{_PORT}"}}],
    "users": [{"name": "u", "user": {"token": "secret"}}],
}
_EVENT: Final = b'{"type":"ADDED","object":{"metadata":{"name":"a","resourceVersion":"7"}}}\n'
_ANSWER: Final = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n" % (
    len(_EVENT),
    _EVENT,
)


def main() -> None:
    """Be the server if told so, else the client with a server of its own."""
    if sys.argv[1:] == ["serve"]:
        asyncio.run(_serve())
        return
    _ip("link", "add", _CABLE, "type", "veth", "peer", "name", _OTHER_END)
    _ip("address", "add", f"{_CLIENT}/24", "dev", _CABLE)
    _ip("link", "set", _CABLE, "up")
    command = ["unshare", "--net", sys.executable, "-m", __spec__.name, "serve"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        server.stdout.readline()  # it has a namespace of its own
        _ip("link", "set", _OTHER_END, "netns", str(server.pid))
        _tell(server.stdin, server.stdout)
        with patch.object(connections, "_TCP_OPTIONS", _HASTE), TemporaryDirectory() as folder:
            kubeconfig = Path(folder, "kubeconfig")
            kubeconfig.write_text(json.dumps(_KUBECONFIG))
            print(asyncio.run(_watch(kubeconfig, server.stdin, server.stdout)))
        server.kill()


def _tell(stdin: IO[bytes], stdout: IO[bytes]) -> None:
    """Let the server do the next thing, and wait until it is done."""
    stdin.write(b"\n")
    stdin.flush()
    stdout.readline()


async def _watch(kubeconfig: Path, stdin: IO[bytes], stdout: IO[bytes]) -> str:
    async with (
        Cluster(kubeconfig, "usher-test") as cluster,
        aclosing(cluster.watch(PODS, "1")) as events,
    ):
        try:
            await anext(events)
            _tell(stdin, stdout)
            await anext(events)
        except StopAsyncIteration:
            return "the watch ended"
        except ClusterFailure as failure:
            return f"{type(failure).__name__}: {failure}"
        return "an event came out of nowhere"


async def _serve() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(_ANSWER)

    print(os.getpid(), flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    _ip("address", "add", f"{_SERVER}/24", "dev", _OTHER_END)
    _ip("link", "set", _OTHER_END, "up")
    server = await asyncio.start_server(answer, _SERVER, _PORT)
    print("listening", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    _ip("address", "flush", "dev", _OTHER_END)
    print("gone", flush=True)
    await server.serve_forever()


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


if __name__ == "__main__":
    main()
