"""How long one tenant waits for what another one does, on a real API server (1.37.2, native).

Prints, for each scene, the longest time from a request to its Eviction, and to the end of its pod,
of a few pods in a namespace of their own; first where nothing else happens. Part of
``make bench-controller``.
"""

import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from tests.controller.contenders import USHER, peak_megabytes, started
from tests.controller.eviction_admission import eviction_admission
from tests.controller.program import NODE, Users, reasons
from tests.controlplane import ControlPlane, Mode
from tests.e2e.api import Object
from tests.e2e.cluster import Cluster
from tests.e2e.waiting import eventually

SLOW: Final = 250
SLOW_SECONDS: Final = 3.0
"""What an admission webhook takes for each of so many evictions."""
WITHDRAWN: Final = 4000
CROWD: Final = 10_000
_SAMPLES: Final = 5
_CLIENTS: Final = 6
_POLL_SECONDS: Final = 0.02


class Delays(NamedTuple):
    """Seconds, the longest of all samples."""

    eviction: float
    end: float

    def __str__(self) -> str:
        return f"Eviction after {self.eviction:.2f} s, pod gone after {self.end:.2f} s"


def main() -> None:
    """Measure every scene, and print it."""
    with (
        ControlPlane(Mode.NATIVE) as plane,
        tempfile.TemporaryDirectory() as folder,
    ):
        cluster = Cluster(plane)
        plane.start_controller_manager()
        plane.start_kubelet(NODE)
        with started(USHER, plane.kubeconfig(), Path(folder)) as process:
            _delays(Users(cluster))  # it has begun by then
            for scene in (_nothing, _slow_evictions, _withdrawals, _crowd):
                with scene(Users(cluster), Path(folder)) as what:
                    print(f"{what}: {_delays(Users(cluster))}", flush=True)
            assert process.pid is not None
            print(f"the controller took {peak_megabytes(process.pid):.0f} MB at most")
        cluster.close()


def _delays(users: Users) -> Delays:
    pods = [users.create_pod(f"web-{number}") for number in range(_SAMPLES)]
    eventually(lambda: all(map(_runs, users.list("pods"))), "the pods run")
    delays = [_delay(users, pod) for pod in pods]
    return Delays(max(each.eviction for each in delays), max(each.end for each in delays))


def _runs(pod: Object) -> bool:
    return bool(pod["status"]["phase"] == "Running")


def _delay(users: Users, pod: Object) -> Delays:
    name = pod["metadata"]["name"]
    began = time.monotonic()
    users.request(pod, f"drain-{name}")

    def seconds(condition: Callable[[], bool]) -> float:
        while not condition():
            time.sleep(_POLL_SECONDS)
        return time.monotonic() - began

    def is_told() -> bool:
        found = users.get("evictionrequests", f"drain-{name}")
        return found is not None and "PodDeleted" in reasons(found)

    created = seconds(lambda: users.get("evictions", f"pod-1-{name}") is not None)
    return Delays(created, seconds(is_told))


@contextmanager
def _nothing(users: Users, folder: Path) -> Iterator[str]:
    del users, folder
    yield "nothing else happens"


@contextmanager
def _slow_evictions(users: Users, folder: Path) -> Iterator[str]:
    with eviction_admission(users, folder, seconds=SLOW_SECONDS) as admission:

        def make(number: int) -> None:
            users.request(users.create_pod(f"web-{number}"), f"drain-{number}")

        _for_all(make, SLOW)
        eventually(lambda: admission.waiting > 0, "the calls are under way")
        yield f"{SLOW} evictions wait for a webhook that takes {SLOW_SECONDS:.0f} s"


@contextmanager
def _withdrawals(users: Users, folder: Path) -> Iterator[str]:
    """A tenant makes withdrawn requests for one pod, and deletes them all at once."""
    del folder
    pod = users.create_pod("web-0")
    _for_all(lambda number: users.request(pod, f"r-{number}", "Withdrawn"), WITHDRAWN)
    with ThreadPoolExecutor(1) as other:
        deletion = other.submit(partial(users.call, "DELETE", users.path("evictionrequests")))
        yield f"{WITHDRAWN} withdrawn requests for one pod are deleted at once"
        deletion.result()


@contextmanager
def _crowd(users: Users, folder: Path) -> Iterator[str]:
    """The pod has a responder that lets everybody wait."""
    del folder
    pod = users.create_pod("web-0", "acme.io/x")
    _for_all(lambda number: users.request(pod, f"r-{number}"), CROWD)
    yield f"{CROWD} requests want one pod"


def _for_all(make: Callable[[int], object], count: int) -> None:
    with ThreadPoolExecutor(_CLIENTS) as clients:
        list(clients.map(make, range(count)))


if __name__ == "__main__":
    main()
