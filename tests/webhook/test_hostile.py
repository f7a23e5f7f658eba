"""Hostile or broken input: each kind gets its own answer, and never a 5xx."""

from typing import Any, Final

import pytest

from tests.patience import PATIENCE
from tests.webhook.reviews import creation, encoded, eviction_request, heartbeat, review
from tests.webhook.running import JSON, Running, answer, answers, head

CREATION: Final = encoded(creation())
MIB: Final = 1024 * 1024


def with_request(**changes: Any) -> bytes:
    call = creation()
    call["request"] |= changes
    return encoded(call)


def with_object(**changes: Any) -> bytes:
    call = creation()
    call["request"]["object"] |= changes
    return encoded(call)


def with_root(**changes: Any) -> bytes:
    return encoded({**creation(), **changes})


def inserted(text: str) -> bytes:
    """Return a creation whose object has one more member, given as JSON text."""
    return CREATION.replace(b'"spec": {', f'{text}, "spec": {{'.encode("utf-8", "surrogatepass"))


def nested(depth: int) -> bytes:
    return inserted(f'"deep": {"[" * depth}{"]" * depth}')


GENERATION: Final = with_object(metadata={"generation": 123456789})
BAD_BODIES: Final = {
    "empty": b"",
    "space": b"  \n",
    "garbage": b"\x00\xff\xfe",
    "number": b"7",
    "text": b'"AdmissionReview"',
    "list": b"[]",
    "list of reviews": b"[" + CREATION + b"]",
    "null": b"null",
    "true": b"true",
    "empty object": b"{}",
    "cut": CREATION[:-2],
    "trailing data": CREATION + b"{}",
    "trailing comma": CREATION[:-1] + b",}",
    "two reviews": CREATION + CREATION,
    "single quotes": CREATION.replace(b'"', b"'"),
    "comment": b"/* */" + CREATION,
    "byte order mark": b"\xef\xbb\xbf" + CREATION,
    "UTF-16": CREATION.decode().encode("utf-16"),
    "UTF-32": CREATION.decode().encode("utf-32"),
    "invalid UTF-8": CREATION.replace(b"web-0", b"web-\xff"),
    "overlong UTF-8": CREATION.replace(b"web-0", b"web-\xc0\xb0"),
    "encoded surrogate": CREATION.replace(b"web-0", b"web-\xed\xa0\x80"),
    "lone surrogate": inserted(r'"x": "\ud800"'),
    "lone surrogate in a key": inserted(r'"\udc00": 1'),
    "control character in a text": inserted('"x": "\n"'),
    "NaN": inserted('"x": NaN'),
    "Infinity": inserted('"x": Infinity'),
    "-Infinity": inserted('"x": -Infinity'),
    "leading zero": inserted('"x": 07'),
    "hexadecimal": inserted('"x": 0x7'),
    "nested 1000 deep": nested(1000),
    "nested 100000 deep": nested(100_000),
    "objects nested 100000 deep": inserted('"x": ' + '{"a":' * 100_000 + "1" + "}" * 100_000),
    "unclosed nesting": b"[" * 100_000,
    "apiVersion missing": with_root(apiVersion=None),
    "apiVersion unknown": with_root(apiVersion="admission.k8s.io/v2"),
    "apiVersion of another group": with_root(apiVersion="v1"),
    "apiVersion not a text": with_root(apiVersion=["admission.k8s.io/v1"]),
    "kind missing": with_root(kind=None),
    "kind unknown": with_root(kind="ConversionReview"),
    "kind not a text": with_root(kind={"AdmissionReview": 1}),
    "request missing": with_root(request=None),
    "request a list": with_root(request=[]),
    "request a text": with_root(request="x"),
    "request empty": with_root(request={}),
    "uid missing": with_request(uid=None),
    "uid empty": with_request(uid=""),
    "uid a number": with_request(uid=7),
    "uid an object": with_request(uid={}),
    "uid over 1 KiB": with_request(uid="x" * 1025),
    "uid over 1 KiB in bytes": with_request(uid="ä" * 513),
    "uid with newline": with_request(uid="a\nb"),
    "uid with NUL": with_request(uid="a\x00b"),
    "uid with DEL": with_request(uid="a\x7fb"),
    "uid with C1": with_request(uid="a\x9bb"),
    "operation missing": with_request(operation=None),
    "operation unknown": with_request(operation="PATCH"),
    "operation in lower case": with_request(operation="create"),
    "operation a wildcard": with_request(operation="*"),
    "operation a number": with_request(operation=1),
    "object null on CREATE": with_request(object=None),
    "object null on UPDATE": encoded(review("UPDATE", None, eviction_request())),
    "oldObject null on UPDATE": encoded(review("UPDATE", eviction_request())),
    "oldObject null on DELETE": encoded(review("DELETE")),
    "object a text": with_request(object="x"),
    "object a list": with_request(object=[]),
    "oldObject a list": encoded(review("UPDATE", eviction_request(), [])),
    "kind a text": with_request(kind="Eviction"),
    "kind's group a number": with_request(kind={"group": 1, "version": "v1", "kind": "Pod"}),
    "resource a text": with_request(resource="evictions"),
    "resource's name a list": with_request(resource={"resource": []}),
    "name a number": with_request(name=7),
    "namespace a list": with_request(namespace=[]),
    "subResource a bool": with_request(subResource=True),
    "dryRun a text": with_request(dryRun="true"),
    "dryRun a number": with_request(dryRun=1),
    "metadata a text": with_object(metadata="x"),
    "labels a list": with_object(metadata={"labels": ["x"]}),
    "label a number": with_object(metadata={"labels": {"x": 1}}),
    "spec a text": with_object(spec="x"),
    "text as number": with_object(spec={"requester": 7}),
    "generation a float": with_object(metadata={"generation": 5.0}),
    "generation true": with_object(metadata={"generation": True}),
    "generation a text": with_object(metadata={"generation": "5"}),
    "generation beyond a double": GENERATION.replace(b"123456789", b"1e400"),
    "generation of thousands of digits": GENERATION.replace(b"123456789", b"9" * 5000),
    "generation over 63 bits": with_object(metadata={"generation": 2**63}),
    "controller a text": with_object(metadata={"ownerReferences": [{"controller": "true"}]}),
    "controller a number": with_object(metadata={"ownerReferences": [{"controller": 1}]}),
}


@pytest.mark.parametrize("body", BAD_BODIES.values(), ids=BAD_BODIES)
def test_a_bad_body_is_a_400(site: Running, body: bytes) -> None:
    reply = site.call(data=body)
    assert reply.status == 400
    assert reply.headers["Content-Type"] == "text/plain; charset=utf-8"
    assert 0 < len(reply.body) <= 310
    assert reply.body.decode().removesuffix("\n").isprintable()
    assert "Server" not in reply.headers


@pytest.mark.parametrize(
    "body",
    [
        inserted('"x": 1e400'),
        inserted('"x": -1e400'),
        inserted(f'"x": {"9" * 5000}'),
        inserted(f'"x": {2**64}'),
        nested(98),
        CREATION.replace(b'"uid":', b'"uid": "x", "uid":', 1),
        inserted(r'"k\u0069nd": "Eviction"'),
    ],
    ids=lambda body: f"{len(body)} bytes",
)
def test_what_no_rule_reads_and_what_go_overwrites_changes_no_verdict(
    site: Running, body: bytes
) -> None:
    assert site.call(data=body).response == site.call(data=CREATION).response


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("priority", 5.5),
        ("priority", True),
        ("priority", "100"),
        ("priority", 2**31),
        ("priority", 1e3),
    ],
)
def test_integers_are_integers(site: Running, old: str, new: Any) -> None:
    call = heartbeat()
    call["request"]["object"]["status"]["targetResponders"][0][old] = new
    assert site.call(call).status == 400


TIMES: Final = {
    "lower-case t": "2026-07-01t12:00:00Z",
    "lower-case z": "2026-07-01T12:00:00z",
    "no zone": "2026-07-01T12:00:00",
    "space": "2026-07-01 12:00:00Z",
    "24:00": "2026-06-30T24:00:00Z",
    "leap second": "2026-06-30T23:59:60Z",
    "year 10000": "10000-01-01T00:00:00Z",
    "a date": "2026-07-01",
    "an epoch": 1782907200,
    "no such day": "2026-02-30T12:00:00Z",
    "an empty text": "",
}


@pytest.mark.parametrize("time", TIMES.values(), ids=TIMES)
def test_times_are_read_as_go_reads_them(site: Running, time: Any) -> None:
    assert site.call(heartbeat(time)).status == 400


@pytest.mark.parametrize("time", ["2026-07-01T12:00:00.999999999Z", "2026-07-01T14:00:00+02:00"])
def test_fractions_and_zones_are_accepted(site: Running, time: str) -> None:
    assert site.call(heartbeat(time)).response["allowed"] is True


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Content-Type": ""},
        {"Content-Type": "text/plain"},
        {"Content-Type": "application/jsonp"},
        {"Content-Type": "application/yaml"},
        {"Content-Type": "application/vnd.kubernetes.protobuf"},
        {"Content-Type": "application/json; charset=utf-16"},
        {"Content-Type": "application/json; charset=iso-8859-1"},
        {"Content-Type": "application/json, text/plain"},
        {"Content-Type": "multipart/form-data; boundary=x"},
        {**JSON, "Content-Encoding": "br"},
        {**JSON, "Content-Encoding": "deflate"},
        {**JSON, "Content-Encoding": "zstd"},
        {**JSON, "Content-Encoding": "gzip"},
        {**JSON, "Content-Encoding": "x-gzip-ä"},
        {**JSON, "Content-Encoding": ""},
    ],
)
def test_other_media_and_encodings_are_a_415(site: Running, headers: dict[str, str]) -> None:
    reply = site.call(creation(), headers=headers)
    assert reply.status == 415
    assert reply.body


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"])
def test_other_methods_are_a_405(site: Running, method: str) -> None:
    reply = site.call(data=b"", method=method)
    assert reply.status == 405
    assert reply.headers["Allow"] == "POST"


@pytest.mark.parametrize(
    "target",
    [
        "/",
        "/validate/",
        "/validate/x",
        "/Validate",
        "//validate",
        "/./validate",
        "/x/../validate",
        "/%76alidate",
        "/validate%00",
        "/validate;x=1",
        "/mutate/",
        "/mutate/validate",
        "/Mutate",
        "/metrics",
        "/livez",
        "https://localhost/validate",
        "/?/validate",
    ],
)
def test_other_paths_are_a_404(site: Running, target: str) -> None:
    assert site.call(creation(), target=target).status == 404
    assert site.call(data=b"", target=target, method="GET").status == 404


def test_the_server_as_a_whole_has_no_options(site: Running) -> None:
    assert site.call(data=b"", target="*", method="OPTIONS").status == 404


def test_a_declared_body_over_the_limit_is_a_413(site: Running) -> None:
    with site.connect() as connection:
        connection.sendall(head("POST", "/validate", {**JSON, "Content-Length": str(7 * MIB + 1)}))
        reply = answer(connection)
        assert reply.status == 413
        assert reply.headers["Connection"] == "close"
        assert connection.recv(1) == b""


def test_a_chunked_body_over_the_limit_is_a_413(site: Running) -> None:
    with site.connect() as connection:
        connection.sendall(head("POST", "/validate", {**JSON, "Transfer-Encoding": "chunked"}))
        chunk = b"%x\r\n%b\r\n" % (MIB, b" " * MIB)
        for _ in range(8):
            connection.sendall(chunk)
        reply = answer(connection)
        assert reply.status == 413
        assert reply.headers["Connection"] == "close"


def test_a_body_just_within_the_limit_is_read(site: Running) -> None:
    padded = CREATION + b" " * (7 * MIB - len(CREATION))
    assert site.call(data=padded).response["allowed"] is True
    with site.connect() as connection:
        connection.sendall(head("POST", "/validate", {**JSON, "Transfer-Encoding": "chunked"}))
        for start in range(0, len(padded), 50_000):
            part = padded[start : start + 50_000]
            connection.sendall(b"%x;extension=1\r\n%b\r\n" % (len(part), part))
        connection.sendall(b"0\r\nTrailer: x\r\n\r\n")
        assert answer(connection).response["allowed"] is True


RAW: Final = {
    "HTTP/0.9": b"GET /validate\r\n\r\n",
    "HTTP/0.9 POST": b"POST /validate\r\nContent-Type: application/json\r\n\r\n",
    "HTTP/0.9 by number": b"POST /validate HTTP/0.9\r\nHost: x\r\n\r\n",
    "HTTP/2 preface": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00",
    "HTTP/3": b"POST /validate HTTP/3.0\r\nHost: x\r\nContent-Length: 0\r\n\r\n",
    "garbage": bytes(range(256)) * 4,
    "TLS in TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 64,
    "no Host": b"POST /validate HTTP/1.1\r\nContent-Length: 0\r\n\r\n",
    "two Hosts": b"POST /validate HTTP/1.1\r\nHost: a\r\nHost: b\r\nContent-Length: 0\r\n\r\n",
    "unknown method": b"BREW /validate HTTP/1.1\r\nHost: x\r\n\r\n",
    "negative length": b"POST /validate HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
    "huge length": b"POST /validate HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % 10**30,
    "two lengths": (
        b"POST /validate HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxx"
    ),
    "length and chunked": (
        b"POST /validate HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    ),
    "broken chunk": (
        b"POST /validate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        b"Transfer-Encoding: chunked\r\n\r\nzz\r\n"
    ),
    "unknown transfer encoding": (
        b"POST /validate HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip\r\n\r\n"
    ),
    "space before the colon": b"POST /validate HTTP/1.1\r\nHost : x\r\n\r\n",
    "folded header": b"POST /validate HTTP/1.1\r\nHost: x\r\n y\r\n\r\n",
    "NUL in a header": b"POST /validate HTTP/1.1\r\nHost: x\r\nX: a\x00b\r\n\r\n",
    "bare carriage return": b"POST /validate HTTP/1.1\rHost: x\r\r",
    "raw byte in the target": b"POST /validate\xff HTTP/1.1\r\nHost: x\r\n\r\n",
    "long target": b"POST /%b HTTP/1.1\r\nHost: x\r\n\r\n" % (b"x" * 20_000),
    "long header": b"POST /validate HTTP/1.1\r\nHost: x\r\nX: %b\r\n\r\n" % (b"x" * 20_000),
    "many headers": b"POST /validate HTTP/1.1\r\nHost: x\r\n%b\r\n" % (b"X: y\r\n" * 1000),
    "bad authority": b"CONNECT :::: HTTP/1.1\r\nHost: x\r\n\r\n",
}


@pytest.mark.parametrize("data", RAW.values(), ids=RAW)
def test_what_is_not_http_is_a_400_and_the_end(site: Running, data: bytes) -> None:
    with site.connect() as connection:
        connection.sendall(data)
        reply = answer(connection)
        assert reply.status == 400
        # Some answers are aiohttp's own, in HTTP/1.0, which keeps no connection without saying so.
        assert reply.headers.get("Connection", "close") == "close"
        assert connection.recv(1) == b""


def _asking_for(protocol: str, header: str) -> bytes:
    return (
        "POST /validate HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\n"
        f"Upgrade: {protocol}\r\n{header}\r\n"
        "Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
    ).encode()


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"CONNECT localhost:443 HTTP/1.1\r\nHost: x\r\n\r\n", 404),
        (_asking_for("websocket", "Sec-WebSocket-Key: x"), 400),
        (_asking_for("h2c", "HTTP2-Settings: AAMAAABkAAQAAP__"), 400),
    ],
)
def test_nothing_is_upgraded_or_tunnelled(site: Running, data: bytes, status: int) -> None:
    with site.connect() as connection:
        connection.sendall(data + b"more")
        reply = answer(connection)
        assert reply.status == status
        assert reply.headers["Connection"] == "close"


def test_requests_in_a_row_are_answered_in_order(site: Running) -> None:
    with site.connect() as connection:
        uids = [f"uid-{number}" for number in range(50)]
        data = b""
        for uid in uids:
            body = with_request(uid=uid)
            data += head("POST", "/validate", {**JSON, "Content-Length": str(len(body))}) + body
        connection.sendall(data)
        assert [reply.response["uid"] for reply in answers(connection, 50)] == uids


def test_an_old_client_gets_one_answer(site: Running) -> None:
    with site.connect() as connection:
        data = (
            b"POST /validate HTTP/1.0\r\nContent-Type: application/json\r\nContent-Length: %d\r\n"
        )
        connection.sendall(data % len(CREATION) + b"\r\n" + CREATION)
        reply = answer(connection)
        assert reply.response["allowed"] is True
        assert reply.headers["Connection"] == "close"
        assert connection.recv(1) == b""


def test_a_client_that_asks_first_is_told_to_go_on(site: Running) -> None:
    with site.connect() as connection:
        headers = {**JSON, "Content-Length": str(len(CREATION)), "Expect": "100-continue"}
        connection.sendall(head("POST", "/validate", headers))
        assert connection.recv(1000) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(CREATION)
        assert answer(connection).response["allowed"] is True


def test_an_answer_survives_the_rest_of_a_refused_body(
    site: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("webhook.serving.LINGER_SECONDS", PATIENCE)
    with site.connect() as connection:
        length = 3 * MIB
        connection.sendall(head("POST", "/nowhere", {**JSON, "Content-Length": str(length)}))
        connection.sendall(b" " * length)
        reply = answer(connection)
        assert reply.status == 404
        assert reply.headers["Connection"] == "close"


def test_a_400_leaves_the_connection_usable(site: Running) -> None:
    with site.connect() as connection:
        for body, status in ((b"{}", 400), (CREATION, 200), (b"[", 400), (CREATION, 200)):
            connection.sendall(
                head("POST", "/validate", {**JSON, "Content-Length": str(len(body))}) + body
            )
            assert answer(connection).status == status
