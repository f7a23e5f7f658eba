"""One pod, from its containers' first start to its end."""

import asyncio
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import aiohttp

from tests.chart.probes import Prober
from tests.chart.sandbox import (
    IMAGE_PATH,
    IMAGE_USER,
    Container,
    Mount,
    Network,
    expand,
    kill,
    terminate,
)
from tests.chart.volumes import Source, Volumes

RESTART_SECONDS: Final = 1.0
"""Pause before a container starts again; kubelets double theirs, beginning with 10 s."""
_POLL_SECONDS: Final = 0.1
_ENTRYPOINT: Final = ("usher",)
"""What images run where the pod says arguments only."""


@dataclass
class Running:
    """One container: its process, and what probes have found out."""

    spec: dict[str, Any]
    process: subprocess.Popen[bytes] | None = None
    restarts: int = -1
    started: bool = False
    ready: bool = False
    last_exit: int | None = None
    tasks: list[asyncio.Task[None]] = field(default_factory=list)

    @property
    def is_sidecar(self) -> bool:
        return self.spec.get("restartPolicy") == "Always"


class PodError(Exception):
    """The pod can't run as it is."""


class Pod:
    """Runs the containers of ``body``, the object as it was when it was bound."""

    def __init__(
        self,
        body: dict[str, Any],
        folder: Path,
        network: Network,
        source: Source,
        cluster: Mapping[str, str],
        hosts: Mapping[str, str],
    ) -> None:
        """``cluster`` are the environment variables of every container, ``hosts`` its names."""
        self.body = body
        self._folder = folder
        self.network = network
        group = body["spec"].get("securityContext", {}).get("fsGroup")
        self.volumes = Volumes(folder / "volumes", group, source, self.field)
        self._cluster = cluster
        self._hosts = hosts
        spec = body["spec"]
        self._init = [Running(each) for each in spec.get("initContainers", [])]
        self._main = [Running(each) for each in spec["containers"]]
        self.message = ""
        self.initialized = False
        self.changed = asyncio.Event()
        self._session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=True))
        self._ending = False

    # --- life ---------------------------------------------------------------------------------

    async def run(self) -> None:
        """Start everything in order; return when all containers have ended for good."""
        await self.volumes.refresh(self.body["spec"].get("volumes", []))
        for each in self._init:
            if each.is_sidecar:
                each.tasks.append(asyncio.create_task(self._keep(each)))
                while not each.started:  # noqa: ASYNC110 - it may stop again
                    await asyncio.sleep(_POLL_SECONDS)
            else:
                await self._complete(each)
        self.initialized = True
        self.changed.set()
        mains = [asyncio.create_task(self._keep(each)) for each in self._main]
        for each, task in zip(self._main, mains, strict=True):
            each.tasks.append(task)
        await asyncio.gather(*mains)
        await self._stop_sidecars()

    async def end(self, grace: float) -> None:
        """Ask all containers to end, kill them after ``grace`` seconds, take the network down."""
        self._ending = True
        deadline = asyncio.get_running_loop().time() + grace
        await self._stop(self._main, deadline)
        await self._stop_sidecars(deadline)
        await self._session.close()
        self.network.close()

    async def _stop_sidecars(self, deadline: float | None = None) -> None:
        self._ending = True
        if deadline is None:
            grace = self.body["spec"].get("terminationGracePeriodSeconds", 30)
            deadline = asyncio.get_running_loop().time() + grace
        for each in reversed(self._init):
            await self._stop([each], deadline)

    async def _stop(self, containers: list[Running], deadline: float) -> None:
        processes = [each.process for each in containers if each.process is not None]
        for process in processes:
            terminate(process)
        while any(process.poll() is None for process in processes):
            if asyncio.get_running_loop().time() >= deadline:
                break
            await asyncio.sleep(_POLL_SECONDS)
        for process in processes:
            kill(process)
        for each in containers:
            each.ready = False
            for task in each.tasks:
                task.cancel()
        self.changed.set()

    async def _complete(self, container: Running) -> None:
        """Run an init container until it succeeds."""
        while True:
            self._start(container)
            status = await self._exit(container)
            if status == 0:
                container.started = container.ready = True
                self.changed.set()
                return
            await asyncio.sleep(RESTART_SECONDS)

    async def _keep(self, container: Running) -> None:
        """Run a container again and again, with its probes, as long as the pod's policy says."""
        policy = self.body["spec"].get("restartPolicy", "Always")
        while True:
            self._start(container)
            probing = asyncio.create_task(self._probe(container))
            try:
                status = await self._exit(container)
            finally:
                probing.cancel()
            container.started = container.ready = False
            self.changed.set()
            is_over = policy == "Never" or (policy == "OnFailure" and status == 0)
            if self._ending or (is_over and not container.is_sidecar):
                return
            await asyncio.sleep(RESTART_SECONDS)

    async def _exit(self, container: Running) -> int:
        process = container.process
        assert process is not None
        while (status := process.poll()) is None:  # noqa: ASYNC110 - not asyncio's process
            await asyncio.sleep(_POLL_SECONDS)
        kill(process)  # whatever else is left of the container
        container.last_exit = status
        return status

    # --- probes -------------------------------------------------------------------------------

    async def _probe(self, container: Running) -> None:
        spec = container.spec
        ports = {
            port["name"]: port["containerPort"] for port in spec.get("ports", []) if "name" in port
        }
        prober = Prober(self._session, self.network.address, lambda run: self._run(container, run))
        if probe := spec.get("startupProbe"):
            await self._until_changed(prober, probe, ports, seen=False)
        container.started = True
        container.ready = "readinessProbe" not in spec
        self.changed.set()
        async with asyncio.TaskGroup() as group:
            if probe := spec.get("livenessProbe"):
                group.create_task(self._liveness(container, prober, probe, ports))
            if probe := spec.get("readinessProbe"):
                group.create_task(self._readiness(container, prober, probe, ports))

    async def _until_changed(
        self, prober: Prober, probe: dict[str, Any], ports: dict[str, int], *, seen: bool
    ) -> None:
        """Return when the answer differs from ``seen`` for as long as the probe wants."""
        await asyncio.sleep(probe.get("initialDelaySeconds", 0))
        wanted = probe.get("failureThreshold", 3) if seen else probe.get("successThreshold", 1)
        count = 0
        while True:
            count = count + 1 if await prober.passes(probe, ports) != seen else 0
            if count >= wanted:
                return
            await asyncio.sleep(probe.get("periodSeconds", 10))

    async def _liveness(
        self, container: Running, prober: Prober, probe: dict[str, Any], ports: dict[str, int]
    ) -> None:
        await self._until_changed(prober, probe, ports, seen=True)
        if container.process is not None and not self._ending:
            terminate(container.process)

    async def _readiness(
        self, container: Running, prober: Prober, probe: dict[str, Any], ports: dict[str, int]
    ) -> None:
        while True:
            await self._until_changed(prober, probe, ports, seen=container.ready)
            container.ready = not container.ready
            self.changed.set()

    async def _run(self, container: Running, command: list[str]) -> int:
        assert container.process is not None
        root = f"/proc/{container.process.pid}/root"
        process = await asyncio.create_subprocess_exec(
            *self.network.entered("chroot", root, *command),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        return await process.wait()

    # --- processes ----------------------------------------------------------------------------

    def _start(self, running: Running) -> None:
        name = running.spec["name"]
        root = self._folder / f"{name}.root"
        root.mkdir(exist_ok=True)
        container = self._container(running.spec)
        running.process = self.network.start(container, root, self._folder / f"{name}.log")
        running.restarts += 1
        (self._folder / f"{name}.pid").write_text(str(running.process.pid))
        self.changed.set()

    def _container(self, spec: dict[str, Any]) -> Container:
        context = {
            **self.body["spec"].get("securityContext", {}),
            **spec.get("securityContext", {}),
        }
        environment = {"PATH": IMAGE_PATH, "HOME": "/", **self._cluster}
        for variable in spec.get("env", []):
            environment[variable["name"]] = expand(self._value(variable), environment)
        command = spec.get("command") or _ENTRYPOINT
        user = context.get("runAsUser", IMAGE_USER)
        group = context.get("fsGroup")
        return Container(
            command=[expand(word, environment) for word in (*command, *spec.get("args", []))],
            environment=environment,
            mounts=[self._mount(mount) for mount in spec.get("volumeMounts", [])],
            user=user,
            group=context.get("runAsGroup", user),
            more_groups=() if group is None else (group,),
            read_only=bool(context.get("readOnlyRootFilesystem")),
            working_directory=spec.get("workingDir", "/"),
            hosts={**self._hosts, self.body["metadata"]["name"]: self.network.address},
        )

    def _mount(self, mount: dict[str, Any]) -> Mount:
        source = self.volumes.path(mount["name"]) / mount.get("subPath", "")
        return Mount(source, mount["mountPath"], bool(mount.get("readOnly")))

    def _value(self, variable: dict[str, Any]) -> str:
        if source := variable.get("valueFrom"):
            return self.field(source["fieldRef"]["fieldPath"])
        return str(variable.get("value", ""))

    def field(self, path: str) -> str:
        """What the downward API says."""
        own = {"status.podIP": self.network.address, "status.podIPs": self.network.address}
        if path in own:
            return own[path]
        value: Any = self.body
        for key in path.partition("[")[0].split("."):
            value = value.get(key, {})
        if "[" in path:
            value = value.get(path.partition("[")[2].strip("]'\""), "")
        if not isinstance(value, str):
            raise PodError(f"fieldRef {path} is not known here")
        return value

    def port(self, port: int | str) -> int:
        """The number of a port of one of the containers."""
        if isinstance(port, int):
            return port
        every = [each for one in (*self._main, *self._init) for each in one.spec.get("ports", [])]
        return next(int(each["containerPort"]) for each in every if each.get("name") == port)

    # --- status -------------------------------------------------------------------------------

    @property
    def is_ready(self) -> bool:
        """Whether it may be sent requests."""
        lasting = [*self._main, *(each for each in self._init if each.is_sidecar)]
        return self.initialized and not self._ending and all(each.ready for each in lasting)

    def status(self) -> dict[str, Any]:
        """The pod's status, for a strategic merge patch."""
        conditions = {
            "PodScheduled": True,
            "Initialized": self.initialized,
            "ContainersReady": self.is_ready,
            "Ready": self.is_ready,
        }
        return {
            "phase": self._phase(),
            "message": self.message or None,
            "podIP": self.network.address,
            "podIPs": [{"ip": self.network.address}],
            "startTime": self.body["metadata"]["creationTimestamp"],
            "conditions": [
                {"type": kind, "status": str(value), "lastProbeTime": None}
                for kind, value in conditions.items()
            ],
            "initContainerStatuses": [_shown(each) for each in self._init],
            "containerStatuses": [_shown(each) for each in self._main],
        }

    def _phase(self) -> str:
        if not self.initialized:
            return "Pending"
        states = [each.process.poll() if each.process else None for each in self._main]
        if any(state is None for state in states):
            return "Running"
        if self.body["spec"].get("restartPolicy", "Always") == "Always" and not self._ending:
            return "Running"
        return "Failed" if any(states) else "Succeeded"


def _shown(container: Running) -> dict[str, Any]:
    spec, process = container.spec, container.process
    state: dict[str, Any] = {"waiting": {"reason": "PodInitializing"}}
    if process is not None:
        code = process.poll()
        ended = {"exitCode": abs(code or 0), "reason": "Completed" if code == 0 else "Error"}
        state = {"running": {}} if code is None else {"terminated": ended}
    return {
        "name": spec["name"],
        "image": spec["image"],
        "imageID": spec["image"],
        "ready": container.ready,
        "started": container.started,
        "restartCount": max(container.restarts, 0),
        "state": state,
    }
