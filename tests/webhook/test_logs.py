"""Log lines: one a denial, whatever is in it."""

import errno
import io
import json
import logging
from typing import Any

import pytest
import structlog

from cli import logs
from tests.webhook.reviews import creation, eviction_request, refused_creation, review
from tests.webhook.running import Running, eventually

HOSTILE = (
    'a\nb\r\x1b[31mred\x1b[0m\x00\x85\u2028\u2029\u202e "quoted" user=root \x9b31m' + "ä" * 3000
)


def lines(stream: io.StringIO, event: str) -> list[dict[str, Any]]:
    return [
        line
        for line in map(json.loads, stream.getvalue().split("\n")[:-1])
        if line["event"] == event
    ]


def test_a_denial_is_exactly_one_line(site: Running, log: io.StringIO) -> None:
    site.call(review("CREATE", eviction_request(intent="x", requester="y"), dryRun=True))
    (line,) = map(json.loads, log.getvalue().splitlines())
    assert line.pop("timestamp").endswith("Z")
    causes = line.pop("causes")
    assert line == {
        "event": "denied",
        "level": "info",
        "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
        "rules": ["prefixed-keys", "enum-values"],
        "user": "jane",
        "operation": "CREATE",
        "group": "lifecycle.k8s.io",
        "resource": "evictionrequests",
        "subresource": "",
        "namespace": "default",
        "name": "drain-web-0",
        "dry_run": True,
        "reason": "Invalid",
        "violations": 2,
    }
    assert {cause["field"] for cause in causes} == {"spec.requester", "spec.intent"}
    assert all(cause["rule"] and cause["message"] for cause in causes)


def test_an_admission_is_no_line(site: Running, log: io.StringIO) -> None:
    site.call(creation())
    site.call(review("CREATE", {}, kind=("acme.io", "v1", "Widget")))
    assert log.getvalue() == ""


def test_what_cannot_be_judged_is_one_line(site: Running, log: io.StringIO) -> None:
    site.call(data=b'{"' + b"\\u000a" * 500 + b'": 1, "x": }')
    (line,) = map(json.loads, log.getvalue().splitlines())
    assert line["event"] == "refused"
    assert line["code"] == 400


@pytest.mark.parametrize("log_format", ["json", "text"])
def test_hostile_texts_cannot_break_a_line(site: Running, log_format: str) -> None:
    stream = io.StringIO()
    logs.configure(log_format, "info", stream)
    site.call(
        refused_creation(
            name=HOSTILE,
            namespace=HOSTILE,
            userInfo={"username": HOSTILE},
        )
    )
    eventually(stream.getvalue)
    text = stream.getvalue()
    assert len(text.splitlines()) == 1
    assert text.endswith("\n")
    assert text.removesuffix("\n").isprintable()
    assert len(text) < 60_000
    if log_format == "json":
        assert json.loads(text)["user"].startswith("a\nb\r\x1b[31mred")
    else:
        assert r"a\nb\r\x1b[31mred\x1b[0m\x00\x85\u2028" in text
        assert text.count(" user='a") == 1


@pytest.mark.parametrize("log_format", ["json", "text"])
@pytest.mark.parametrize("character", ["u", "ä", "\U0001f512", '"', "\x00"])
def test_a_line_is_bounded_in_bytes_whoever_writes(
    site: Running, log_format: str, character: str
) -> None:
    stream = io.StringIO()
    logs.configure(log_format, "info", stream)
    many = character * 20_000
    new = eviction_request()
    new["metadata"] = {"name": many, "annotations": {f"{many}{n}": "" for n in range(9)}}
    user = {"username": many, "groups": [many] * 9}
    call = review("CREATE", new, name=many, namespace=many, userInfo=user)
    assert site.call(call).response["allowed"] is False
    eventually(stream.getvalue)
    (line,) = stream.getvalue().splitlines()
    assert len(line.encode()) < 40_000
    assert "…" in line or r"\u2026" in line
    if log_format == "json":
        assert json.loads(line)["uid"]


def test_a_short_line_is_as_it_was() -> None:
    stream = io.StringIO()
    logs.configure("json", "info", stream)
    causes = [{"message": "ä" * 100, "rule": "x"}]
    structlog.get_logger().info("denied", causes=causes, violations=1, dry_run=False)
    line = json.loads(stream.getvalue())
    assert (line["causes"], line["violations"], line["dry_run"]) == (causes, 1, False)


def test_many_causes_are_cut(site: Running, log: io.StringIO) -> None:
    metadata = {"name": "x", "annotations": {f"bad key {n}": "" for n in range(500)}}
    response = site.call(review("CREATE", {**eviction_request(), "metadata": metadata})).response
    (line,) = lines(log, "denied")
    assert line["violations"] == 500
    assert len(line["causes"]) == 10
    assert len(response["status"]["details"]["causes"]) == 100
    assert response["status"]["message"].endswith("… and 400 more]")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("stream", "coloured"), [(Terminal(), True), (io.StringIO(), False)])
def test_colours_are_for_terminals(
    *, stream: io.StringIO, coloured: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    logs.configure("text", "info", stream)
    structlog.get_logger().info("serving", port=1)
    assert ("\x1b[" in stream.getvalue()) is coloured
    logs.configure("json", "info", stream)
    structlog.get_logger().info("serving", port=2)
    monkeypatch.setenv("NO_COLOR", "1")
    logs.configure("text", "info", stream)
    structlog.get_logger().info("serving", port=3)
    assert all("\x1b[" not in line for line in stream.getvalue().splitlines()[1:])


def test_a_full_disk_costs_lines_but_no_verdict(site: Running) -> None:
    class Full(io.StringIO):
        def flush(self) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

    stream = Full()
    logs.configure("json", "info", stream)
    assert site.call(refused_creation()).response["allowed"] is False
    assert "denied" in stream.getvalue()


def test_quieter_levels_are_left_out() -> None:
    stream = io.StringIO()
    logs.configure("json", "warning", stream)
    log = structlog.get_logger()
    log.info("a")
    log.debug("b")
    log.warning("c")
    log.error("d")
    assert [json.loads(line)["event"] for line in stream.getvalue().splitlines()] == ["c", "d"]


@pytest.mark.parametrize("log_format", ["json", "text"])
def test_lines_of_libraries_look_like_our_own(log_format: str) -> None:
    stream = io.StringIO()
    logs.configure(log_format, "info", stream)
    logging.getLogger("asyncio").warning("slow\n%s", "callback")
    (line,) = stream.getvalue().splitlines()
    assert "library" in line
    assert "asyncio" in line
    assert r"slow\ncallback" in line
    assert r"\\n" not in line


def test_a_failure_of_ours_is_one_line_with_its_uid(
    site: Running, log: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise RuntimeError("boom")

    monkeypatch.setattr("webhook.endpoints.Inquiry", fail)
    reply = site.call(creation())
    assert reply.status == 500
    assert reply.body == b"internal error; see the log\n"
    assert "Retry-After" not in reply.headers
    (line,) = log.getvalue().splitlines()
    record = json.loads(line)
    assert record["event"] == "failed"
    assert record["uid"] == "705ab4f5-6393-11e8-b7cc-42010a800002"
    assert "boom" in record["exception"]
    log.truncate(0)  # the only traceback that a test may see
    assert site.metric("usher_webhook_errors_total", code="500") >= 1
