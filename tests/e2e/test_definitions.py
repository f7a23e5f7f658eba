"""The law of the CustomResourceDefinitions: they never refuse what the native API admits.

No webhook is registered here. Stored objects of the vectors are put past the API server, so that
ratcheting is put to the test as well; every write is a dry run.
"""

import copy
import os
import random
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import pytest

from rules.api import API_VERSION
from tests.controlplane import Mode, NoToolchainError
from tests.controlplane.availability import skip_or_fail
from tests.differential.generator import Generator
from tests.e2e.api import Answer, Object
from tests.e2e.cluster import Cluster, resource_of, running_cluster
from tests.oracle import Oracle
from tests.vectors import admission_vectors

pytest_plugins = ("tests.oracle.fixtures",)
pytestmark = [pytest.mark.e2e, pytest.mark.slow]

_NAMESPACE: Final = "default"
_DRY_RUN: Final = "?dryRun=All"
_THREADS: Final = 8
_CREATED: Final = "2026-07-01T08:00:00Z"
# What an API server sets itself; in an object that is created it must not stand.
_SERVERS: Final = ("uid", "resourceVersion", "creationTimestamp", "generation", "deletionTimestamp")
RANDOM_CASES: Final = 2000

Case = dict[str, Any]


@pytest.fixture(scope="module", params=[Mode.CRD, Mode.CRD_1_34], ids=str)
def bare(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """A cluster with the definitions and without a webhook."""
    try:
        with running_cluster(request.param) as cluster:
            yield cluster
    except NoToolchainError as error:
        skip_or_fail(str(error))


def dry_run(cluster: Cluster, number: int, case: Case) -> Answer | None:
    """The write of a vector; None where no URL could name its object."""
    new = _typed(case["object"], case["kind"])
    meta = new["metadata"]
    if case["operation"] == "CREATE":
        for field in _SERVERS:
            meta.pop(field, None)
        return cluster.create(_NAMESPACE, new, _DRY_RUN)
    stored = _typed(case["oldObject"], case["kind"])
    if stored["metadata"].get("name") != meta.get("name"):
        return None
    name = f"case-{number}"
    stored["metadata"] |= {"name": name, "uid": name}
    stored["metadata"].setdefault("creationTimestamp", _CREATED)
    version = cluster.etcd.put(resource_of(stored), stored)
    for field in _SERVERS:
        meta.pop(field, None)
    meta |= {"name": name, "resourceVersion": version}
    return cluster.replace(_NAMESPACE, new, case["subresource"], _DRY_RUN)


def _typed(document: Object, kind: str) -> Object:
    typed = copy.deepcopy(document) | {"apiVersion": API_VERSION, "kind": kind}
    typed["metadata"] = dict(typed.get("metadata") or {}) | {"namespace": _NAMESPACE}
    return typed


def dry_runs(cluster: Cluster, cases: Iterable[Case]) -> list[Answer | None]:
    with ThreadPoolExecutor(_THREADS) as threads:
        futures = [
            threads.submit(dry_run, cluster, number, case) for number, case in enumerate(cases)
        ]
        return [future.result() for future in futures]


def test_every_admitted_vector_is_admitted(bare: Cluster) -> None:
    admitted = [vector for vector in admission_vectors() if vector["want"]["allowed"]]
    refused = {
        vector["id"]: answer.message if answer else "not a write"
        for vector, answer in zip(admitted, dry_runs(bare, admitted), strict=True)
        if answer is None or not answer.ok
    }
    assert refused == {}
    assert len(admitted) == 2423


def test_the_definitions_alone_refuse_most_of_what_is_wrong(bare: Cluster) -> None:
    denied = [vector for vector in admission_vectors() if not vector["want"]["allowed"]]
    answers = [answer for answer in dry_runs(bare, denied) if answer is not None]
    codes = {answer.code for answer in answers}
    assert codes == {200, 201, 422}
    # The figures of docs/adr/0020-definitions-with-rules.md.
    assert len(answers) == 3470
    assert sum(not answer.ok for answer in answers) == 3254


def test_whatever_the_oracle_admits_is_admitted(bare: Cluster, oracle: Oracle) -> None:
    seed = int(os.environ["USHER_TEST_SEED"])
    print(f"{RANDOM_CASES} random cases, USHER_TEST_SEED={seed}")
    generated = Generator(random.Random(seed)).cases(RANDOM_CASES)
    cases = [case for case in generated if case["kind"] != "Pod"]
    admitted = [
        case
        for case, answer in zip(cases, oracle.ask(cases), strict=True)
        if answer.get("allowed") and not _repeats_keys(case)
    ]
    refused = [
        (answer.message, case)
        for case, answer in zip(admitted, dry_runs(bare, admitted), strict=True)
        if answer is not None and not answer.ok
    ]
    assert refused == []


def _repeats_keys(case: Case) -> bool:
    """Whether a stored list repeats a key: no API server stores one, and none ratchets it."""
    status = (case["oldObject"] or {}).get("status") or {}
    for name, items in status.items():
        keys = [item.get("type" if name == "conditions" else "name") for item in _items(items)]
        if len(set(keys)) < len(keys):
            return True
    return False


def _items(value: Any) -> list[Object]:
    return value if isinstance(value, list) else []
