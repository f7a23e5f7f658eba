"""``usher export`` and ``usher restore``: what is carried over, and what becomes of bad files and
failing clusters. tests/cli/test_e2e_switch.py does it with a real cluster."""

import json
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

import click
import pytest
import yaml

from cli.main import usher as group
from controller.eviction.planning.restoration import plan_restoration, read_exported
from rules.decode import DecodeError
from tests.cli.conftest import Usher, usher

__all__ = ["usher"]

UID: Final = "11111111-2222-3333-4444-555555555555"
_API: Final = "lifecycle.k8s.io/v1alpha1"
_TIME: Final = "2026-07-01T12:00:00Z"


def condition(type_: str, reason: str, status: str = "True") -> dict[str, str]:
    return {"type": type_, "status": status, "reason": reason, "lastTransitionTime": _TIME}


def request(
    name: str, *conditions: Mapping[str, str], intent: str = "Eviction", **metadata: Any
) -> dict[str, Any]:
    return {
        "apiVersion": _API,
        "kind": "EvictionRequest",
        "metadata": {
            "name": name,
            "namespace": "db",
            "uid": f"uid-of-{name}",
            "generation": 2,
            "creationTimestamp": _TIME,
            **metadata,
        },
        "spec": {
            "target": {"pod": {"name": "web-0", "uid": UID}},
            "requester": "drain.acme.io/nodes",
            "intent": intent,
        },
        "status": {"observedGeneration": 2, "conditions": list(conditions)},
    }


def eviction(
    *conditions: Mapping[str, str], uid: str = UID, states: Mapping[str, str] | None = None
) -> dict[str, Any]:
    responders = [{"name": n, "priority": 9, "state": s} for n, s in (states or {}).items()]
    return {
        "apiVersion": _API,
        "kind": "Eviction",
        "metadata": {"name": "pod-3-web-0", "namespace": "db"},
        "spec": {"target": {"pod": {"name": "web-0", "uid": uid}}},
        "status": {"conditions": list(conditions), "targetResponders": responders},
    }


ENDED: Final = condition("TargetEvicted", "PodDeleted")


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        (request("a"), ""),
        (request("a", intent="Withdrawn"), ""),
        (request("a", condition("Failed", "CanceledDueToNoRequesters")), ""),
        (request("a", condition("Failed", "NoFurtherResponder")), ""),
        (request("a", condition("TargetEvicted", "AwaitingEviction", "False")), ""),
        (request("a", ENDED), "has ended"),
        (request("a", condition("Failed", "EvictionInvalid")), "has ended"),
        # Its spec has changed since: it is to be judged anew.
        (request("a", ENDED, generation=3), ""),
        (request("a", deletionTimestamp=_TIME), "was being deleted"),
        (eviction(ENDED), "has ended"),
        (eviction(condition("Failed", "NoFurtherResponder")), "has ended"),
        (eviction(), "nobody asks for it any more"),
    ],
)
def test_what_matters_is_made_again(document: dict[str, Any], reason: str) -> None:
    (found,) = plan_restoration([document])
    assert found.reason == reason
    assert (found.create is None) == bool(reason)


def test_what_people_wrote_is_kept_and_the_rest_is_not() -> None:
    own = {
        "labels": {"team": "db"},
        "annotations": {"acme.io/why": "upgrade"},
        "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "u"}],
        "finalizers": ["acme.io/drain"],
    }
    document = request("a", **own)
    (found,) = plan_restoration([document])
    assert found.create == {
        "apiVersion": _API,
        "kind": "EvictionRequest",
        "metadata": {"name": "a", "namespace": "db", **own},
        "spec": document["spec"],
    }


@pytest.mark.parametrize(
    ("others", "ending"),
    [
        ([request("a")], "all responders begin again; completed before: a.io/x"),
        ([request("a", intent="Withdrawn")], "nobody asks for it any more"),
        ([request("a", ENDED)], "nobody asks for it any more"),
        ([], "nobody asks for it any more"),
    ],
)
def test_an_eviction_in_progress_depends_on_its_requests(
    others: list[dict[str, Any]], ending: str
) -> None:
    going_on = eviction(states={"a.io/x": "Completed", "a.io/y": "Active"})
    *_, found = plan_restoration([*others, going_on])
    assert found.create is None
    assert found.reason.endswith(ending)


@pytest.mark.parametrize(
    "document",
    [
        None,
        [],
        {},
        {"kind": "Pod", "apiVersion": "v1"},
        {**request("a"), "apiVersion": "lifecycle.k8s.io/v1"},
        {**request("a"), "metadata": {"name": "a"}},
        {**request("a"), "spec": {"intent": 1}},
    ],
)
def test_anything_else_is_no_export(document: Any) -> None:
    with pytest.raises(DecodeError):
        read_exported(document)


# --- the commands -------------------------------------------------------------------------------


class _Api(BaseHTTPRequestHandler):
    """An API server that fails as it is told."""

    answers: Iterator[int]
    """The statuses of creations, one after the other."""
    list_status: int = 200
    made: list[str]

    def do_GET(self) -> None:
        self._answer(self.list_status if self.path.split("?")[0].endswith("s") else 404)

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        status = next(self.answers)
        if status == 201 and "dryRun" not in self.path:
            self.made.append(body["metadata"]["name"])
        self._answer(status)

    def _answer(self, status: int) -> None:
        message = {403: 'evictionrequests is forbidden: User "u" cannot create', 422: "is invalid"}
        body = {"items": [], "metadata": {}, "message": message.get(status, f"said {status}")}
        content = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def api(*statuses: int, listing: int = 200) -> Iterator[list[str]]:
    """An API server for the kubeconfig ``k``; gives the names of what was made."""
    members = {"answers": iter(statuses), "list_status": listing, "made": []}
    handler = type("Handler", (_Api,), members)
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [
            {"name": "c", "cluster": {"server": f"http://127.0.0.1:{server.server_port}"}}
        ],
        "users": [{"name": "u", "user": {"token": "secret"}}],
    }
    Path("k").write_text(yaml.safe_dump(config))
    try:
        yield handler.made
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def exported(usher: Usher) -> str:
    lines = [request("a"), request("b"), eviction(), request("c", ENDED)]
    Path("f").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return "f"


_K: Final = ("--kubeconfig", "k")


def test_every_line_is_reported(usher: Usher, exported: str) -> None:
    with api(201, 422) as made:
        run = usher("restore", exported, *_K)
    assert run.exit_code == 1
    assert made == ["a"]
    lines = run.stdout.splitlines()
    assert lines[0] == "line 1: EvictionRequest db/a: created"
    assert lines[1] == "line 2: EvictionRequest db/b: refused: is invalid"
    assert lines[2].startswith("line 3: Eviction db/pod-3-web-0: left out: the controller makes")
    assert lines[3:] == ["line 4: EvictionRequest db/c: left out: has ended"]
    assert "1 created, 0 exists, 2 left out, 0 differs, 1 refused" in run.stderr


def test_the_json_is_as_documented(usher: Usher, exported: str) -> None:
    with api(201, 201):
        run = usher("restore", exported, "-o", "json", *_K)
    assert run.exit_code == 0
    assert json.loads(run.stdout.splitlines()[3]) == {
        "line": 4,
        "kind": "EvictionRequest",
        "namespace": "db",
        "name": "c",
        "outcome": "leftOut",
        "reason": "has ended",
    }


@pytest.mark.parametrize(("status", "text"), [(500, "said 500"), (403, "the permission to create")])
def test_a_failing_cluster_is_left_in_peace(
    usher: Usher, exported: str, status: int, text: str
) -> None:
    with api(201, status) as made:
        run = usher("restore", exported, *_K)
    assert run.exit_code == 3
    assert made == ["a"]
    assert f"line 2, EvictionRequest db/b: {text}" in run.stderr
    assert "the command may be run again" in run.stderr


def test_a_dry_run_makes_nothing(usher: Usher, exported: str) -> None:
    with api(201, 201) as made:
        run = usher("restore", exported, "--dry-run", *_K)
    assert (run.exit_code, made) == (0, [])
    assert "2 created" in run.stderr
    assert "(dry run)" in run.stderr


def test_of_a_damaged_file_nothing_is_restored(usher: Usher, exported: str) -> None:
    with Path(exported).open("a") as file:
        file.write('{"kind": "Evic')
    with api() as made:
        run = usher("restore", exported, *_K)
    assert (run.exit_code, made) == (2, [])
    assert "nothing is restored" in run.stderr
    assert "f:5: must be valid JSON" in run.stderr


@pytest.mark.parametrize("command", ["export", "restore"])
def test_an_api_that_is_not_served_is_said(usher: Usher, exported: str, command: str) -> None:
    file = exported if command == "restore" else "new"
    with api(listing=404):
        run = usher(command, file, *_K)
    assert run.exit_code == 3
    assert "does not serve lifecycle.k8s.io/v1alpha1" in run.stderr
    assert not Path("new").exists()


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("restore", "none"), "none: No such file"),
        (("restore", "f"), "Outside of a cluster give --kubeconfig"),
        (("export", "f"), "f: exists already. Choose another name"),
        (("export", "none/f"), "No such file or directory. Choose another place"),
        (("export", "new"), "Outside of a cluster give --kubeconfig"),
    ],
)
def test_errors_say_what_to_do(
    usher: Usher, exported: str, arguments: tuple[str, ...], text: str
) -> None:
    run = usher(*arguments)
    assert run.exit_code == 2
    assert text in run.stderr


def test_an_export_may_go_to_standard_output(usher: Usher) -> None:
    usher("--version")  # changes into an empty directory
    with api():
        run = usher("export", "-", *_K)
    assert (run.exit_code, run.stdout) == (0, "")
    assert "0 EvictionRequests, 0 Evictions exported" in run.stderr


def test_every_flag_that_the_page_names_exists() -> None:
    page = (Path(__file__).parents[2] / "docs" / "modes.md").read_text(encoding="utf-8")
    context = click.Context(group)
    known = {"--raw", "--runtime-config"}  # of others
    for name in ("export", "restore", "serve"):
        command = group.get_command(context, name)
        assert command is not None
        known |= {flag for option in command.params for flag in option.opts}
    assert set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", page)) <= known


@pytest.mark.parametrize("name", ["export", "restore"])
def test_help_mentions_every_option_and_has_an_example(usher: Usher, name: str) -> None:
    run = usher(name, "--help")
    assert f" usher {name} evictions.jsonl" in run.stdout
    command = group.get_command(click.Context(group), name)
    assert command is not None
    for option in command.params:
        assert not isinstance(option, click.Option) or option.help
