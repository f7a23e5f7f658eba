"""A kubelet for tests: runs the pods of a cluster as processes of this machine. Needs root.

``python -m tests.chart.kubelet`` takes all pods that no other node has, and keeps in ``--folder``
for each container a log (``NAMESPACE_POD/CONTAINER.log``) and a process id (``….pid``). It is
scheduler, kubelet, container runtime (``sandbox``), network and DNS; there is no kube-proxy:
whoever connects to a Service from a pod gets to one of the addresses behind it.
"""

import argparse
import asyncio
import ipaddress
import json
import signal
import ssl
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from itertools import count
from pathlib import Path
from typing import Any, Final

import aiohttp
import yaml

from rules.times import format_time
from tests.chart.pods import Pod
from tests.chart.proxy import Proxy
from tests.chart.sandbox import Network
from tests.chart.volumes import MissingError
from tests.e2e.times import now

_POLL_SECONDS: Final = 0.2
_REFRESH_SECONDS: Final = 2.0
"""How often volumes are looked at; kubelets take up to a minute and more."""
_GONE: Final = (HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT)
_STRATEGIC: Final = "application/strategic-merge-patch+json"
_API_NAME: Final = "kubernetes.default.svc"


class Api:
    """The API server."""

    def __init__(self, session: aiohttp.ClientSession, url: str, tls: ssl.SSLContext) -> None:
        self._session = session
        self._url = url
        self._tls = tls

    async def call(
        self, method: str, path: str, body: Any = None, kind: str = "application/json"
    ) -> tuple[int, dict[str, Any]]:
        """One request below ``/api/v1``."""
        async with self._session.request(
            method,
            f"{self._url}/api/v1/{path}",
            data=None if body is None else json.dumps(body),
            headers={"Content-Type": kind},
            ssl=self._tls,
        ) as answer:
            return answer.status, await answer.json()


class _Source:
    """What the volumes of a pod are filled with."""

    def __init__(self, api: Api, body: dict[str, Any]) -> None:
        self._api = api
        self._body = body
        self._namespace = f"namespaces/{body['metadata']['namespace']}"

    async def read(self, path: str) -> dict[str, Any] | None:
        status, found = await self._api.call("GET", f"{self._namespace}/{path}")
        return found if status == HTTPStatus.OK else None

    async def token(self, wanted: Mapping[str, Any]) -> str:
        reference = {key: self._body["metadata"][key] for key in ("name", "uid")}
        body = {
            "spec": {
                "audiences": [wanted["audience"]] if "audience" in wanted else [],
                "expirationSeconds": wanted.get("expirationSeconds", 3600),
                "boundObjectRef": {"kind": "Pod", "apiVersion": "v1", **reference},
            }
        }
        account = self._body["spec"].get("serviceAccountName", "default")
        path = f"{self._namespace}/serviceaccounts/{account}/token"
        status, answer = await self._api.call("POST", path, body)
        if status != HTTPStatus.CREATED:
            raise MissingError(answer.get("message", "no token"))
        return str(answer["status"]["token"])


@dataclass
class Entry:
    """A pod here, and who looks after it."""

    pod: Pod
    tasks: list[asyncio.Task[None]]
    ending: asyncio.Task[None] | None = None


class Kubelet:
    """Runs what is bound to ``node``, and binds what is not bound yet."""

    def __init__(self, api: Api, node: str, folder: Path, network: str, port: int) -> None:
        """``network`` is what pods have addresses of; its first is this machine's."""
        self._api = api
        self._node = node
        self._folder = folder
        addresses = (str(each) for each in ipaddress.ip_network(network).hosts())
        self._host = next(addresses)
        self._addresses = addresses
        self._numbers = count()
        self._environment = {
            "KUBERNETES_SERVICE_HOST": _API_NAME,
            "KUBERNETES_SERVICE_PORT": str(port),
        }
        self._entries: dict[str, Entry] = {}
        self._proxy = Proxy(self._host)

    async def run(self) -> None:
        """Look at all pods again and again."""
        await self._api.call("POST", "nodes", {"metadata": {"name": self._node}})
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
        status = {"status": {"conditions": [ready]}}
        await self._api.call("PATCH", f"nodes/{self._node}/status", status, _STRATEGIC)
        while True:
            with suppress(aiohttp.ClientError, OSError):
                _, listed = await self._api.call("GET", "pods?resourceVersion=0")
                if "items" in listed:
                    await self._look_at_services()  # pods are told their names
                    await self._look(listed["items"])
            await asyncio.sleep(_POLL_SECONDS)

    async def _look_at_services(self) -> None:
        _, services = await self._api.call("GET", "services?resourceVersion=0")
        await self._proxy.follow(services["items"], self._endpoints)

    def _endpoints(
        self, namespace: str, selector: Mapping[str, str], port: int | str
    ) -> list[tuple[str, int]]:
        return [
            (entry.pod.network.address, entry.pod.port(port))
            for entry in self._entries.values()
            if entry.pod.body["metadata"]["namespace"] == namespace
            and selector.items() <= entry.pod.body["metadata"].get("labels", {}).items()
            and entry.pod.is_ready
        ]

    async def _look(self, pods: list[dict[str, Any]]) -> None:
        present = {pod["metadata"]["uid"] for pod in pods}
        for uid, entry in self._entries.items():
            if uid not in present and entry.ending is None:
                entry.ending = asyncio.create_task(self._end(entry, grace=0))
        for body in pods:
            metadata, spec = body["metadata"], body["spec"]
            known = self._entries.get(metadata["uid"])
            if known is None and spec.get("nodeName") in (None, "", self._node):
                await self._admit(body)
            elif known and known.ending is None and "deletionTimestamp" in metadata:
                grace = metadata.get("deletionGracePeriodSeconds", 30)
                known.ending = asyncio.create_task(self._end(known, grace))

    async def _admit(self, body: dict[str, Any]) -> None:
        path = _path(body)
        if "deletionTimestamp" in body["metadata"]:
            await self._delete(body)
            return
        if not body["spec"].get("nodeName"):
            target = {"target": {"kind": "Node", "name": self._node}}
            status, _ = await self._api.call(
                "POST",
                f"{path}/binding",
                {"metadata": {"name": body["metadata"]["name"]}, **target},
            )
            if status >= HTTPStatus.BAD_REQUEST:
                return
            _, body = await self._api.call("GET", path)
            if "uid" not in body.get("metadata", {}):
                return
        pod = self._pod(body)
        entry = Entry(pod, [])
        self._entries[body["metadata"]["uid"]] = entry
        entry.tasks += [asyncio.create_task(self._run(pod)), asyncio.create_task(self._show(pod))]

    def _pod(self, body: dict[str, Any]) -> Pod:
        metadata = body["metadata"]
        folder = self._folder / f"{metadata['namespace']}_{metadata['name']}"
        folder.mkdir(parents=True, exist_ok=True)
        interface = f"u{self._host.split('.', 1)[1].replace('.', '')}p{next(self._numbers)}"
        network = Network(metadata["name"], interface, next(self._addresses), self._host)
        hosts = {_API_NAME: self._host, **self._proxy.names()}
        return Pod(body, folder, network, _Source(self._api, body), self._environment, hosts)

    async def _run(self, pod: Pod) -> None:
        while True:
            try:
                await pod.run()
            except (MissingError, aiohttp.ClientError, OSError) as error:
                pod.message = str(error)
                pod.changed.set()
                await asyncio.sleep(_REFRESH_SECONDS)
            else:
                pod.changed.set()
                return

    async def _show(self, pod: Pod) -> None:
        """Report the pod's status when it changes, and keep its volumes fresh meanwhile."""
        shown = None
        while True:
            status = pod.status()
            if status != shown:
                body = {"metadata": {"uid": pod.body["metadata"]["uid"]}, "status": _dated(status)}
                with suppress(aiohttp.ClientError, OSError):
                    code, _ = await self._api.call(
                        "PATCH", f"{_path(pod.body)}/status", body, _STRATEGIC
                    )
                    if code == HTTPStatus.OK:
                        shown = status
            try:
                async with asyncio.timeout(_REFRESH_SECONDS):
                    await pod.changed.wait()
                pod.changed.clear()
            except TimeoutError:
                with suppress(MissingError, aiohttp.ClientError, OSError):
                    await pod.volumes.refresh(pod.body["spec"].get("volumes", []))

    async def _end(self, entry: Entry, grace: float) -> None:
        entry.tasks[0].cancel()
        await entry.pod.end(grace)
        entry.tasks[1].cancel()
        await self._delete(entry.pod.body)
        del self._entries[entry.pod.body["metadata"]["uid"]]

    async def _delete(self, body: dict[str, Any]) -> None:
        options = {"gracePeriodSeconds": 0, "preconditions": {"uid": body["metadata"]["uid"]}}
        while True:
            with suppress(aiohttp.ClientError, OSError):
                status, _ = await self._api.call("DELETE", _path(body), options)
                if status == HTTPStatus.OK or status in _GONE:
                    return
            await asyncio.sleep(_POLL_SECONDS)


def _path(body: dict[str, Any]) -> str:
    metadata = body["metadata"]
    return f"namespaces/{metadata['namespace']}/pods/{metadata['name']}"


def _dated(status: dict[str, Any]) -> dict[str, Any]:
    instant = format_time(now())
    conditions = [{**each, "lastTransitionTime": instant} for each in status["conditions"]]
    return {**status, "conditions": conditions}


async def _main(options: argparse.Namespace) -> None:
    config = yaml.safe_load(options.kubeconfig.read_text())
    url = config["clusters"][0]["cluster"]["server"]
    tls = ssl.create_default_context(cafile=str(options.ca_file))
    headers = {"Authorization": f"Bearer {config['users'][0]['user']['token']}"}
    async with aiohttp.ClientSession(headers=headers) as session:
        kubelet = Kubelet(
            Api(session, url, tls),
            options.node,
            options.folder,
            options.network,
            int(url.rpartition(":")[2]),
        )
        await kubelet.run()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.chart.kubelet", description=__doc__)
    parser.add_argument("--kubeconfig", type=Path, required=True)
    parser.add_argument("--ca-file", type=Path, required=True)
    parser.add_argument("--folder", type=Path, required=True, help="for logs and volumes")
    parser.add_argument("--network", required=True, help="addresses of pods, such as 100.64.1.0/24")
    parser.add_argument("--node", default="node-0")
    return parser.parse_args()


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with suppress(KeyboardInterrupt):
        asyncio.run(_main(_options()))
    sys.exit(0)
