"""Reviews with something wrong in them, on the level of JSON or of bytes."""

import random
from copy import deepcopy
from typing import Any, Final

import msgspec

from tests.webhook.reviews import (
    creation,
    eviction,
    eviction_request,
    heartbeat,
    pod,
    refused_creation,
    review,
)

_RESPONDERS: Final = [{"name": "db.acme.io/failover", "priority": 10000}]
_ANNOTATION: Final = {"usher.dev/eviction-responders": msgspec.json.encode(_RESPONDERS).decode()}
_POD: Final = pod(evictionResponders=_RESPONDERS)
_ANNOTATED: Final = {**pod(), "metadata": {"name": "web-0", "annotations": _ANNOTATION}}
_DEPLOYMENT: Final = {"metadata": {"name": "web"}, "spec": {"template": _ANNOTATED}}
_EVICTION: Final = ("lifecycle.k8s.io", "v1alpha1", "Eviction")
_UNINITIALIZED: Final = {**eviction(), "status": {}}

REVIEWS: Final[tuple[bytes, ...]] = tuple(
    msgspec.json.encode(document)
    for document in (
        creation(),
        creation(api_version="admission.k8s.io/v1beta1", dryRun=True),
        refused_creation(),
        review("UPDATE", eviction_request(intent="Withdrawn"), eviction_request()),
        review("DELETE", None, eviction_request()),
        heartbeat(),
        heartbeat("2026-07-01T13:00:00Z"),
        review("UPDATE", eviction(), _UNINITIALIZED, kind=_EVICTION, subresource="status"),
        review("CREATE", eviction(), kind=_EVICTION),
        review("CREATE", _POD, kind=("", "v1", "Pod")),
        review("UPDATE", _ANNOTATED, _POD, kind=("", "v1", "Pod")),
        review("CREATE", _DEPLOYMENT, kind=("apps", "v1", "Deployment")),
        review("CREATE", {"spec": 7}, kind=("acme.io", "v1", "Widget")),
    )
)

_MARK: Final = "@raw@"
_RAW: Final = (
    b"NaN", b"-Infinity", b"1e400", b"-0", b"1e-400", b"9" * 400, b"18446744073709551616", b"0x1",
    b'"\\ud800"', b'"\\udc00\\ud800"', b'"\\u0000"', b'"\xff"', b'"\xed\xa0\x80"', b'"\n"', b'"',
    b"[" * 60 + b"]" * 60, b"[" * 200, b'{"a":1,"a":2}', b"tru", b"", b"//", b"{}{}",
)  # fmt: skip
_VALUES: Final[tuple[Any, ...]] = (
    None, True, False, 0, 1, -1, 100, 999, 1000, 100_000, 2**31, 2**63 - 1, -(2**63), 5.0, 1e300,
    "", "x", "true", "5", "\x00", "\x1b[31m", "ä\u2028😀", "a/b", "/", ".", "..", "x" * 300,
    [], {}, [[]], [{}], [None], {"": ""}, {"name": "acme.io/x"},
    "k8s.io/x", "acme.io/x", "imperative-eviction.k8s.io/evictor", "Active", "Completed", "True",
    "2026-07-01T12:00:00Z", "2026-07-01T11:59:59.9Z", "0000-01-01T00:00:00Z",
    "9999-12-31T23:59:59-24:00", "0001-01-01T00:00:00+24:00", "2026-13-01T00:00:00Z",
    "CREATE", "UPDATE", "DELETE", "CONNECT", "status", "Eviction", "EvictionRequest", "Pod",
)  # fmt: skip
_KEYS: Final = (
    "status", "spec", "metadata", "name", "uid", "object", "oldObject", "conditions", "responders",
    "targetResponders", "requesters", "annotations", "labels", "generateName", "x", "", "\x00",
)  # fmt: skip


class Mutator:
    """Makes one request body; the same ``seed`` makes the same one."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def body(self) -> bytes:
        """Return a review with up to five changes."""
        chosen = self._random
        data = chosen.choice(REVIEWS)
        if chosen.random() < 0.8:
            data = self._in_json(data)
        if chosen.random() < 0.3:
            for _ in range(chosen.randint(1, 3)):
                data = self._in_bytes(data)
        return data

    def _in_json(self, data: bytes) -> bytes:
        document = msgspec.json.decode(data)
        for _ in range(self._random.randint(1, 4)):
            self._change(document)
        changed = msgspec.json.encode(document)
        if _MARK.encode() in changed:
            changed = changed.replace(b'"%b"' % _MARK.encode(), self._random.choice(_RAW), 1)
        return changed

    def _change(self, document: Any) -> None:
        chosen = self._random
        container = document
        while True:
            inner = [
                value
                for value in (container.values() if isinstance(container, dict) else container)
                if isinstance(value, dict | list) and value
            ]
            if not inner or chosen.random() < 0.15:
                break
            container = chosen.choice(inner)
        if isinstance(container, dict):
            self._change_object(container)
        else:
            self._change_list(container)

    def _change_object(self, container: dict[str, Any]) -> None:
        chosen = self._random
        key = chosen.choice(list(container))
        match chosen.randrange(6):
            case 0:
                del container[key]
                container.setdefault("x", 1)
            case 1:
                container[chosen.choice(_KEYS)] = container[key]
            case 2:
                container[chosen.choice(_KEYS)] = self._value()
            case 3 if isinstance(container[key], str) and container[key]:
                container[key] = self._text(container[key])
            case _:
                container[key] = self._value()

    def _change_list(self, container: list[Any]) -> None:
        chosen = self._random
        position = chosen.randrange(len(container))
        match chosen.randrange(5):
            case 0:
                container.insert(position, container[position])
            case 1:
                chosen.shuffle(container)
            case 2:
                container.extend([container[position]] * chosen.choice((10, 120)))
            case 3 if len(container) > 1:
                del container[position]
            case _:
                container[position] = self._value()

    def _value(self) -> Any:
        return _MARK if self._random.random() < 0.1 else deepcopy(self._random.choice(_VALUES))

    def _text(self, text: str) -> str:
        position = self._random.randrange(len(text))
        odd = self._random.choice("/.-:TZ09aA \x00\x7fä\u2028")
        return text[:position] + odd + text[position + self._random.randint(0, 1) :]

    def _in_bytes(self, data: bytes) -> bytes:
        chosen = self._random
        start = chosen.randrange(len(data) or 1)
        end = start + chosen.randint(1, 20)
        changes = (
            lambda: data[:start] + bytes([chosen.randrange(256)]) + data[start + 1 :],
            lambda: data[:start] + data[end:],
            lambda: data[:end] + data[start:],
            lambda: data[:start] + chosen.randbytes(chosen.randint(1, 8)) + data[start:],
            lambda: data[:start],
            lambda: data[:start] + chosen.choice(REVIEWS)[start:],
            lambda: data[:start] + chosen.choice(_RAW) + data[start:],
            lambda: data + chosen.choice((b" ", b"\x00", b"{}", b"\n", b"x")),
        )
        return chosen.choice(changes)()
