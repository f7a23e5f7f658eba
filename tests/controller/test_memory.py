"""What has ended stays small, and everything together fits."""

import gc
import json
import subprocess
import sys
import tracemalloc
from typing import Any, Final

import msgspec
import pytest

from cluster.store import entry_of
from controller.eviction.packing import Compressed, summary_of
from controller.eviction.view import (
    View,
    keep_eviction,
    keep_request,
    read_eviction,
    read_request,
)
from rules.api import EVICTOR
from tests.controller.memory import eviction, request
from tests.controller.objects import Document

PAIR_BYTES: Final = 2048
PEAK_MIB: Final = 150.0
PAIRS: Final = 2000


def _on_the_wire(document: Document) -> Document:
    """As it comes: no two objects share a text."""
    read: Document = msgspec.json.decode(msgspec.json.encode(document))
    return read


def _learn(view: View, number: int) -> None:
    one, other = _on_the_wire(eviction(number)), _on_the_wire(request(number))
    view.evictions.put(entry_of(one, keep_eviction(one)))
    view.requests.put(entry_of(other, keep_request(other)))


@pytest.mark.slow
def test_an_ended_eviction_and_its_request_stay_small() -> None:
    view = View()
    _learn(view, PAIRS)
    gc.collect()
    tracemalloc.start()
    try:
        for number in range(PAIRS):
            _learn(view, number)
        gc.collect()
        size, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert size / PAIRS <= PAIR_BYTES


def test_what_is_packed_is_what_anybody_looks_at() -> None:
    document = eviction(7)
    kept = keep_eviction(document)
    assert isinstance(kept, Compressed)
    whole, left = read_eviction(document), kept.unpack()
    assert left.metadata == whole.metadata
    assert left.spec == whole.spec
    assert left.status.conditions == whole.status.conditions
    assert left.status.observed_generation == whole.status.observed_generation
    assert summary_of(kept) == summary_of(whole)
    assert kept.summary.states == ("Completed", "Completed", "Completed")
    asked = keep_request(request(7))
    assert isinstance(asked, Compressed)
    assert asked.unpack() == read_request(request(7))
    assert asked.summary.wants


@pytest.mark.parametrize("keep", [keep_eviction, keep_request])
def test_what_has_not_ended_is_not_packed(keep: Any) -> None:
    document = (eviction if keep is keep_eviction else request)(7)
    for condition in document["status"]["conditions"]:
        condition["status"] = "False"
    kept = keep(document)
    assert not isinstance(kept, Compressed)
    assert summary_of(kept).outcome == ""


def test_a_change_that_counts_is_a_change() -> None:
    view = View()
    document = eviction(7)
    assert len(view.evictions.put(entry_of(document, keep_eviction(document)))) == 1
    document["metadata"]["resourceVersion"] = str(10**9)
    document["metadata"]["labels"] = {EVICTOR: "responder"}
    (change,) = view.evictions.put(entry_of(document, keep_eviction(document)))
    assert change.old is not None
    assert change.new is not None
    assert change.new.value.metadata.labels == {EVICTOR: "responder"}
    (entry,) = view.evictions_of("team-7", change.new.value.spec.target.pod.uid)  # type: ignore[union-attr]
    assert entry == change.new


@pytest.mark.slow
@pytest.mark.parametrize("flags", [(), ("--node-health",)])
def test_ten_thousand_ended_pairs_and_twenty_thousand_pods_fit(flags: tuple[str, ...]) -> None:
    command = [sys.executable, "-m", "tests.controller.memory", *flags]
    answer = subprocess.run(command, check=True, capture_output=True, text=True)
    figures = json.loads(answer.stdout)
    print(figures)
    assert figures["peakMiB"] < PEAK_MIB
