"""Requests under revision: what the tests of mutations have in common."""

import json
from collections.abc import Mapping
from typing import Any, Final

from rules.api import GROUP, VERSION
from rules.decode import SHAPES, decode_object, load
from rules.facts import (
    CLUSTER_POLICIES,
    NATIVE_RESPONDERS,
    NO_FACTS,
    Answer,
    Facts,
    LivePod,
    NamespaceLabels,
    PodLookup,
    Policies,
    Question,
)
from rules.mutate import Draft, MutationPolicy, Revision
from rules.mutation import Mode
from rules.patch import render
from rules.policies import (
    POLICY_API_VERSION,
    POLICY_GROUP,
    POLICY_VERSION,
    ClusterResponderPolicy,
    ResponderPolicy,
)
from rules.policy.reading import read_policies
from rules.request import Operation, Request
from rules.times import parse_time
from tests.cases import NOW
from tests.rules.json_patch import apply_patch

Json = dict[str, Any]

NAMESPACE: Final = "default"
UID: Final = "9b0a7a5e-5f0c-4b52-9f0c-6f2a1f0e7d11"
ANNOTATION: Final = "usher.dev/eviction-responders"
NATIVE: Final = MutationPolicy(mode=Mode.NATIVE)
CRD: Final = MutationPolicy(mode=Mode.CRD)
_GROUPS: Final = {
    "Pod": ("", "v1"),
    "Deployment": ("apps", "v1"),
    "ResponderPolicy": (POLICY_GROUP, POLICY_VERSION),
    "ClusterResponderPolicy": (POLICY_GROUP, POLICY_VERSION),
}


def request(
    kind: str, document: Json, old: Json | None = None, *, subresource: str = ""
) -> Request:
    """Return a CREATE, or an UPDATE where there is an ``old`` object."""
    shape = SHAPES[(*_GROUPS.get(kind, (GROUP, VERSION)), kind)]
    return Request(
        operation=Operation.CREATE if old is None else Operation.UPDATE,
        now=parse_time(NOW),
        object=decode_object(shape, document),
        old_object=decode_object(shape, old) if old is not None else None,
        subresource=subresource,
        namespace=NAMESPACE,
        root=shape.root,
    )


def read(document: Json) -> Json:
    """Return ``document`` as the webhook reads it."""
    value: Json = load(json.dumps(document).encode())
    return value


def policy(name: str = "databases", *responders: tuple[str, int], **spec: Any) -> Json:
    """Return a ResponderPolicy; one with a namespaceSelector is a ClusterResponderPolicy."""
    kind = "ClusterResponderPolicy" if "namespaceSelector" in spec else "ResponderPolicy"
    return {
        "apiVersion": POLICY_API_VERSION,
        "kind": kind,
        "metadata": {"name": name},
        "spec": {
            "podSelector": {},
            "responders": [{"name": name, "priority": priority} for name, priority in responders],
            **spec,
        },
    }


def facts(
    *policies: Json,
    labels: Mapping[str, str] = {},
    native: bool = False,
    pods: Mapping[str, LivePod] = {},
) -> Facts:
    """Return what a cluster with these policies and pods answers."""
    own = [each for each in policies if each["kind"] == "ResponderPolicy"]
    wide = [each for each in policies if each["kind"] == "ClusterResponderPolicy"]
    answers: dict[Question, Answer] = {
        Policies(NAMESPACE): read_policies(ResponderPolicy, own),
        CLUSTER_POLICIES: read_policies(ClusterResponderPolicy, wide),
        NamespaceLabels(NAMESPACE): dict(labels),
        NATIVE_RESPONDERS: native,
        **{PodLookup(NAMESPACE, name): pod for name, pod in pods.items()},
    }
    return Facts(answers)


def revise(
    asked: Request,
    document: Json,
    known: Facts = NO_FACTS,
    how: MutationPolicy = MutationPolicy(),
) -> Revision:
    """Return the revision by ``known``, in which nothing that is asked may be missing."""
    draft = Draft(asked, document, how)
    lookups = (question for question in draft.questions() if isinstance(question, PodLookup))
    absent = {lookup: None for lookup in lookups if lookup not in known.answers}
    revision = draft.revision(Facts({**known.answers, **absent}))
    assert revision.unanswered == ()
    return revision


def revised_pod(pod: Json, known: Facts, how: MutationPolicy = NATIVE) -> Json:
    """Return ``pod`` as it is created."""
    document = read(pod)
    changed: Json = apply_patch(
        pod, render(revise(request("Pod", document), document, known, how).steps)
    )
    return changed
