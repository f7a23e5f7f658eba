"""The registration that the chart renders, of a webhook that runs beside the API server."""

import base64
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from rules.api import RESPONDERS_ANNOTATION
from tests.chart.rendering import NAMESPACE, render
from tests.controller.program import Users
from tests.controller.rights import CONTROLLER, ONCALL
from tests.e2e.api import Object
from tests.e2e.cluster import Cluster
from tests.e2e.objects import pod
from tests.e2e.usher import Usher
from tests.e2e.waiting import eventually

WEBHOOK_USER: Final = "viewer"
UNREADABLE: Final = {RESPONDERS_ANNOTATION: "unreadable"}
_KIND: Final = "ValidatingWebhookConfiguration"
_PATH: Final = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"


@contextmanager
def registered(cluster: Cluster, usher: Usher) -> Iterator[None]:
    """Register ``usher`` as the chart does it by default; withdrawn at the end."""
    values = {
        "webhook": {"url": f"https://localhost:{usher.port}"},
        "serviceAccount": {"name": CONTROLLER.rpartition(":")[2]},
    }
    assert CONTROLLER.startswith(f"system:serviceaccount:{NAMESPACE}:")
    configurations = render(values).all(_KIND)
    bundle = base64.b64encode(usher.authority.pair.certificate).decode()
    for each in configurations:
        for hook in each["webhooks"]:
            hook["clientConfig"]["caBundle"] = bundle
        answer = cluster.api("POST", _PATH, each)
        assert answer.ok, answer.message
    try:
        yield
    finally:
        for each in configurations:
            cluster.api("DELETE", f"{_PATH}/{each['metadata']['name']}")


def wait_until_in_effect(users: Users) -> None:
    """Return when each configuration refuses what it should; ONCALL may ask in nobody's name."""
    eventually(lambda: _is_in_effect(users), "all configurations are in effect")


def _is_in_effect(users: Users) -> bool:
    document = request_for("probe", users.namespace)
    path = users.path("evictionrequests")
    created = users.cluster.api("POST", f"{path}?dryRun=All", document, identity=ONCALL)
    users.cluster.api("POST", path, document)
    deleted = users.cluster.api("DELETE", f"{path}/probe?dryRun=All", identity=ONCALL)
    probe = {**pod("probe"), "metadata": {"name": "probe", "annotations": UNREADABLE}}
    broken = users.cluster.create(users.namespace, probe)
    if broken.ok:
        users.cluster.api("DELETE", f"{users.path('pods', 'probe')}?gracePeriodSeconds=0")
    refused = (created.code, deleted.code, broken.code) == (403, 403, 422)
    if refused:
        users.call("DELETE", f"{path}/probe")
    return refused


def request_for(
    name: str, target: str, uid: str = "9b0a7a5e-5f0c-4b52-9f0c-6f2a1f0e7d11"
) -> Object:
    """An EvictionRequest for the pod ``target``."""
    return {
        "apiVersion": "lifecycle.k8s.io/v1alpha1",
        "kind": "EvictionRequest",
        "metadata": {"name": name},
        "spec": {
            "requester": "nodes.acme.io/drain",
            "intent": "Eviction",
            "target": {"pod": {"name": target, "uid": uid}},
        },
    }
