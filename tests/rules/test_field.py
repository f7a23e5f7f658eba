"""Field errors speak Kubernetes' words."""

from rules.api import PodReference, Target
from rules.field import (
    MAX_SHOWN_VALUE,
    Path,
    duplicate,
    forbidden,
    invalid,
    not_supported,
    required,
    show,
    too_long,
    too_many,
)
from rules.times import parse_time

FIELD = Path("status").child("responders").at(0)


def test_paths_render_themselves() -> None:
    assert FIELD.child("name") == "status.responders[0].name"
    assert Path().child("metadata").child("annotations").key("a.io/b") == (
        "metadata.annotations[a.io/b]"
    )


def test_messages() -> None:
    assert required(FIELD).message == "Required value: must be set"
    assert required(FIELD, "say it").message == "Required value: say it"
    assert forbidden(FIELD, "not now").message == "Forbidden: not now"
    assert invalid(FIELD, "x", "must be y").message == 'Invalid value: "x": must be y'
    assert invalid(FIELD, "", "must be y").message == 'Invalid value: "": must be y'
    assert duplicate(FIELD, "a.io/x").message == 'Duplicate value: "a.io/x"'
    assert too_long(FIELD, 5, "bytes").message == "Too long: may not be more than 5 bytes"
    assert too_many(FIELD, 6, 5).message == "Too many: 6: must have at most 5 items"
    assert str(not_supported(FIELD, "a", ("b", "c"))) == (
        'status.responders[0]: Unsupported value: "a": supported values: "b", "c"'
    )


def test_values_are_shown_as_json() -> None:
    assert show(parse_time("2026-07-01T12:00:00Z")) == '"2026-07-01T12:00:00Z"'
    assert show(Target(pod=PodReference(name="web"))) == '{"pod": {"name": "web"}}'
    assert show(["a", None, 1]) == '["a", null, 1]'
    assert show(frozenset()) == '"frozenset()"'
    assert len(show("x" * 1000)) == MAX_SHOWN_VALUE + 1
