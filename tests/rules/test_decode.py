"""JSON that an API server would refuse, or could misread, is refused with a reason."""

from typing import Annotated, Any

import pytest
from msgspec import Meta

from rules.api import ApiType, Eviction, EvictionRequest, Pod
from rules.decode import (
    SHAPES,
    DecodeError,
    decode,
    decode_model,
    decode_object,
    decode_responders,
    load,
    read,
    read_object,
    unknown_fields,
)
from rules.field import Path
from rules.times import parse_time


@pytest.mark.parametrize(
    "text",
    [
        b"", b" ", b"{", b"[1,]", b"{} {}", b"{} x", b"nul", b"NaN", b"[Infinity]", b"-Infinity",
        b"1e400", b'{"a": -1e400}', b"1" * 5000, b"[99999999999999999999]", b'{"a":1,"a":2}',
        b'{"a":{"b":1,"b":1}}', b'"\\ud800"', b'"\\udc00"', b'"\xff"', b'"\x00"', b"\xef\xbb\xbf{}",
        '{"a":1}'.encode("utf-16"), b"01", b"+1", b".5", b"'a'", b"[" * 5000, b'{"a":' * 150,
        b"[" * 120 + b"]" * 120,
    ],
    ids=lambda text: repr(text[:20]),
)  # fmt: skip
def test_refused(text: bytes) -> None:
    with pytest.raises(DecodeError) as error:
        load(text)
    assert str(error.value).startswith("must")


def test_nulls_are_absent_fields_at_any_depth() -> None:
    text = b'{"a": null, "b": [{"c": null}, null], "d": {"e": 1.5, "f": [[2]]}}'
    assert load(text) == {"b": [{}, None], "d": {"e": 1.5, "f": [[2]]}}


@pytest.mark.parametrize(
    ("model", "document", "path", "detail"),
    [
        (Eviction, [], "", "must be an object"),
        (Eviction, {"spec": []}, "spec", "must be an object"),
        (Eviction, {"status": {"responders": {}}}, "status.responders", "must be a list"),
        (Eviction, {"status": {"responders": [{"startTime": 5}]}},
         "status.responders[0].startTime", "must be an RFC 3339 time"),
        (Eviction, {"status": {"responders": [{"name": 1}]}},
         "status.responders[0].name", "must be a string"),
        (Eviction, {"status": {"targetResponders": [{"priority": "1"}]}},
         "status.targetResponders[0].priority", "must be an integer"),
        (Eviction, {"status": {"targetResponders": [{"priority": True}]}},
         "status.targetResponders[0].priority", "must be an integer"),
        (Eviction, {"status": {"targetResponders": [{"priority": 5.0}]}},
         "status.targetResponders[0].priority", "must be an integer"),
        (Eviction, {"status": {"targetResponders": [{"priority": 2**31}]}},
         "status.targetResponders[0].priority", "must fit the integer type"),
        (EvictionRequest, {"metadata": {"labels": {"a": 1}}},
         "metadata.labels.a", "must be a string"),
        (EvictionRequest, {"metadata": {"ownerReferences": [{"controller": "true"}]}},
         "metadata.ownerReferences[0].controller", "must be true or false"),
        (EvictionRequest, {"metadata": {"labels": []}}, "metadata.labels", "must be an object"),
        (Pod, {"metadata": {"generation": -(2**63) - 1}}, "metadata.generation", "must fit"),
    ],
)  # fmt: skip
def test_wrong_types(model: Any, document: Any, path: str, detail: str) -> None:
    with pytest.raises(DecodeError) as error:
        decode_model(model, document)
    assert error.value.path == path
    assert error.value.detail.startswith(detail)


def test_a_template_is_found_in_its_workload() -> None:
    spec = {"evictionResponders": [{"name": "a.io/x", "priority": 1}]}
    job = {"spec": {"jobTemplate": {"spec": {"template": {"spec": spec}}}}}
    shape = SHAPES["batch", "v1", "CronJob"]
    pod = decode_object(shape, job)
    assert isinstance(pod, Pod)
    assert pod.spec.eviction_responders[0].name == "a.io/x"
    assert decode_object(shape, {"spec": {}}) == Pod()
    with pytest.raises(DecodeError, match=r"^spec\.jobTemplate: must be an object"):
        decode_object(shape, {"spec": {"jobTemplate": []}})


def test_the_annotation_is_a_list_of_responders() -> None:
    (responder,) = decode_responders('[{"name": "a.io/x", "priority": 1000, "more": {}}]')
    assert (responder.name, responder.priority) == ("a.io/x", 1000)
    for text, problem in (
        ("x", "must be valid JSON"),
        ("{}", "must be a list"),
        ('[{"name": 1}]', r"\[0\]\.name: must be a string"),
        ("\ud800", "must be valid JSON"),
    ):
        with pytest.raises(DecodeError, match=problem):
            decode_responders(text)


def test_a_time_may_be_given_as_one() -> None:
    instant = parse_time("2026-07-01T12:00:00Z")
    meta = {"creationTimestamp": instant}
    assert decode_model(Pod, {"metadata": meta}).metadata.creation_timestamp == instant


def test_unknown_fields_are_named() -> None:
    document = {
        "spec": {"target": {"pod": {"name": "a", "namespace": "b"}}, "force": True},
        "status": {"responders": [{"name": "a"}, {"nmae": "b"}], "conditions": "x"},
        "metadata": {"labels": {"any": "key"}},
        "extra": 1,
    }
    assert list(unknown_fields(Eviction, document)) == [
        "spec.target.pod.namespace",
        "spec.force",
        "status.responders[1].nmae",
        "extra",
    ]
    assert list(unknown_fields(Eviction, [], Path("x"))) == []


@pytest.mark.parametrize(
    ("text", "detail"),
    [
        (b"{", "must be valid JSON"),
        (b'{"spec": []}', "spec: must be an object"),
        (b'{"status": {"responders": [{"name": 1}]}}', "status.responders[0].name: must be a"),
        (b'{"metadata": {"labels": {"a": 1}}}', "metadata.labels.a: must be a string"),
        (b'{"spec": ' + b"[" * 100_000, "must be valid JSON: recursion limit"),
    ],
    ids=lambda part: repr(part[:30]),
)
def test_bytes_that_are_refused(text: bytes, detail: str) -> None:
    with pytest.raises(DecodeError) as error:
        read(Eviction, text)
    assert detail in str(error.value)


def test_bytes_mean_what_the_document_means() -> None:
    text = b'{"metadata": {"name": "a", "labels": null}, "spec": {"target": null}}'
    for shape in SHAPES.values():
        assert read_object(shape, text) == decode_object(shape, load(text))
    assert decode(Eviction, text) == decode(Eviction, load(text))


def test_texts_that_nest_endlessly_are_refused() -> None:
    with pytest.raises(DecodeError, match="must not nest so deeply"):
        read(_Anything, b'{"anything": ' + b"[" * 100_000)


class _Anything(ApiType):
    anything: Any = None
    share: Annotated[float, Meta(ge=0.5)] = 1.0


def test_a_number_out_of_bounds_is_told_the_bound() -> None:
    with pytest.raises(DecodeError, match=r"share: must be at least 0\.5"):
        decode_model(_Anything, {"share": 0.25})


def test_fields_that_no_rule_reads_are_known() -> None:
    document = {"metadata": {"managedFields": [], "selfLink": "", "manager": ""}}
    assert list(unknown_fields(Eviction, document)) == ["metadata.manager"]
