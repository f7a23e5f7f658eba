"""``usher validate``: what is judged, as what, and where the findings point."""

import json
from pathlib import Path
from typing import Any

import pytest

from rules.api import Pod as PodShape
from rules.decode import SHAPES
from tests.cli.conftest import NOW, Run, Usher

REQUEST = """\
apiVersion: lifecycle.k8s.io/v1alpha1
kind: EvictionRequest
metadata:
  name: drain-db-0
spec:
  target:
    pod: {name: db-0, uid: 9b0a7a5e-5f0c-4b52-9f0c-6f2a1f0e7d11}
  requester: ops.acme.io/drain
  intent: Eviction
"""
EVICTION = """\
apiVersion: lifecycle.k8s.io/v1alpha1
kind: Eviction
metadata: {name: pod-1-db-0, namespace: shop, generation: 1}
spec:
  target: {pod: {name: db-0, uid: 9b0a7a5e-5f0c-4b52-9f0c-6f2a1f0e7d11}}
status:
  targetResponders:
  - {name: db.acme.io/failover, priority: 10000, state: Active}
  responders:
  - name: db.acme.io/failover
    startTime: 2026-07-01T11:55:00Z
"""
POD = """\
apiVersion: v1
kind: Pod
metadata: {name: db-0}
spec:
  containers: []
  evictionResponders:
  - {name: db.acme.io/failover, priority: 10000}
"""


def _write(content: str, name: str = "file.yaml") -> str:
    Path(name).parent.mkdir(parents=True, exist_ok=True)
    Path(name).write_bytes(content.encode())
    return name


def _found(run: Run) -> list[tuple[str, int, str, str]]:
    """(severity, line, field, rule) of each finding of a run with ``-o json``."""
    return [
        (finding["severity"], finding["line"], finding["field"], finding["rule"])
        for finding in json.loads(run.stdout)["findings"]
    ]


def _summary(run: Run) -> dict[str, int]:
    summary: dict[str, int] = json.loads(run.stdout)["summary"]
    return summary


def test_a_lawful_manifest_is_clean(usher: Usher) -> None:
    run = usher("validate", "--guards", "off", _write(REQUEST))
    assert run == Run(0, "1 file, 1 document: 0 errors, 0 warnings, 0 skipped\n", "")


def test_every_violation_is_told_at_once_with_its_line(usher: Usher) -> None:
    broken = REQUEST.replace("ops.acme.io", "x.k8s.io").replace("Eviction\n", "evict\n", 2)
    broken = broken.replace("kind: evict\n", "kind: Eviction\n").replace(
        ", uid: 9b0a7a5e", ", uid: X"
    )
    run = usher("validate", "-o", "json", _write(broken))
    assert run.exit_code == 1
    assert _found(run) == [
        ("error", 7, "spec.target.pod.uid", "uuid-format"),
        ("error", 8, "spec.requester", "unreserved-domains"),
        ("error", 9, "spec.intent", "enum-values"),
    ]


def test_text_output_reads_like_a_compiler(usher: Usher) -> None:
    run = usher("validate", _write(REQUEST.replace("  intent: Eviction\n", "")))
    finding, summary = run.stdout.splitlines()
    assert finding == (
        "file.yaml:5:1: error: spec.intent: Required value: must be set [required-fields] "
        "(EvictionRequest drain-db-0)"
    )
    assert summary == "1 file, 1 document: 1 error, 0 warnings, 0 skipped"


# --- what is read -------------------------------------------------------------------------------


def test_many_documents_and_kinds(usher: Usher) -> None:
    other = "apiVersion: v1\nkind: ConfigMap\ndata: {1: x, a: !!binary aGk=}\n"
    documents = [REQUEST, other, EVICTION, POD, "a: 1\n", "- 1\n", "text\n"]
    content = "---\n".join(documents)
    run = usher("validate", "-o", "json", _write(content))
    assert run.exit_code == 0
    assert _summary(run) == {
        "files": 1,
        "documents": 7,
        "skipped": 4,
        "errors": 0,
        "warnings": 0,
        "notes": 0,
    }


def _workload(key: tuple[str, str, str], root: str) -> dict[str, Any]:
    group, version, kind = key
    document: dict[str, Any] = {
        "apiVersion": f"{group}/{version}".removeprefix("/"),
        "kind": kind,
        "metadata": {"name": "x"},
    }
    part = document
    for name in filter(None, root.split(".")):
        part = part.setdefault(name, {})
    part.setdefault("spec", {})["evictionResponders"] = [{"name": "a.io/x", "priority": 1}]
    return document


@pytest.mark.parametrize(
    ("key", "root"),
    [(key, shape.root) for key, shape in SHAPES.items() if shape.model is PodShape],
    ids=str,
)
def test_pods_in_every_workload(usher: Usher, key: tuple[str, str, str], root: str) -> None:
    text = json.dumps(_workload(key, root), indent=1)
    run = usher("validate", "-o", "json", _write(text, "file.json"))
    line = text.splitlines().index(next(t for t in text.splitlines() if '"priority"' in t)) + 1
    field = f"{root}.spec.evictionResponders[0].priority".removeprefix(".")
    assert _found(run) == [("error", line, field, "unreserved-priorities")]


def test_a_list_of_objects(usher: Usher) -> None:
    items = "".join(f"-\n{_indented(text)}" for text in (POD, "kind: Service\n", REQUEST))
    broken = items.replace("10000", "10").replace("ops.acme.io/drain", "drain")
    run = usher("validate", "-o", "json", _write(f"apiVersion: v1\nkind: List\nitems:\n{broken}"))
    assert _found(run) == [
        ("error", 11, "spec.evictionResponders[0].priority", "unreserved-priorities"),
        ("error", 22, "spec.requester", "prefixed-keys"),
    ]
    findings = json.loads(run.stdout)["findings"]
    assert [(found["document"], found["item"]) for found in findings] == [(1, 0), (1, 2)]
    assert _summary(run)["documents"] == 3


def _indented(text: str) -> str:
    return "".join(f"  {line}\n" for line in text.splitlines())


def test_a_typed_list_names_the_kind_of_its_items(usher: Usher) -> None:
    text = "apiVersion: v1\nkind: PodList\nitems:\n- metadata: {name: a}\n  spec:\n"
    text += "    evictionResponders: [{name: a.io/x}]\n"
    run = usher("validate", "-o", "json", _write(text))
    assert _found(run) == [("error", 6, "spec.evictionResponders[0].priority", "required-fields")]


def test_problems_in_a_list_belong_to_their_item(usher: Usher) -> None:
    text = "kind: List\nkind: List\nitems:\n"
    text += "- {kind: ConfigMap, a: 1, a: 2}\n"
    text += "- {apiVersion: v1, kind: Pod, spec: {a: 1, a: 2}}\n"
    run = usher("validate", "-o", "json", _write(text))
    assert run.exit_code == 2
    assert _found(run) == [("error", 5, "spec", "json-values")]


def test_every_problem_of_a_long_list_is_found(usher: Usher) -> None:
    item = "- {apiVersion: v1, kind: Pod, a: 1, a: 2}\n"
    run = usher("validate", _write("kind: List\nitems:\n" + item * 10_000))
    assert "10000 errors" in run.stdout


def test_an_empty_list_is_fine(usher: Usher) -> None:
    run = usher("validate", _write("apiVersion: v1\nkind: List\nitems: []\n"))
    assert run.stdout == "1 file, 0 documents: 0 errors, 0 warnings, 0 skipped\n"


def test_directories_are_read_recursively_and_in_order(usher: Usher) -> None:
    for name in ("d/z.yaml", "d/a/b.yml", "d/c.json", "d/ignored.txt", "d/.hidden/e.yaml"):
        _write("{}" if name.endswith("json") else REQUEST.replace("Eviction\n", "x\n", 3), name)
    run = usher("validate", "d", "d", "-o", "text")
    places = [line.partition(":")[0] for line in run.stdout.splitlines()[:-1]]
    assert list(dict.fromkeys(places)) == ["d/.hidden/e.yaml", "d/a/b.yml", "d/z.yaml"]
    assert run.stdout.splitlines()[-1].startswith("4 files, 4 documents: ")


def test_standard_input(usher: Usher) -> None:
    run = usher("validate", "-", stdin=REQUEST.replace("Eviction\n", "x\n", 9))
    assert run.exit_code == 1
    assert run.stdout.startswith("<stdin>:")
    assert (
        usher("validate", "-f", "-", stdin=json.dumps({"kind": "List", "items": []})).exit_code == 0
    )


def test_empty_standard_input_is_an_error_because_a_pipe_may_have_broken(usher: Usher) -> None:
    run = usher("validate", "-", stdin="\n")
    assert run.exit_code == 2
    assert "did the command before the pipe fail?" in run.stdout


def test_file_names_of_any_bytes(usher: Usher) -> None:
    name = "a\nb\x1b[31m\udcff.yaml"
    Path(name).write_text("a: [", encoding="utf-8")
    run = usher("validate", name)
    assert run.stdout.startswith(r"a\x0ab\x1b[31m\xff.yaml:")


def test_an_unreadable_file_does_not_stop_the_others(usher: Usher, monkeypatch: Any) -> None:
    _write(REQUEST, "a.yaml")
    _write("a: [", "b.yaml")
    Path("c.yaml").symlink_to("c.yaml")
    _write(REQUEST.replace("Eviction\n", "x\n", 9), "d.yaml")
    run = usher("validate", ".")
    assert run.exit_code == 2
    assert "c.yaml:1:1: error: could not be read: Too many levels of symbolic links" in run.stdout
    assert "b.yaml:2:1" in run.stdout or "b.yaml:1:" in run.stdout
    assert "d.yaml:" in run.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "name a FILE or a DIR, or '-'"),
        (["missing.yaml"], "missing.yaml: no such file or directory"),
        (["empty"], "empty: no *.yaml, *.yml, *.json in this directory or below"),
        (["--operation", "UPDATE", "."], "name the stored objects with --old FILE"),
        (["--subresource", "status", "."], "name the stored objects with --old FILE"),
        (["--operation", "CREATE", "--old", ".", "."], "leave out --old"),
        (["--old", "-", "-"], "'-' can be named once"),
        (["--old", "missing", "."], "missing: no such file or directory"),
        (["--now", "yesterday", "."], "RFC 3339 time such as"),
        (["--enforce", "first-sinc=off", "."], "did you mean 'first-sync'?"),
        (["--enforce", "first-sync=never", "."], "must be one of deny, warn, audit, off"),
        (["--output", "xml", "."], "'json'"),
        (["--strickt", "."], "--strict"),
    ],
)
def test_bad_usage_says_what_to_do(usher: Usher, arguments: list[str], message: str) -> None:
    _write(REQUEST)
    Path("empty").mkdir()
    run = usher("validate", *arguments)
    assert run.exit_code == 2
    assert message in run.stderr
    assert run.stdout == ""


# --- what cannot be judged ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "line", "field", "rule"),
    [
        ("  intent: Eviction", "  intent: [", 10, "", "readable-file"),
        (
            "  intent: Eviction",
            "  intent: Eviction\n  intent: Withdrawn",
            10,
            "spec",
            "json-values",
        ),
        ("  intent: Eviction", "  intent: yes", 9, "spec.intent", "field-types"),
        ("metadata:\n", "metadata: x\nother:\n", 3, "metadata", "field-types"),
        ("  name: drain-db-0", "  labels: {a.b/c: 5}", 4, "metadata.labels.a.b/c", "field-types"),
        ("kind: EvictionRequest", "kind: EvictionRequst", 2, "kind", "known-kind"),
        ("kind: EvictionRequest\n", "", 1, "kind", "known-kind"),
        ("/v1alpha1", "/v1beta1", 1, "apiVersion", "known-kind"),
        ("apiVersion: lifecycle.k8s.io/v1alpha1\n", "", 1, "", "known-kind"),
    ],
)
def test_broken_input_ends_with_2_and_a_line(
    usher: Usher, old: str, new: str, line: int, field: str, rule: str
) -> None:
    run = usher("validate", "-o", "json", _write(REQUEST.replace(old, new, 1)))
    assert run.exit_code == 2
    assert _found(run) == [("error", line, field, rule)]


@pytest.mark.parametrize(
    ("old", "new", "field", "hint"),
    [
        ("ResponderP", "ResponderrP", "kind", "did you mean 'ResponderPolicy'"),
        ("v1alpha1", "v1", "apiVersion", "must be 'usher.dev/v1alpha1'"),
        ("apiVersion: usher.dev/v1alpha1\n", "", "", "must be set"),
    ],
)
def test_a_misspelt_policy_is_recognised(
    usher: Usher, old: str, new: str, field: str, hint: str
) -> None:
    policy = "apiVersion: usher.dev/v1alpha1\nkind: ResponderPolicy\nmetadata: {name: db}\n"
    run = usher("validate", "-o", "json", _write(policy.replace(old, new, 1)))
    assert run.exit_code == 2
    ((severity, _, found, rule),) = _found(run)
    assert (severity, found, rule) == ("error", field, "known-kind")
    assert hint in run.stdout


def test_a_misspelt_kind_is_recognised(usher: Usher) -> None:
    run = usher("validate", _write(REQUEST.replace("kind: EvictionR", "kind: EvictionRR")))
    assert "did you mean 'EvictionRequest'" in run.stdout


@pytest.mark.parametrize(
    "text",
    [
        "apiVersion: policy/v1\nkind: Eviction\nmetadata: {name: 5}\n",
        "apiVersion: v2\nname: a-chart\n",
        "apiVersion: apps/v1\nkind: Eviction\n",
        "kind: Kustomization\n",
        "on: push\nyes: {1: 2}\n",
        "a: !Ref b\n",
    ],
)
def test_what_is_not_ours_is_skipped_whatever_is_in_it(usher: Usher, text: str) -> None:
    run = usher("validate", _write(text))
    assert run.exit_code == 0
    assert "1 skipped" in run.stdout
    assert "nothing was judged" in run.stderr
    assert "EvictionRequest" in run.stderr


def test_the_debug_log_names_what_was_skipped(usher: Usher) -> None:
    _write(f"{REQUEST}---\napiVersion: v1\nkind: Secret\n")
    log = ("--log-level", "debug", "--log-format", "json")
    run = usher("validate", "file.yaml", "--guards", "off", *log)
    (line,) = map(json.loads, run.stderr.splitlines())
    assert (line["event"], line["document"], line["kind"]) == ("skipped", 2, "Secret")


def test_control_characters_do_not_reach_the_terminal(usher: Usher) -> None:
    text = REQUEST.replace("drain-db-0", r'"\e[31mx"').replace(
        "  intent", r'  "\e[2J": 1' "\n  intent"
    )
    run = usher("validate", _write(text))
    assert "\x1b" not in run.stdout
    assert r"\x1b[2J" in run.stdout


# --- severities ---------------------------------------------------------------------------------


def test_unknown_fields_are_warnings_or_with_strict_errors(usher: Usher) -> None:
    text = REQUEST.replace("  intent", "  requestor: x\n  intent").replace("uid:", "uuid: x, uid:")
    _write(text)
    run = usher("validate", "-o", "json", "file.yaml")
    assert run.exit_code == 0
    assert _found(run) == [
        ("warning", 7, "spec.target.pod.uuid", "known-fields"),
        ("warning", 9, "spec.requestor", "known-fields"),
    ]
    assert usher("validate", "file.yaml", "--fail-on-warnings").exit_code == 1
    strict = usher("validate", "-o", "json", "--strict", "file.yaml")
    assert strict.exit_code == 1
    assert [severity for severity, *_ in _found(strict)] == ["error", "error"]


def test_of_a_pod_only_responders_are_known(usher: Usher) -> None:
    text = POD.replace("priority: 10000", "priority: 10000, prio: 1").replace(
        "{name: db-0}",
        """{name: db-0, annotations: {usher.dev/eviction-responders: '[{"nam": 1}]'}}""",
    )
    run = usher("validate", "-o", "json", _write(text))
    assert ("warning", 7, "spec.evictionResponders[0].prio", "known-fields") in _found(run)
    annotation = "metadata.annotations[usher.dev/eviction-responders]"
    assert ("warning", 3, f"{annotation}[0].nam", "known-fields") in _found(run)


def test_a_list_in_an_annotation_over_several_lines(usher: Usher) -> None:
    text = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  template:
    metadata:
      annotations:
        usher.dev/eviction-responders: |
          [
            {"name": "db.acme.io/failover", "priority": 10000},
            {"name": "k8s.io/failover", "priority": 10000}
          ]
"""
    run = usher("validate", "-o", "json", _write(text))
    field = "spec.template.metadata.annotations[usher.dev/eviction-responders][1].name"
    assert _found(run) == [("error", 11, field, "unreserved-domains")]


@pytest.mark.parametrize("text", ["db.acme.io/failover", "{}", "5", '["x"]', '{"a": 1, "a": 2}'])
def test_an_annotation_that_cannot_be_read(usher: Usher, text: str) -> None:
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"annotations": {"usher.dev/eviction-responders": text}},
    }
    run = usher("validate", "-o", "json", "-", stdin=json.dumps(pod))
    field = "metadata.annotations[usher.dev/eviction-responders]"
    assert _found(run) == [("error", 1, field, "readable-annotation")]


SIX = "[{}]".format(", ".join(f"{{name: a.io/x{i}, priority: 10000}}" for i in range(6)))


def test_guards_can_be_set_and_turned_off(usher: Usher) -> None:
    text = POD.replace("\n  - {name: db.acme.io/failover, priority: 10000}", f" {SIX}")
    _write(text)

    def severities(*arguments: str) -> list[str]:
        run = usher("validate", "-o", "json", "file.yaml", *arguments)
        return [f"{run.exit_code}", *(severity for severity, *_ in _found(run))]

    assert severities() == ["0", "warning"]
    assert severities("--enforce", "response-budget=deny") == ["1", "error"]
    assert severities("--enforce", "response-budget=audit") == ["0", "note"]
    assert severities("--response-budget", "6") == ["0"]
    assert severities("--guards", "off") == ["0"]
    assert severities("--guards", "off", "--enforce", "response-budget=deny") == ["1", "error"]
    assert severities("--audit-only", "--fail-on-warnings") == ["0", "note"]


def test_notes_are_counted(usher: Usher) -> None:
    run = usher("validate", "--audit-only", _write(REQUEST.replace("ops.acme.io", "a.k8s.io")))
    assert run.exit_code == 0
    assert run.stdout.endswith("0 errors, 0 warnings, 1 note, 0 skipped\n")


ANNOTATED = """\
apiVersion: v1
kind: Pod
metadata:
  name: db-0
  annotations:
    usher.dev/eviction-responders: '[{"name": "db.acme.io/failover", "priority": 10000}]'
"""


def test_responders_in_a_place_that_the_cluster_does_not_read(usher: Usher) -> None:
    native, annotated = _write(POD, "native.yaml"), _write(ANNOTATED, "annotated.yaml")
    both = _write(ANNOTATED + POD[POD.index("spec:") :], "both.yaml")

    def found(mode: str, file: str) -> list[tuple[str, int, str, str]]:
        return _found(usher("validate", "-o", "json", "--mode", mode, file))

    rule = "effective-responders"
    field = "metadata.annotations[usher.dev/eviction-responders]"
    assert found("crd", native) == [("warning", 6, "spec.evictionResponders", rule)]
    assert found("native", annotated) == [("warning", 6, field, rule)]
    assert found("crd", annotated) == []
    assert found("native", native) == []
    for mode in ("crd", "native"):
        assert found(mode, both) == []
    for file in (native, annotated, both):
        assert found("auto", file) == []


# --- old and new --------------------------------------------------------------------------------


def _change(usher: Usher, old: str, new: str, *arguments: str) -> Run:
    _write(old, "old.yaml")
    _write(new, "new.yaml")
    return usher(
        "validate", "-o", "json", "--now", NOW, "--old", "old.yaml", "new.yaml", *arguments
    )


def test_a_change_of_spec(usher: Usher) -> None:
    run = _change(usher, REQUEST, REQUEST.replace("ops.acme.io", "vpa.acme.io"))
    assert _found(run) == [("error", 8, "spec.requester", "immutable-fields")]
    assert run.exit_code == 1


def test_a_namespace_may_be_left_to_kubectl(usher: Usher) -> None:
    stored = REQUEST.replace("drain-db-0", "drain-db-0\n  namespace: shop")
    assert _found(_change(usher, stored, REQUEST)) == []
    assert _found(_change(usher, REQUEST, stored)) == []
    other = stored.replace("shop", "other")
    assert _found(_change(usher, stored, other)) == [
        ("error", 5, "metadata.namespace", "object-metadata")
    ]


def test_a_single_pair_is_compared_whatever_its_names(usher: Usher) -> None:
    run = _change(usher, REQUEST, REQUEST.replace("drain-db-0", "other"))
    assert _found(run) == [("error", 4, "metadata.name", "object-metadata")]


def test_several_objects_are_matched_by_name(usher: Usher) -> None:
    def request(name: str, requester: str) -> str:
        return REQUEST.replace("drain-db-0", name).replace("ops.acme.io", requester)

    old = "---\n".join(request(name, "a.io") for name in ("one", "two"))
    new = "---\n".join([request("two", "b.io"), request("three", "c.io"), request("one", "a.io")])
    run = _change(usher, old, new)
    assert _found(run) == [("error", 8, "spec.requester", "immutable-fields")]
    update = _change(usher, old, new, "--operation", "UPDATE")
    assert update.exit_code == 2
    assert _found(update)[1:] == [("error", 11, "", "stored-object")]


def test_an_object_without_a_name_of_its_own_is_always_new(usher: Usher) -> None:
    unnamed = REQUEST.replace("name: drain-db-0", "generateName: drain-")
    assert _change(usher, unnamed, unnamed).exit_code == 0
    assert _change(usher, unnamed, f"{unnamed}---\n{unnamed}").exit_code == 0


def test_a_new_object_of_another_kind_is_judged_as_created(usher: Usher) -> None:
    assert _change(usher, REQUEST, EVICTION).exit_code == 0


def test_the_same_object_twice_in_old_is_an_error(usher: Usher) -> None:
    run = _change(usher, f"{REQUEST}---\n{REQUEST}", REQUEST)
    assert run.exit_code == 2
    assert _found(run) == [("error", 1, "", "stored-object")]
    assert "keep one" in run.stdout


@pytest.mark.parametrize(
    ("old", "rule"),
    [
        (REQUEST.replace("intent: Eviction", "intent: 5"), "field-types"),
        (REQUEST.replace("intent: Eviction", "intent: ["), "readable-file"),
    ],
)
def test_a_broken_stored_object_is_told_about_in_its_file(
    usher: Usher, old: str, rule: str
) -> None:
    run = _change(usher, old, REQUEST)
    assert run.exit_code == 2
    (finding,) = json.loads(run.stdout)["findings"]
    assert (finding["file"], finding["rule"]) == ("old.yaml", rule)


HEARTBEAT = EVICTION.replace("11:55:00Z", "11:55:00Z\n    heartbeatTime: 2026-07-01T12:00:00Z")


def test_a_status_write(usher: Usher) -> None:
    status = ("--subresource", "status")
    assert _found(_change(usher, EVICTION, HEARTBEAT, *status)) == []
    late = HEARTBEAT.replace("T12:00:00Z", "T11:58:00Z")
    assert _found(_change(usher, EVICTION, late, *status)) == [
        ("error", 12, "status.responders[0].heartbeatTime", "heartbeat-times")
    ]
    # In a status write spec does not count, and without one status does not.
    moved = HEARTBEAT.replace("name: db-0", "name: db-1")
    assert _found(_change(usher, EVICTION, moved, *status)) == []
    assert _found(_change(usher, EVICTION, late)) == []
    assert _found(_change(usher, EVICTION, moved)) == [
        ("error", 5, "spec.target", "immutable-fields")
    ]


def test_pods_have_no_status_that_is_judged(usher: Usher) -> None:
    run = _change(usher, POD, POD.replace("10000", "1"), "--subresource", "status")
    assert _summary(run)["skipped"] == 1


def test_responders_of_a_pod_are_fixed_but_not_those_of_a_template(usher: Usher) -> None:
    changed = POD.replace("10000", "20000")
    assert _found(_change(usher, POD, changed)) == [
        ("error", 6, "spec.evictionResponders", "fixed-pod-responders")
    ]
    template = "apiVersion: v1\nkind: PodTemplate\nmetadata: {name: x}\ntemplate:\n"
    old, new = (template + _indented(text) for text in (POD, changed))
    assert _found(_change(usher, old, new)) == []


def test_the_present_is_the_default_time(usher: Usher) -> None:
    run = usher("validate", "-o", "json", _write(REQUEST))
    assert json.loads(run.stdout)["now"] != NOW
    fixed = usher("validate", "-o", "json", "--now", NOW, "file.yaml")
    assert json.loads(fixed.stdout)["now"] == NOW
