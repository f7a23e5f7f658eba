"""Every case of ``tests/cases`` as a write, in every mode."""

from datetime import timedelta
from typing import Final

import pytest

from rules.evaluate import evaluate
from tests.cases import Case, Wanted, load_cases
from tests.e2e import cases
from tests.e2e.cluster import Cluster
from tests.rules.test_cases import as_request

pytestmark = pytest.mark.e2e

CASES: Final = [case for case in load_cases() if not case.has_facts]
"""What depends on the caller or the cluster is in ``test_identity``, with real ones."""
_SLOWEST: Final = timedelta(seconds=15)
"""How late a write may be judged on a loaded machine."""


def first_refusals() -> list[Case]:
    """One refused case of each rule that refuses anything."""
    refusing = [case for case in CASES if any(_is_refusal(case, wanted) for wanted in case.wanted)]
    return list({case.rule: case for case in reversed(refusing)}.values())


def _is_refusal(case: Case, wanted: Wanted) -> bool:
    return wanted.rule == case.rule and wanted.enforcement == "deny"


def skip_impossible(cluster: Cluster, case: Case) -> None:
    if reason := cases.impossible(cluster, case):
        pytest.skip(reason)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_case(case: Case, cluster: Cluster, namespace: str) -> None:
    skip_impossible(cluster, case)
    answer = cases.write(cluster, namespace, case)
    cases.check(cluster, case, answer)


@pytest.mark.parametrize("case", first_refusals(), ids=lambda case: case.rule)
def test_kubectl_prints_every_cause(case: Case, cluster: Cluster, namespace: str) -> None:
    skip_impossible(cluster, case)
    new, stored = cases.documents(case)
    cases.store(cluster, namespace, new, stored)
    command = ["create"] if stored is None else ["replace"]
    if case.subresource:
        command.append(f"--subresource={case.subresource}")
    result = cluster.kubectl(namespace, *command, "-f", "-", document=new)
    assert result.returncode != 0, result.stdout
    answer = cases.write(cluster, namespace, case)
    cases.check(cluster, case, answer)
    for _, field in answer.causes:
        assert f"{field}: " in result.stderr, result.stderr


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_verdicts_do_not_depend_on_seconds(case: Case) -> None:
    # Otherwise the tests above would fail on slow machines.
    request = as_request(case)
    verdicts = [
        evaluate(request._replace(now=request.now + late)) for late in (timedelta(), _SLOWEST)
    ]
    fields = [{(v.rule, v.error.field) for v in verdict.violations} for verdict in verdicts]
    assert fields[0] == fields[1]
