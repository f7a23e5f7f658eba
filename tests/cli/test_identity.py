"""``usher validate --as USER --rbac FILE``: who may do it, by manifests alone."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from cli.judgement.unanswered import NEEDS
from cli.reference import entries
from rules.catalog import GUARDS
from rules.decode import SHAPES, decode_object
from rules.evaluate import Inquiry
from rules.facts import Answer, Facts, LivePod, Question
from rules.request import Operation, Request, User
from rules.times import parse_time
from tests.cases import fact_about
from tests.cli.conftest import NOW, Run, Usher
from tests.cli.test_validate import EVICTION, HEARTBEAT, REQUEST

RBAC = """\
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: failover, namespace: shop}
rules:
- apiGroups: [lifecycle.k8s.io]
  resources: [evictionresponders]
  resourceNames: [db.acme.io/failover]
  verbs: [respond]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: failover, namespace: shop}
roleRef: {kind: Role, name: failover}
subjects:
- {kind: ServiceAccount, name: operator, namespace: shop}
"""
ROLE = RBAC[: RBAC.index("---")]
OPERATOR = "system:serviceaccount:shop:operator"
FORGED = HEARTBEAT.replace(
    "status:\n",
    "status:\n"
    "  conditions:\n"
    "  - {type: TargetEvicted, status: 'True', reason: x, message: '', lastTransitionTime: "
    f"{NOW}}}\n",
)


def _write(content: str, name: str) -> str:
    Path(name).parent.mkdir(parents=True, exist_ok=True)
    Path(name).write_text(content, encoding="utf-8")
    return name


def _heartbeat(usher: Usher, *arguments: str, new: str = HEARTBEAT, **options: Any) -> Run:
    """A run that judges a heartbeat."""
    _write(EVICTION, "old.yaml")
    _write(new, "new.yaml")
    flags = ("-o", "json", "--now", NOW, "--old", "old.yaml", "--subresource", "status")
    return usher("validate", *flags, *arguments, "new.yaml", **options)


def _found(run: Run) -> list[tuple[str, str, int, str]]:
    """(rule, file, line, field) of each finding."""
    return [
        (finding["rule"], finding["file"], finding["line"], finding["field"])
        for finding in json.loads(run.stdout)["findings"]
    ]


def _left_out(run: Run) -> list[str]:
    return [line for line in run.stderr.splitlines() if line.startswith("guards left out")]


REFUSED = ("responder-identity", "new.yaml", 10, "status.responders[0]")


def test_who_may_respond(usher: Usher) -> None:
    rbac = _write(RBAC, "rbac.yaml")
    run = _heartbeat(usher, "--as", OPERATOR, "--rbac", rbac)
    assert (run.exit_code, _found(run), _left_out(run)) == (0, [], [])
    run = _heartbeat(usher, "--as", "jane", "--rbac", rbac)
    assert (run.exit_code, _found(run), _left_out(run)) == (1, [REFUSED], [])
    (finding,) = json.loads(run.stdout)["findings"]
    assert (
        "'jane' may not respond as 'db.acme.io/failover' in namespace 'shop'" in finding["message"]
    )


def test_the_rule_in_a_refusal_grants_it(usher: Usher) -> None:
    rbac = _write(RBAC.replace("failover]", "other]"), "rbac.yaml")
    refused = _heartbeat(usher, "--as", OPERATOR, "--rbac", rbac)
    (finding,) = json.loads(refused.stdout)["findings"]
    _, _, rule = finding["message"].partition("grants it: ")
    _write(RBAC[: RBAC.index("- api")] + f"- {rule}\n" + RBAC[RBAC.index("---") :], "rbac.yaml")
    assert _heartbeat(usher, "--as", OPERATOR, "--rbac", rbac).exit_code == 0


def test_groups_are_given_or_implied(usher: Usher) -> None:
    group = "{kind: Group, name: dba}"
    rbac = _write(
        RBAC.replace("{kind: ServiceAccount, name: operator, namespace: shop}", group), "r.yaml"
    )
    assert _heartbeat(usher, "--as", "jane", "--rbac", rbac).exit_code == 1
    assert _heartbeat(usher, "--as", "jane", "--as-group", "dba", "--rbac", rbac).exit_code == 0
    _write(Path(rbac).read_text().replace("dba", "system:serviceaccounts:shop"), rbac)
    assert _heartbeat(usher, "--as", OPERATOR, "--rbac", rbac).exit_code == 0
    environment = {"USHER_AS": "jane", "USHER_AS_GROUP": "a system:masters", "USHER_RBAC": rbac}
    assert _heartbeat(usher, env=environment).exit_code == 0


def test_directories_lists_and_many_flags(usher: Usher) -> None:
    role, binding = RBAC.split("---\n")
    items = ",".join(json.dumps(item) for item in _loaded(binding, "kind: Secret\ndata: {a: 5}\n"))
    _write(f'{{"apiVersion": "v1", "kind": "List", "items": [{items}]}}', "rbac/deep/list.json")
    _write(role, "role.yaml")
    run = _heartbeat(usher, "--as", OPERATOR, "--rbac", "rbac", "--rbac", "role.yaml")
    assert (run.exit_code, _left_out(run)) == (0, [])
    assert _heartbeat(usher, "--as", OPERATOR, "--rbac", "-", stdin=RBAC).exit_code == 0


def _loaded(*texts: str) -> list[Any]:
    return [yaml.safe_load(text) for text in texts]


def test_a_list_as_api_servers_have_it(usher: Usher) -> None:
    (role, binding) = _loaded(*RBAC.split("---\n"))
    for item in (role, binding):
        del item["kind"], item["apiVersion"]
    api_version = "rbac.authorization.k8s.io/v1"
    for item, kind in ((role, "RoleList"), (binding, "RoleBindingList")):
        _write(
            json.dumps({"apiVersion": api_version, "kind": kind, "items": [item]}), f"r/{kind}.json"
        )
    assert _heartbeat(usher, "--as", OPERATOR, "--rbac", "r").exit_code == 0


def test_a_namespace_that_nobody_names_is_kubectls(usher: Usher) -> None:
    rbac = _write(RBAC.replace(", namespace: shop}\nr", "}\nr"), "rbac.yaml")
    assert "metadata: {name: failover}" in Path(rbac).read_text()
    bare = EVICTION.replace(", namespace: shop", ""), HEARTBEAT.replace(", namespace: shop", "")
    flags = ("--as", OPERATOR, "--rbac", rbac)
    assert _heartbeat(usher, *flags).exit_code == 1
    assert _heartbeat(usher, *flags, "-n", "shop").exit_code == 0
    _write(bare[0], "bare.yaml")
    run = usher(
        *("validate", "--old", "bare.yaml", "--subresource", "status", "--now", NOW, *flags, "-"),
        stdin=bare[1],
    )
    assert run.exit_code == 0


def test_requesters(usher: Usher) -> None:
    rule = "{apiGroups: [lifecycle.k8s.io], resources: [evictionrequesters], verbs: [request]}"
    evict = '{apiGroups: [""], resources: [pods/eviction], verbs: [create]}'
    _write(REQUEST, "request.yaml")

    def rules(*granted: str) -> list[str]:
        body = "".join(f"\n- {rule}" for rule in granted) or " []"
        text = f"{RBAC[: RBAC.index(chr(10) + '- api')]}{body}\n{RBAC[RBAC.index('---') :]}"
        rbac = _write(text, "rbac.yaml")
        flags = ("-o", "json", "-n", "shop", "--as", OPERATOR, "--rbac", rbac)
        run = usher("validate", *flags, "request.yaml")
        assert _left_out(run) == [
            "guards left out: target-pair, target-exists (for want of a cluster)"
        ]
        return [rule for rule, *_ in _found(run)]

    assert rules() == ["eviction-right", "requester-identity"]
    assert rules(evict) == ["requester-identity"]
    assert rules(rule) == ["eviction-right"]
    assert rules(rule, evict) == []


def test_controllers_and_break_glass(usher: Usher) -> None:
    rbac = _write(RBAC, "rbac.yaml")

    def rules(*flags: str) -> list[tuple[str, str]]:
        run = _heartbeat(usher, "--rbac", rbac, *flags, new=FORGED)
        findings = json.loads(run.stdout)["findings"]
        return [(found["rule"], found["severity"]) for found in findings if found["rule"] in NEEDS]

    forged, foreign = "controller-fields", "responder-identity"
    assert rules("--as", OPERATOR) == [(forged, "error")]
    assert rules("--as", "jane") == [(forged, "error"), (foreign, "error")]
    assert rules("--as", "jane", "--controllers", "jane") == [(foreign, "error")]
    glass = ("--as", "jane", "--as-group", "oncall", "--break-glass", "oncall")
    assert rules(*glass) == [(forged, "note"), (foreign, "note")]


# --- the examples of usher explain --------------------------------------------------------------

IN_DB = ("namespace: shop", "namespace: db")
DRAINER = "system:serviceaccount:ops:drainer"
LIVE = "4f8c2d1e-0b7a-4c39-8e55-3a6d9b1c7f02"


def _refusal(guard: str) -> str:
    """What the example of ``guard`` says that a client reads."""
    lines = entries()[guard].example.splitlines()
    return " ".join(line.removeprefix("# ") for line in lines if line.startswith("# "))


def _told(run: Run) -> dict[str, str]:
    """Rule → field and message."""
    findings = json.loads(run.stdout)["findings"]
    return {found["rule"]: f"{found['field']}: {found['message']}" for found in findings}


def test_the_example_of_responder_identity(usher: Usher) -> None:
    _write(EVICTION.replace(*IN_DB), "old.yaml")
    _write(HEARTBEAT.replace(*IN_DB), "new.yaml")
    change = ("-o", "json", "--now", NOW, "--old", "old.yaml", "--subresource", "status")
    user = ("--as", "system:serviceaccount:db:operator")
    guard = "responder-identity"
    refused = usher("validate", *change, *user, "--rbac", _write(RBAC, "rbac.yaml"), "new.yaml")
    assert _told(refused) == {guard: _refusal(guard)}
    _write(entries()[guard].example, "rbac.yaml")
    assert _told(usher("validate", *change, *user, "--rbac", "rbac.yaml", "new.yaml")) == {}


def test_the_examples_for_requesters(usher: Usher) -> None:
    request = REQUEST.replace("ops.acme.io", "nodes.acme.io")
    flags = ("-o", "json", "-n", "db", "--as", DRAINER, "--rbac", "rbac")
    _write(request, "request.yaml")
    _write(RBAC, "rbac/other.yaml")
    guards = ("requester-identity", "eviction-right")
    refused = usher("validate", *flags, "request.yaml")
    assert _told(refused) == {guard: _refusal(guard) for guard in guards}
    for guard in guards:
        _write(entries()[guard].example, f"rbac/{guard}.yaml")
    assert _told(usher("validate", *flags, "request.yaml")) == {}


def test_the_example_of_controller_fields(usher: Usher) -> None:
    guard, user = "controller-fields", ("--as", "system:serviceaccount:db:operator")
    assert _told(_heartbeat(usher, *user, new=FORGED))[guard] == _refusal(guard)
    config = _write(entries()[guard].example, "usher.yaml")
    assert guard not in _told(_heartbeat(usher, *user, "--config", config, new=FORGED))


def _judged(new: str, old: str | None, **pods: LivePod) -> list[str]:
    """What is told of a write, where the cluster has the pods ``pods``, by name."""
    objects = [
        decode_object(SHAPES["lifecycle.k8s.io", "v1alpha1", text["kind"]], text)
        for text in _loaded(*(text for text in (new, old) if text))
    ]
    request = Request(
        operation=Operation.UPDATE if old else Operation.CREATE,
        now=parse_time(NOW),
        object=objects[0],
        old_object=objects[1] if old else None,
        subresource="status" if old else "",
        namespace="db",
        user=User("root", ("system:masters",)),
    )
    inquiry = Inquiry(request)
    answers: dict[Question, Answer] = {
        question: fact_about(question, pods, lambda _: True) for question in inquiry.questions()
    }
    return [str(found.error) for found in inquiry.verdict(Facts(answers)).violations]


def test_the_examples_about_the_target() -> None:
    uid = "9b0a7a5e-5f0c-4b52-9f0c-6f2a1f0e7d11"
    (truth,) = _loaded(entries()["target-truth"].example)
    (condition,) = truth["status"]["conditions"]
    assert (condition["type"], condition["status"]) == ("TargetEvicted", "False")
    assert _refusal("target-truth") in _judged(FORGED, EVICTION, **{"db-0": LivePod(uid)})
    guard = "target-pair"
    live = {"db-0": LivePod(LIVE)}
    assert _judged(REQUEST, None, **live) == [_refusal(guard)]
    assert _judged(entries()[guard].example, None, **live) == []
    guard = "target-exists"
    assert _judged(REQUEST, None) == [_refusal(guard)]
    assert _judged(entries()[guard].example, None, **{"db-0": LivePod(uid)}) == []


# --- what is left out ---------------------------------------------------------------------------


def test_every_guard_that_asks_has_a_way_to_be_answered() -> None:
    assert set(NEEDS) == {name for name, rule in GUARDS.items() if rule.asks is not None}


def test_guards_left_out_are_named_once_with_what_they_need(usher: Usher) -> None:
    rbac = _write(RBAC, "rbac.yaml")

    def left_out(*flags: str) -> list[str]:
        run = _heartbeat(usher, *flags, new=FORGED)
        assert len(_left_out(run)) <= 1
        return (
            _left_out(run)[0].removeprefix("guards left out: ").split("; ")
            if _left_out(run)
            else []
        )

    truth = "target-truth (for want of a cluster)"
    assert left_out() == [
        "responder-identity (for want of --as USER and --rbac FILE)",
        "controller-fields (for want of --as USER)",
        truth,
    ]
    assert left_out("--as", "jane") == ["responder-identity (for want of --rbac FILE)", truth]
    assert left_out("--as", "jane", "--rbac", rbac) == [truth]
    assert left_out("--as", "jane", "--enforce", "responder-identity=off") == [truth]
    assert left_out("--guards", "off") == []
    _write(REQUEST, "many/a.yaml")
    _write(REQUEST, "many/b.yaml")
    run = usher("validate", "many")
    assert run.exit_code == 0
    assert run.stderr == (
        "guards left out: requester-identity, eviction-right (for want of --as USER and "
        "--rbac FILE); target-pair, target-exists (for want of a cluster)\n"
    )


def test_what_asks_nobody_leaves_nothing_out(usher: Usher) -> None:
    run = _heartbeat(usher, new=EVICTION)
    assert (run.exit_code, _left_out(run)) == (0, [])


def test_a_binding_without_its_role_is_told_to_its_subjects(usher: Usher) -> None:
    rbac = _write(RBAC.replace("kind: Role, name: f", "kind: ClusterRole, name: F"), "rbac.yaml")
    run = _heartbeat(usher, "--as", OPERATOR, "--rbac", rbac)
    assert run.exit_code == 1
    assert run.stderr.startswith(
        "rbac.yaml:13:1: ClusterRole 'Failover' is not among the manifests of --rbac: here this "
        "binding grants nothing\n"
    )
    _write(Path(rbac).read_text().replace("Failover", r'"\e[31mx"'), rbac)
    assert r"ClusterRole '\x1b[31mx'" in _heartbeat(usher, "--as", OPERATOR, "--rbac", rbac).stderr
    assert "ClusterRole" not in _heartbeat(usher, "--as", "jane", "--rbac", rbac).stderr


# --- broken manifests ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "rule", "line", "field"),
    [
        ("kind: Role\n", "kind: Roel\n", "known-kind", 2, "kind"),
        ("/v1\nkind: RoleB", "/v1beta1\nkind: RoleB", "known-kind", 10, "apiVersion"),
        ("[respond]", "respond", "field-types", 8, "rules[0].verbs"),
        ("[respond]", "[5]", "field-types", 8, "rules[0].verbs[0]"),
        ("[respond]", "[]", "sound-rbac", 8, "rules[0].verbs"),
        ("kind: Role, ", "", "sound-rbac", 13, "roleRef.kind"),
        ("  verbs: [r", "  verbs: []\n  verbs: [r", "json-values", 9, "rules[0]"),
        ("subjects:\n", "subjects: [\n", "readable-file", 15, ""),
        ("---", f"---\n{ROLE}---", "sound-rbac", 12, "metadata.name"),
    ],
)
def test_broken_rbac_ends_with_2_and_a_line(
    usher: Usher, old: str, new: str, rule: str, line: int, field: str
) -> None:
    rbac = _write(RBAC.replace(old, new, 1), "rbac.yaml")
    run = _heartbeat(usher, "--as", "jane", "--rbac", rbac)
    assert run.exit_code == 2
    # Nobody is refused by half of the roles.
    assert [(r, f, p) for r, f, _, p in _found(run)] == [(rule, "rbac.yaml", field)]
    assert [n for _, _, n, _ in _found(run)] == [line]
    assert _left_out(run) == ["guards left out: responder-identity (for want of --rbac FILE)"]


def test_an_unreadable_file(usher: Usher) -> None:
    Path("rbac").mkdir()
    Path("rbac/gone.yaml").symlink_to("nowhere")
    run = _heartbeat(usher, "--as", "jane", "--rbac", "rbac")
    assert run.exit_code == 2
    (finding,) = json.loads(run.stdout)["findings"]
    assert finding["message"] == "could not be read: No such file or directory"


def test_what_is_judged_anyway_is_told_once(usher: Usher) -> None:
    _write(RBAC, "all/rbac.yaml")
    _write("a: [\n", "all/broken.yaml")
    _write(REQUEST, "all/request.yaml")
    run = usher("validate", "-o", "json", "--as", "jane", "--rbac", "all", "all")
    assert run.exit_code == 2
    # Nobody is refused by half of the roles.
    assert [file for _, file, *_ in _found(run)] == ["all/broken.yaml"]
    assert "requester-identity, eviction-right (for want of --rbac FILE)" in _left_out(run)[0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--rbac", "."], "--rbac is about a user: name one with --as USER"),
        (["--as-group", "x"], "--as-group is about a user: name one with --as USER"),
        (["--as", "x", "--rbac", "missing"], "missing: no such file or directory"),
        (["--as", "x", "--rbac", "-", "-"], "'-' can be named once"),
        (["--as", "x", "--rbac", "-", "--old", "-"], "'-' can be named once"),
    ],
)
def test_bad_usage_says_what_to_do(usher: Usher, arguments: list[str], message: str) -> None:
    run = usher("validate", *arguments, _write(REQUEST, "request.yaml"))
    assert run.exit_code == 2
    assert message in run.stderr
