"""Whatever bytes arrive, the answer is a verdict or a refusal, and the connection goes on."""

import json
import ssl
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.webhook.mutation import Mutator
from tests.webhook.reviews import encoded
from tests.webhook.running import JSON, Running, answer, head

_KEYS = st.sampled_from(
    ["apiVersion", "kind", "request", "uid", "object", "oldObject", "operation", "spec", "status"]
)
_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(_KEYS | st.text(), inner),
)
_MUTATED = st.integers(0, 2**32).map(lambda seed: Mutator(seed).body())


@pytest.fixture(scope="module")
def connection(site: Running) -> Iterator[ssl.SSLSocket]:
    """One connection for all: no body may end it."""
    with site.connect() as opened:
        yield opened


def judged(connection: ssl.SSLSocket, body: bytes) -> int:
    headers = {**JSON, "Content-Length": str(len(body))}
    connection.sendall(head("POST", "/validate", headers) + body)
    reply = answer(connection)
    if reply.status == 200:
        assert json.loads(reply.body)["kind"] == "AdmissionReview"
    return reply.status


_THOROUGH = settings(
    max_examples=100,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


@_THOROUGH
@given(st.binary(max_size=300))
def test_any_bytes(connection: ssl.SSLSocket, body: bytes) -> None:
    assert judged(connection, body) == 400


@_THOROUGH
@given(_VALUES)
def test_any_json(connection: ssl.SSLSocket, document: Any) -> None:
    assert judged(connection, encoded(document)) == 400


@_THOROUGH
@given(_MUTATED)
def test_any_mutation_of_a_review(connection: ssl.SSLSocket, body: bytes) -> None:
    assert judged(connection, body) in (200, 400)
